"""Cuts an Arrow stream into its messages, and bounds them before pyarrow reads them.

A message is 0xFFFFFFFF, the size of its metadata, the metadata (a flatbuffer), and a body of the length that
the metadata gives. (Arrow columnar format, "Encapsulated message format"; Message.fbs)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from model_core.errors import InvalidInput

SCHEMA, DICTIONARY_BATCH, RECORD_BATCH = 1, 2, 3
_CONTINUATION = 0xFFFFFFFF
_PREFIX_BYTES = 8
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3  # fields of a Message
_DATA = 1  # of a DictionaryBatch
_COMPRESSION = 3  # of a RecordBatch


class Message(NamedTuple):
    """A whole message with its prefix; `kind` is that of its header."""

    kind: int
    data: bytes


class MessageCutter:
    """Cuts pieces of a stream into messages of at most `longest` bytes.

    ended: the stream has said that it ends.
    """

    def __init__(self, longest: int) -> None:
        self.ended = False
        self._longest = longest
        self._rest = bytearray()

    @property
    def is_between(self) -> bool:
        """True after a whole message."""
        return not self._rest

    def cut(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that `data` completes. Raises InvalidInput."""
        self._rest += data
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> Message | None:
        rest = self._rest
        if self.ended or len(rest) < _PREFIX_BYTES:
            return None
        mark, size = struct.unpack_from("<Ii", rest)
        if mark != _CONTINUATION or size < 0:
            raise InvalidInput((), "this is no Arrow stream, or one of before Arrow 0.15")
        if size == 0:
            self.ended = True
            return None
        self._check_size(size)
        start = _PREFIX_BYTES + size
        if len(rest) < start:
            return None
        metadata = bytes(rest[_PREFIX_BYTES:start])
        try:
            kind, body_bytes = _read(metadata)
        except (struct.error, IndexError):
            raise InvalidInput((), "an Arrow message has damaged metadata") from None
        self._check_size(size + body_bytes)
        if len(rest) < start + body_bytes:
            return None
        data = bytes(rest[: start + body_bytes])
        del rest[: start + body_bytes]
        return Message(kind, data)

    def _check_size(self, size: int) -> None:
        if not 0 <= size <= self._longest:
            detail = (
                f"an Arrow record batch has at most {self._longest} bytes (FTRL_MAX_UPDATE_BODY_BYTES):"
                " write smaller ones"
            )
            raise InvalidInput((), detail, "too_many")


def _read(metadata: bytes) -> tuple[int, int]:
    """Return the kind of a message and the bytes of its body.

    Raises InvalidInput, and struct.error or IndexError for what is no flatbuffer.
    """
    message = struct.unpack_from("<I", metadata)[0]
    kind_at = _field(metadata, message, _HEADER_TYPE)
    kind = metadata[kind_at] if kind_at else 0
    length_at = _field(metadata, message, _BODY_LENGTH)
    body_bytes = struct.unpack_from("<q", metadata, length_at)[0] if length_at else 0
    if kind in (DICTIONARY_BATCH, RECORD_BATCH):
        batch = _table(metadata, message, _HEADER)
        if kind == DICTIONARY_BATCH:
            batch = _table(metadata, batch, _DATA)
        if _field(metadata, batch, _COMPRESSION):
            detail = "Arrow buffers are not read compressed: send the body with a Content-Encoding instead"
            raise InvalidInput((), detail)
    return kind, body_bytes


def _field(metadata: bytes, table: int, number: int) -> int:
    """Return where a field of a table is, 0 if it is left out."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    slot = 4 + 2 * number
    if vtable < 0 or slot >= struct.unpack_from("<H", metadata, vtable)[0]:
        return 0
    offset: int = struct.unpack_from("<H", metadata, vtable + slot)[0]
    return table + offset if offset else 0


def _table(metadata: bytes, table: int, number: int) -> int:
    """Return where a table is that is a field of another one."""
    at = _field(metadata, table, number)
    offset: int = struct.unpack_from("<I", metadata, at)[0]
    return at + offset
