"""MurmurHash3 x86 32, compiled: of a part of a byte buffer, or of a text that stands in several places.

(Austin Appleby, public domain)
"""

from typing import NamedTuple

import numpy as np
from numpy import uint32, uint64
from numpy.typing import NDArray

from model_core.kernels.compiled import inlined_kernel, kernel

# A part's last block is loaded whole and masked: this many bytes must follow every part in its buffer.
READ_AHEAD = 3

_THREE, _FOUR, _EIGHT, _BLOCK_BITS = uint64(3), uint64(4), uint64(8), uint64(32)
_EQUALS = uint64(ord("="))


class Partial(NamedTuple):
    """The hash of what was read so far; `pending` holds the `pending_bits` that do not fill a block yet."""

    mixed: np.uint32
    pending: np.uint64
    pending_bits: np.uint64
    length: np.uint64


@kernel
def murmur3_32(buffer: NDArray[np.uint8], start: int, stop: int, seed: int) -> np.uint32:
    """The unsigned hash of buffer[start:stop], that of mmh3.hash(..., seed, signed=False).

    buffer: uint8, with READ_AHEAD more bytes after `stop`.
    """
    return finished(extended(begun(seed), buffer, start, stop))


@inlined_kernel
def begun(seed: int) -> Partial:
    """Begin the hash of a text, with no bytes yet."""
    return Partial(uint32(seed), uint64(0), uint64(0), uint64(0))


@inlined_kernel
def extended(partial: Partial, buffer: NDArray[np.uint8], start: int, stop: int) -> Partial:
    """Append buffer[start:stop]; READ_AHEAD more bytes must follow `stop` in the buffer."""
    mixed, pending, bits, length = partial
    i, more = uint64(start), uint64(stop - start)
    tail = i + (more & ~_THREE)
    while i < tail:
        pending |= uint64(block(buffer, i)) << bits
        mixed = _mixed_in(mixed, uint32(pending))
        pending >>= _BLOCK_BITS
        i += _FOUR
    rest = (more & _THREE) * _EIGHT
    # A shift by all 32 bits of a block is fine in 64.
    pending |= (uint64(block(buffer, i)) & ((uint64(1) << rest) - uint64(1))) << bits
    return _without_full_block(mixed, pending, bits + rest, length + more)


@inlined_kernel
def extended_by_equals(partial: Partial) -> Partial:
    """Append `=`."""
    mixed, pending, bits, length = partial
    return _without_full_block(mixed, pending | (_EQUALS << bits), bits + _EIGHT, length + uint64(1))


@inlined_kernel
def finished(partial: Partial) -> np.uint32:
    """The unsigned hash, that of mmh3.hash(..., seed, signed=False) of all the bytes."""
    h = partial.mixed
    if partial.pending_bits:
        h = uint32(h ^ _scrambled(uint32(partial.pending)))
    h = uint32(h ^ uint32(partial.length))
    h = uint32((h ^ (h >> uint32(16))) * uint32(0x85EBCA6B))
    h = uint32((h ^ (h >> uint32(13))) * uint32(0xC2B2AE35))
    return uint32(h ^ (h >> uint32(16)))


@inlined_kernel
def block(buffer: NDArray[np.uint8], i: np.uint64) -> np.uint32:
    """Four bytes, little-endian; unsigned indices spare numba's check for negative ones."""
    low = uint32(buffer[i]) | (uint32(buffer[i + uint64(1)]) << uint32(8))
    high = (uint32(buffer[i + uint64(2)]) << uint32(16)) | (uint32(buffer[i + _THREE]) << uint32(24))
    return uint32(low | high)


@inlined_kernel
def _without_full_block(mixed: np.uint32, pending: np.uint64, bits: np.uint64, length: np.uint64) -> Partial:
    if bits >= _BLOCK_BITS:
        mixed = _mixed_in(mixed, uint32(pending))
        pending >>= _BLOCK_BITS
        bits -= _BLOCK_BITS
    return Partial(mixed, pending, bits, length)


@inlined_kernel
def _mixed_in(mixed: np.uint32, whole_block: np.uint32) -> np.uint32:
    h = uint32(mixed ^ _scrambled(whole_block))
    return uint32(_rotated(h, 13) * uint32(5) + uint32(0xE6546B64))


@inlined_kernel
def _scrambled(word: np.uint32) -> np.uint32:
    return uint32(_rotated(uint32(word * uint32(0xCC9E2D51)), 15) * uint32(0x1B873593))


@inlined_kernel
def _rotated(x: np.uint32, by: int) -> np.uint32:
    return uint32((x << uint32(by)) | (x >> uint32(32 - by)))
