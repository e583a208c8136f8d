"""Decompresses zstd files, and reports those that are cut off, which `zstandard`'s own reader does not."""

from __future__ import annotations

import io
from typing import BinaryIO

from zstandard import ZstdDecompressor, ZstdError

_PIECE_BYTES = 16_384  # compressed; what a piece decompresses to is in memory at once


class ZstdFile(io.RawIOBase):
    """The text of consecutive frames. `raw` stays open when this is closed.

    `read` raises EOFError if the last frame has no end, and OSError without a number if one is damaged.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._frame = ZstdDecompressor().decompressobj()
        self._in_frame = False
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._text:
            data = self._raw.read(_PIECE_BYTES)
            if not data:
                if self._in_frame:
                    raise EOFError("a zstd frame has no end")
                return 0
            self._text = memoryview(self._decompressed(data))
        count = min(len(buffer), len(self._text))
        buffer[:count] = self._text[:count]
        self._text = self._text[count:]
        return count

    def _decompressed(self, data: bytes) -> bytes:
        parts = []
        while data:
            try:
                parts.append(self._frame.decompress(data))
            except ZstdError as wrong:
                raise OSError(str(wrong)) from wrong
            self._in_frame = not self._frame.eof
            data = self._frame.unused_data
            if self._frame.eof:
                self._frame = ZstdDecompressor().decompressobj()
        return b"".join(parts)
