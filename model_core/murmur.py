"""MurmurHash3 x86 32 over a part of a byte buffer, compiled.  (Austin Appleby, public domain)"""

import numpy as np
from numpy import uint32, uint64
from numpy.typing import NDArray

from model_core.compiled import kernel

# A part's last block is loaded whole and masked: this many bytes must follow every part in its buffer.
READ_AHEAD = 3

_ONE, _TWO, _THREE, _FOUR = uint64(1), uint64(2), uint64(3), uint64(4)


@kernel
def murmur3_32(buffer: NDArray[np.uint8], start: int, stop: int, seed: int) -> np.uint32:
    """The unsigned hash of buffer[start:stop], that of mmh3.hash(..., seed, signed=False).

    buffer: uint8, with READ_AHEAD more bytes after `stop`.
    """
    h = uint32(seed)
    length = uint64(stop - start)
    i = uint64(start)
    tail = i + (length & ~_THREE)
    while i < tail:
        h = uint32(_rotated(uint32(h ^ _mixed(_block(buffer, i))), 13) * uint32(5) + uint32(0xE6546B64))
        i += _FOUR
    rest = uint32(length & _THREE)
    if rest:
        h = uint32(h ^ _mixed(uint32(_block(buffer, i) & ((uint32(1) << (rest * uint32(8))) - uint32(1)))))
    h = uint32(h ^ uint32(length))
    h = uint32((h ^ (h >> uint32(16))) * uint32(0x85EBCA6B))
    h = uint32((h ^ (h >> uint32(13))) * uint32(0xC2B2AE35))
    return uint32(h ^ (h >> uint32(16)))


@kernel
def _block(buffer: NDArray[np.uint8], i: np.uint64) -> np.uint32:
    """Four bytes, little-endian; unsigned indices spare numba's check for negative ones."""
    low = uint32(buffer[i]) | (uint32(buffer[i + _ONE]) << uint32(8))
    high = (uint32(buffer[i + _TWO]) << uint32(16)) | (uint32(buffer[i + _THREE]) << uint32(24))
    return uint32(low | high)


@kernel
def _mixed(block: np.uint32) -> np.uint32:
    return uint32(_rotated(uint32(block * uint32(0xCC9E2D51)), 15) * uint32(0x1B873593))


@kernel
def _rotated(x: np.uint32, by: int) -> np.uint32:
    return uint32((x << uint32(by)) | (x >> uint32(32 - by)))
