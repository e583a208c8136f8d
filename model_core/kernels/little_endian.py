"""Little-endian numbers at any place in a buffer, compiled."""

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)
def read_u32(buffer: NDArray[np.uint8], at: int) -> np.uint32:
    word = np.uint32(0)
    for byte in range(4):
        word |= np.uint32(buffer[at + byte]) << np.uint32(8 * byte)
    return word


@njit(cache=True)
def read_u64(buffer: NDArray[np.uint8], at: int) -> np.uint64:
    word = np.uint64(0)
    for byte in range(8):
        word |= np.uint64(buffer[at + byte]) << np.uint64(8 * byte)
    return word


@njit(cache=True)
def read_f64(buffer: NDArray[np.uint8], at: int) -> np.float64:
    return np.uint64(read_u64(buffer, at)).view(np.float64)


@njit(cache=True)
def write_u32(buffer: NDArray[np.uint8], at: int, word: np.uint32) -> None:
    for byte in range(4):
        buffer[at + byte] = np.uint8((word >> np.uint32(8 * byte)) & np.uint32(0xFF))


@njit(cache=True)
def write_u64(buffer: NDArray[np.uint8], at: int, word: np.uint64) -> None:
    for byte in range(8):
        buffer[at + byte] = np.uint8((word >> np.uint64(8 * byte)) & np.uint64(0xFF))
