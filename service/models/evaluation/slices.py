"""The values of sliced features: found in requests, and stored for the learner by the hash of their category.

The log has hashes only. So each value is stored once, before the first example that has it can be learned:
the append adds it to the hash `slices`, and marks its log entry to say that the hash has grown.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Set
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

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
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
        """Returns whether other values may have this text; texts that were stored before had no mark."""
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


def _values_in(piece: bytes, old: Set[str]) -> Iterator[Any]:
    """What a feature has: one value, or those of a list, each perhaps in an object with its `times`; without
    the texts in `old`, as a list may have thousands of them.
    """
    try:
        value = from_json(piece)
    except ValueError:  # not the value of a feature after all
        return
    values = value if isinstance(value, list) else [value]
    for given in [one for one in values if type(one) is not str or one not in old]:
        if not isinstance(given, dict):
            yield given
        elif "value" in given:  # else it is the feature itself
            yield given["value"]


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
        self._old: set[tuple[int, bytes]] = set()  # pieces of bodies without new values
        self._old_texts: list[set[str]] = [set() for _ in slices]  # values that are logged

    def found_in(self, body: bytes) -> dict[int, SliceName]:
        """Values that are not logged yet, by the hashes of their categories; of each feature the first
        MAX_VALUES_PER_FEATURE, as there are no slices for more, and a few that come with the last of them.
        """
        found: dict[int, SliceName] = {}
        for feature, pattern in enumerate(self._patterns_with_escapes if b"\\" in body else self._patterns):
            most, seen, fresh = len(found) + MAX_VALUES_PER_FEATURE, set[bytes](), set[str]()
            for match in pattern.finditer(body):
                if len(found) >= most:
                    break
                if match[1] not in seen and (feature, match[1]) not in self._old:
                    seen.add(match[1])
                    found |= self._new_in(feature, match[1], fresh)
        return found

    def mark_logged(self, categories: Iterable[int]) -> None:
        """Values of these categories need not be found again."""
        if len(self._logged) > _MAX_REMEMBERED:
            self._logged.clear()
            self._old.clear()
            for texts in self._old_texts:
                texts.clear()
        self._logged.update(categories)

    def _new_in(self, feature: int, piece: bytes, fresh: set[str]) -> dict[int, SliceName]:
        """Values that are not logged yet; `fresh`: the texts among those that this body has had, which are
        not returned again.
        """
        old = self._old_texts[feature]
        new: dict[int, SliceName] = {}
        is_old = len(piece) <= _MAX_REMEMBERED_BYTES and len(self._old) < _MAX_REMEMBERED
        for value in _values_in(piece, old):
            if type(value) is str and value in fresh:
                is_old = False
                continue
            category = self._category(self._slices[feature], value)
            if category is None:
                continue
            if category not in self._logged:
                new[category] = SliceName(feature, self._shown(self._slices[feature], value))
                is_old = False
            if type(value) is str and category not in self._logged:
                fresh.add(value)
            elif type(value) is str and len(old) < _MAX_REMEMBERED:
                old.add(value)
        if is_old:
            self._old.add((feature, piece))
        return new

    def _category(self, feature: str, value: Any) -> int | None:
        """The hash of a value's category; None for numeric values, and where it is no value of a feature."""
        if self._is_measured(feature, value):
            return None
        try:
            encoded = self._encoder.encode({feature: value})
        except ValueError:
            return None
        return encoded.hashes[0] if encoded.values is None and encoded.hashes else None

    def _is_measured(self, feature: str, value: Any) -> bool:
        return type(value) in (int, float) and self._kind(feature) not in ("category", "bucket")

    def _shown(self, feature: str, value: Any) -> str:
        if type(value) in (int, float) and self._kind(feature) == "bucket":
            return bucket_text(value)
        return value if isinstance(value, str) else json.dumps(value)

    def _kind(self, feature: str) -> Transform | str:
        contract = self._encoder.contract
        return "category" if contract.types.get(feature) == "category" else contract.transform_of(feature)
