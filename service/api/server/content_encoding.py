"""Unpacks request bodies that a Content-Encoding has packed: gzip (RFC 1952) and zstd (RFC 8878)."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from model_core.errors import InvalidInput
from service.errors import TooLarge, UnsupportedContentEncoding

ACCEPTED = "gzip, zstd"
MAX_WINDOW_BYTES = 8 << 20  # of zstd as a content coding (RFC 9659)
_MAX_MEMBERS = 64  # of a gzip body: what follows a member is copied


def unpacker_of(coding: bytes, max_bytes: int) -> Callable[[bytes], bytes] | None:
    """Return what unpacks a body to at most `max_bytes`, or None for a body that is not packed.

    The function raises InvalidInput for data that is not of this coding, and TooLarge. Raises
    UnsupportedContentEncoding.
    """
    name = coding.strip().lower()
    if name in (b"", b"identity"):
        return None
    if name in (b"gzip", b"x-gzip"):
        return lambda body: _ungzipped(body, max_bytes)
    if name == b"zstd":
        return lambda body: _unzstd(body, max_bytes)
    raise unsupported(name)


def unsupported(coding: bytes) -> UnsupportedContentEncoding:
    """Refuse a coding that is not read."""
    return UnsupportedContentEncoding(
        f"The header Content-Encoding must be gzip, zstd or identity, not {coding[:80].decode('latin-1')!r}.",
        headers={"Accept-Encoding": ACCEPTED},
    )


def not_of(coding: str) -> InvalidInput:
    """Refuse a body that is not whole data of its coding."""
    return InvalidInput(
        (), f"the body is not whole {coding} data, which its header Content-Encoding announces"
    )


def _ungzipped(body: bytes, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    room, rest = max_bytes + 1, body
    while rest or not pieces:
        if len(pieces) == _MAX_MEMBERS:
            raise InvalidInput((), f"the gzip body has more than {_MAX_MEMBERS} members")
        member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            pieces.append(member.decompress(rest, room))
        except zlib.error:
            raise not_of("gzip") from None
        room -= len(pieces[-1])
        if room <= 0:
            raise _too_large(max_bytes)
        if not member.eof:
            raise not_of("gzip")
        rest = member.unused_data
    return b"".join(pieces)


def _unzstd(body: bytes, max_bytes: int) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError

    decompressor = ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    try:
        with decompressor.stream_reader(body, read_across_frames=True) as reader:
            unpacked: bytes = reader.read(max_bytes + 1)
    except ZstdError:
        raise not_of("zstd") from None
    if len(unpacked) > max_bytes:
        raise _too_large(max_bytes)
    return unpacked


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"A body of this request has at most {max_bytes} bytes when it is unpacked.")
