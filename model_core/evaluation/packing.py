"""The fields of buckets to bytes and back; a number takes as few bytes as all of its column need."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.evaluation.buckets import (
    BINS_A_BLOCK,
    CHANGED,
    PRESENT,
    STORED,
    WEIGHTED,
    Buckets,
)
from model_core.kernels.compiled import inlined_kernel, kernel

HEAD_BYTES, COLUMNS = 2, 4
LARGEST_FIELD = HEAD_BYTES + COLUMNS * BINS_A_BLOCK * 8

_NOT_KEPT = 15


@njit(nogil=True, cache=True)
def take_changed_fields(
    bins: NDArray[np.float64],
    counts: NDArray[np.float64],
    sums: NDArray[np.float64],
    starts: NDArray[np.int64],
    marks: NDArray[np.uint8],
    clock: NDArray[np.int64],
) -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint8], NDArray[np.int64]]:
    """Of Buckets, one by one: places uint16[k, 2] of what is to be written and of what is to be deleted, then
    the k fields and their bounds int64[k + 1].
    """
    b = Buckets(bins, counts, sums, starts, marks, clock)
    to_write, to_delete = _take_changed_places(b)
    out = np.empty(to_write.shape[0] * LARGEST_FIELD, np.uint8)
    bounds = np.zeros(to_write.shape[0] + 1, np.int64)
    pack_fields(b, to_write, out, bounds)
    return to_write, to_delete, out, bounds


@njit(nogil=True, cache=True)
def _take_changed_places(b: Buckets) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """uint16[k, 2]: row and block of what is to be written, and of what is to be deleted; marks it so."""
    written = deleted = 0
    for row in range(b.marks.shape[0]):
        if b.marks[row, -1] & CHANGED:  # no block changes without the sums of its bucket
            for block in range(b.marks.shape[1]):
                if b.marks[row, block] & CHANGED:
                    written += b.marks[row, block] & PRESENT != 0
                    deleted += b.marks[row, block] & PRESENT == 0
    to_write, to_delete = np.empty((written, 2), np.uint16), np.empty((deleted, 2), np.uint16)
    written = deleted = 0
    for row in range(b.marks.shape[0]):
        if not b.marks[row, -1] & CHANGED:
            continue
        for block in range(b.marks.shape[1]):
            mark = b.marks[row, block]
            if mark & CHANGED and mark & PRESENT:
                to_write[written, 0], to_write[written, 1] = row, block
                written += 1
                b.marks[row, block] = (mark | STORED) & ~CHANGED
            elif mark & CHANGED:
                to_delete[deleted, 0], to_delete[deleted, 1] = row, block
                deleted += 1
                b.marks[row, block] = 0
    return to_write, to_delete


@kernel
def pack_fields(
    b: Buckets, places: NDArray[np.uint16], out: NDArray[np.uint8], starts: NDArray[np.int64]
) -> None:
    """The k fields of places uint16[k, 2] to out uint8[k LARGEST_FIELD], bounded by starts int64[k + 1]."""
    end = 0
    for i in range(places.shape[0]):
        row, block = int(places[i, 0]), int(places[i, 1])
        if block == b.marks.shape[1] - 1:
            end = _pack_sums(b, row, out, end)
        else:
            end = _pack_block(b, row, block, out, end)
        starts[i + 1] = end


@kernel
def unpack_fields(
    b: Buckets, places: NDArray[np.uint16], data: NDArray[np.uint8], starts: NDArray[np.int64]
) -> int:
    """Read what pack_fields wrote into empty buckets.  The number of the first damaged field, or -1."""
    for i in range(places.shape[0]):
        row, block, at, end = int(places[i, 0]), int(places[i, 1]), starts[i], starts[i + 1]
        if row >= b.marks.shape[0] or block >= b.marks.shape[1]:
            return i
        if block == b.marks.shape[1] - 1:
            at = _unpack_sums(b, row, data, at, end)
        else:
            at = _unpack_block(b, row, block, data, at, end)
        if at != end:
            return i
    return -1


@inlined_kernel
def _pack_sums(b: Buckets, row: int, out: NDArray[np.uint8], at: int) -> int:
    at = _pack(b.starts[row], 8, out, at)
    for j in range(b.sums.shape[1]):
        at = _pack(_bits_of(b.sums[row, j]), 8, out, at)
    return at


@inlined_kernel
def _unpack_sums(b: Buckets, row: int, data: NDArray[np.uint8], at: int, end: int) -> int:
    if end - at != 8 + 8 * b.sums.shape[1]:
        return -1
    b.starts[row] = _unpack(data, at, 8)
    for j in range(b.sums.shape[1]):
        at += 8
        b.sums[row, j] = _float_of(_unpack(data, at, 8))
    b.marks[row, -1] = PRESENT | STORED
    return at + 8


@inlined_kernel
def _pack_block(b: Buckets, row: int, block: int, out: NDArray[np.uint8], head: int) -> int:
    first = block * BINS_A_BLOCK
    w0, at = _pack_column(b.weights, row, first, 0, out, head + HEAD_BYTES)
    w1, at = _pack_column(b.weights, row, first, 1, out, at)
    n0 = n1 = _NOT_KEPT
    if b.marks[row, block] & WEIGHTED:
        n0, at = _pack_column(b.counts, row, first, 0, out, at)
        n1, at = _pack_column(b.counts, row, first, 1, out, at)
    out[head], out[head + 1] = w0 | w1 << 4, n0 | n1 << 4
    return at


@inlined_kernel
def _unpack_block(b: Buckets, row: int, block: int, data: NDArray[np.uint8], at: int, end: int) -> int:
    if end - at < HEAD_BYTES:
        return -1
    first, weights, counts = block * BINS_A_BLOCK, data[at], data[at + 1]
    at = _unpack_column(b.weights, row, first, 0, weights & 15, data, at + HEAD_BYTES, end)
    at = _unpack_column(b.weights, row, first, 1, weights >> 4, data, at, end)
    b.marks[row, block] = PRESENT | STORED
    if counts != _NOT_KEPT | _NOT_KEPT << 4:
        at = _unpack_column(b.counts, row, first, 0, counts & 15, data, at, end)
        at = _unpack_column(b.counts, row, first, 1, counts >> 4, data, at, end)
        b.marks[row, block] |= WEIGHTED
    return at


@kernel
def _pack_column(
    bins: NDArray[np.float64], row: int, first: int, label: int, out: NDArray[np.uint8], at: int
) -> tuple[int, int]:
    """How many bytes each number takes, and where the next column begins."""
    width = _width(bins, row, first, label)
    for j in range(first, first + BINS_A_BLOCK if width else first):
        number = bins[row, j, label]
        at = _pack(_bits_of(number) if width == 8 else int(number), width, out, at)
    return width, at


@inlined_kernel
def _width(bins: NDArray[np.float64], row: int, first: int, label: int) -> int:
    """0: all are 0; 1, 2, 4: all are unsigned integers of so many bytes; 8: float64."""
    largest = 0.0
    for j in range(first, first + BINS_A_BLOCK):
        number = bins[row, j, label]
        largest = max(largest, number)
        if number >= 4294967296.0 or number != int(number):
            return 8
    if largest == 0.0:
        return 0
    return 1 if largest < 256.0 else 2 if largest < 65536.0 else 4


@kernel
def _unpack_column(
    bins: NDArray[np.float64],
    row: int,
    first: int,
    label: int,
    width: int,
    data: NDArray[np.uint8],
    at: int,
    end: int,
) -> int:
    """Where the next column begins, or -1: this one, or one before it, is damaged."""
    if at < 0 or at + width * BINS_A_BLOCK > end or width not in (0, 1, 2, 4, 8):
        return -1
    for j in range(first, first + BINS_A_BLOCK if width else first):
        bits = _unpack(data, at, width)
        bins[row, j, label] = _float_of(bits) if width == 8 else float(bits)
        at += width
    return at


@inlined_kernel
def _pack(bits: int, width: int, out: NDArray[np.uint8], at: int) -> int:
    for k in range(width):
        out[at + k] = bits >> 8 * k & 255
    return at + width


@inlined_kernel
def _unpack(data: NDArray[np.uint8], at: int, width: int) -> int:
    bits = 0
    for k in range(width):
        bits |= int(data[at + k]) << 8 * k
    return bits


@inlined_kernel
def _bits_of(number: float) -> int:
    return int(np.float64(number).view(np.int64))


@inlined_kernel
def _float_of(bits: int) -> float:
    return float(np.int64(bits).view(np.float64))
