"""The values of sliced features: found in requests, and stored for the learner by the hash of their category.

The log has hashes only. So each value is stored once, before the first example that has it can be learned:
the append adds it to the hash `slices`, and marks its log entry to say that the hash has grown.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic_core import from_json

from model_core.hashing.contract import Transform
from model_core.hashing.encoder import FeatureEncoder
from model_core.hashing.feature_text import bucket_text

MAX_VALUES_PER_FEATURE = 4096
MAX_TEXT_BYTES = 64
"""Of a stored text, which is for display: a value is identified by its hash."""
CUT = "…"
_MAX_REMEMBERED = 1 << 16
_MAX_REMEMBERED_BYTES = 256  # of one text; a list may be as long as a body
_HASH = struct.Struct("<I")

_TEXT = rb'"(?:[^"\\]|\\.)*"'
_SCALAR = rb"(?:" + _TEXT + rb"|[-+.\w]++)"
_VALUE = rb"(%b|\[\s*+(?:%b\s*+,?+\s*+)*+\]|\{\s*+(?:%b\s*+[:,]?+\s*+)*+\})" % (_SCALAR, _SCALAR, _SCALAR)
_AFTER_NAME = rb"\s*[:,]\s*" + _VALUE


class SliceName(NamedTuple):
    """A value of the sliced feature of that number, as text; when it is stored, less than MAX_TEXT_BYTES,
    or the beginning of a longer one and CUT.
    """

    feature: int
    value: str

    @property
    def may_be_cut(self) -> bool:
        """Whether other values may have this text; texts that were stored before had no mark."""
        return self.value.endswith(CUT) or len(self.value.encode("utf-8", "replace")) >= MAX_TEXT_BYTES


def unpack_names(fields: Iterable[tuple[bytes, bytes]]) -> dict[int, SliceName]:
    """Parses the fields of the hash `slices` whose name is the hash of a category."""
    return {
        _HASH.unpack(name)[0]: SliceName(value[0], value[1:].decode("utf-8", "replace"))
        for name, value in fields
        if len(name) == _HASH.size
    }


def pack_names(names: Mapping[int, SliceName]) -> bytes:
    """Packs each name as u32 hash | u8 number of bytes that follow | u8 feature | text."""
    return b"".join(_packed(category, name) for category, name in names.items())


def _packed(category: int, name: SliceName) -> bytes:
    text = name.value.encode("utf-8", "replace")
    if len(text) >= MAX_TEXT_BYTES:
        text = (text[: MAX_TEXT_BYTES - len(CUT.encode())].decode("utf-8", "ignore") + CUT).encode()
    return _HASH.pack(category) + bytes([len(text) + 1, name.feature]) + text


def _spellings(character: str) -> bytes:
    """A pattern of all that JSON allows for a character of a name, which is no control character."""
    units = character.encode("utf-16-be").hex()
    escaped = b"".join(rb"\\u(?i:%b)" % units[k : k + 4].encode() for k in range(0, len(units), 4))
    if character in ('"', "\\"):
        return rb"(?:\\%b|%b)" % (re.escape(character.encode()), escaped)
    slash = rb"|\\/" if character == "/" else b""
    return rb"(?:%b%b|%b)" % (re.escape(character.encode()), slash, escaped)


class SliceFinder:
    """Finds values of sliced features in the bodies of valid requests, until they are marked as logged.

    Each has the hash of its category, so a text that is mistaken for a feature does no harm.
    """

    def __init__(self, encoder: FeatureEncoder, slices: tuple[str, ...]) -> None:
        self._encoder = encoder
        self._slices = slices
        self._patterns = [
            re.compile(re.escape(json.dumps(name, ensure_ascii=False).encode()) + _AFTER_NAME)
            for name in slices
        ]
        self._patterns_with_escapes = [
            re.compile(b'"' + b"".join(map(_spellings, name)) + b'"' + _AFTER_NAME) for name in slices
        ]
        self._logged: set[int] = set()
        self._old: set[tuple[int, bytes]] = set()  # texts without new values

    def found_in(self, body: bytes) -> dict[int, SliceName]:
        """Values that are not logged yet, by the hashes of their categories; of each feature the first
        MAX_VALUES_PER_FEATURE, as there are no slices for more, and a few that come with the last of them.
        """
        found: dict[int, SliceName] = {}
        for feature, pattern in enumerate(self._patterns_with_escapes if b"\\" in body else self._patterns):
            most = len(found) + MAX_VALUES_PER_FEATURE
            for text in dict.fromkeys(pattern.findall(body)):
                if len(found) >= most:
                    break
                if (feature, text) not in self._old:
                    found |= self._new_in(feature, text)
        return found

    def mark_logged(self, categories: Iterable[int]) -> None:
        """Values of these categories need not be found again."""
        if len(self._logged) > _MAX_REMEMBERED:
            self._logged.clear()
            self._old.clear()
        self._logged.update(categories)

    def _new_in(self, feature: int, text: bytes) -> dict[int, SliceName]:
        new = {
            category: SliceName(feature, value)
            for category, value in self._categories(self._slices[feature], text)
            if category not in self._logged
        }
        short = len(text) <= _MAX_REMEMBERED_BYTES
        if not new and short and len(self._old) < _MAX_REMEMBERED:
            self._old.add((feature, text))
        return new

    def _categories(self, feature: str, text: bytes) -> Iterator[tuple[int, str]]:
        """The hash of each category and its value as text; nothing for numeric values."""
        try:
            value = from_json(text)
            for given in value if isinstance(value, list) else [value]:
                if isinstance(given, dict) and "value" not in given:
                    continue  # the feature itself
                one = given["value"] if isinstance(given, dict) else given
                encoded = self._encoder.encode({feature: one})
                if encoded.values is None and not self._is_measured(feature, one):
                    yield from ((category, self._shown(feature, one)) for category in encoded.hashes)
        except ValueError:  # not the value of a feature after all
            return

    def _is_measured(self, feature: str, value: Any) -> bool:
        return type(value) in (int, float) and self._kind(feature) not in ("category", "bucket")

    def _shown(self, feature: str, value: Any) -> str:
        if type(value) in (int, float) and self._kind(feature) == "bucket":
            return bucket_text(value)
        return value if isinstance(value, str) else json.dumps(value)

    def _kind(self, feature: str) -> Transform | str:
        contract = self._encoder.contract
        return "category" if contract.types.get(feature) == "category" else contract.transform_of(feature)
