"""Snapshots as files: the bytes of `model_core.snapshot` through zstd, which stores as it is what would not
shrink.
"""

from __future__ import annotations

from typing import BinaryIO, cast

import zstandard

from model_core.errors import FormatError
from model_core.snapshot import Read, Snapshot, SnapshotHeader, decode, decode_header

SUFFIX = ".safetensors.zst"
LEVEL = 3
_MAGIC = b"\x28\xb5\x2f\xfd"


def write_snapshot(snapshot: Snapshot, file: BinaryIO) -> None:
    """Streamed. Raises OSError."""
    with zstandard.ZstdCompressor(LEVEL).stream_writer(file, closefd=False) as out:
        for piece in snapshot.encode():
            out.write(piece)


def read_snapshot(file: BinaryIO) -> Snapshot:
    """Of a file with or without zstd; the checksum is verified. Raises FormatError, OSError."""
    try:
        return decode(_reader(file))
    except zstandard.ZstdError as wrong:
        raise FormatError(f"it is torn or altered ({wrong})") from wrong


def read_header(file: BinaryIO) -> SnapshotHeader:
    """Reads no more than it must, so that the checksum is not verified. Raises FormatError, OSError."""
    try:
        return decode_header(_reader(file))
    except zstandard.ZstdError as wrong:
        raise FormatError(f"it is torn or altered ({wrong})") from wrong


def _reader(file: BinaryIO) -> Read:
    start = file.read(len(_MAGIC))
    file.seek(0)
    source = file
    if start == _MAGIC:
        source = cast(BinaryIO, zstandard.ZstdDecompressor().stream_reader(file, closefd=False))

    def read(size: int) -> bytes:
        pieces = []
        while size > 0 and (piece := source.read(size)):
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    return read
