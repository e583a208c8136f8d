"""Buckets as the fields of a hash, so that a commit writes only what changed.  All numbers are little-endian.

    name                      value
    u16 row | u16 block       16 bins: u16 widths, then the columns
    u16 row | u16 blocks      the bucket's start, i64, and its 10 sums, f64
    "clock"                   u8 version | u32 bins | u32 rows | 4 x i64 clock

take_changes gives names and values as the strings of MessagePack, which the server's Lua takes apart in C.

The columns of a block are the weights of non-clicks, those of clicks, and the counts of both where they are
kept.  `widths` has four bits for each, the lowest for the first: how many bytes a number takes (0: all of
them are 0; 1, 2, 4: unsigned integers; 8: float64), or 15 for counts that are not kept.  A block of zeros is
missing.  Version 1 had 8 sums, without the squared weights: these are taken for those of equal weights.
"""

import struct
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.errors import FormatError
from model_core.evaluation.buckets import (
    BINS_A_BLOCK,
    CHANGED,
    PRESENT,
    STORED,
    WEIGHTED,
    Buckets,
)
from model_core.kernels.compiled import inlined_kernel, kernel

VERSION = 2
_READABLE = (1, 2)
_SUMS_OF_VERSION_1 = 8
CLOCK_FIELD = b"clock"

_NAME_BYTES = 4
_CLOCK = struct.Struct("<BII4q")
_HEAD_BYTES, _COLUMNS = 2, 4
_LARGEST_VALUE = _HEAD_BYTES + _COLUMNS * BINS_A_BLOCK * 8

# MessagePack: a name of up to 31 bytes, and its prefix; a value, whose length is two bytes.
_NAME_TAG, _VALUE_TAG = 0xA0 | 1 + _NAME_BYTES, 0xDA
_VALUE_HEAD_BYTES = 3
_NAME_AT = 2
_PACKED_NAME_BYTES = _NAME_AT + _NAME_BYTES
_VALUE_AT = _PACKED_NAME_BYTES + _VALUE_HEAD_BYTES
_LARGEST_FIELD = _VALUE_AT + _LARGEST_VALUE
_ANY_STRING = struct.Struct(">BI")
_ANY_TAG = 0xDB

_NOT_KEPT = 15


class Changes(NamedTuple):
    """Strings of MessagePack, one after the other: of the fields to write, name, value, name, ...; of those
    to delete, the names.
    """

    written: bytes
    deleted: bytes


def packed_strings(*strings: bytes) -> bytes:
    """As Changes has them."""
    return b"".join([_ANY_STRING.pack(_ANY_TAG, len(string)) + string for string in strings])


def take_changes(b: Buckets, prefix: bytes, rows: int | None = None) -> Changes:
    """Take the changes since the last call; from then on they count as stored.

    prefix: one byte, which comes before each name.
    rows: the number of rows that the clock names, if there are further ones (also below).
    """
    written, deleted = _take_changed_fields(*b, prefix[0])
    clock = packed_strings(prefix + CLOCK_FIELD, _pack_clock(b, rows)) if written.size else b""
    return Changes(written.tobytes() + clock, deleted.tobytes())


def all_fields(b: Buckets, rows: int | None = None) -> dict[bytes, bytes]:
    """Everything there is, as fields; changes nothing."""
    places = np.argwhere(b.marks & PRESENT).astype(np.uint16)
    out, bounds = np.empty(len(places) * _LARGEST_FIELD, np.uint8), np.zeros(len(places) + 1, np.int64)
    _pack_fields(b, places, 0, out, bounds)
    data = out[: bounds[-1]].tobytes()
    fields = {CLOCK_FIELD: _pack_clock(b, rows)}
    for start, stop in pairwise(bounds.tolist()):
        fields[data[start + _NAME_AT : start + _PACKED_NAME_BYTES]] = data[start + _VALUE_AT : stop]
    return fields


def restore(b: Buckets, fields: Mapping[bytes, bytes], rows: int | None = None) -> None:
    """Fill empty buckets from the fields that all_fields or a series of take_changes wrote.

    FormatError where they are not for as many bins and rows, or no such fields.
    """
    if not fields:
        return
    _unpack_clock(b, fields.get(CLOCK_FIELD, b""), rows)
    names = [name for name in fields if name != CLOCK_FIELD]
    if any(len(name) != _NAME_BYTES for name in names):
        raise FormatError("an evaluation with foreign fields")
    values = [fields[name] for name in names]
    places = np.frombuffer(b"".join(names), "<u2").reshape(-1, 2).astype(np.uint16)
    starts = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
    damaged = _unpack_fields(b, places, np.frombuffer(b"".join(values), np.uint8), starts)
    if damaged >= 0:
        row, block = places[damaged].tolist()
        raise FormatError(
            f"an evaluation whose field for block {block} of bucket {row} is foreign or damaged"
        )


def _pack_clock(b: Buckets, rows: int | None) -> bytes:
    return _CLOCK.pack(VERSION, b.weights.shape[1], rows or b.weights.shape[0], *b.clock.tolist())


def _unpack_clock(b: Buckets, value: bytes, expected_rows: int | None) -> None:
    if len(value) != _CLOCK.size or value[0] not in _READABLE:
        raise FormatError(f"not an evaluation of version {VERSION} or before")
    _, bins, rows, *clock = _CLOCK.unpack(value)
    expected = expected_rows or b.weights.shape[0], b.weights.shape[1]
    if (rows, bins) != expected:
        raise FormatError(f"an evaluation of {rows} buckets of {bins} bins, not of {expected}")
    b.clock[:] = clock


@njit(nogil=True, cache=True)
def _take_changed_fields(
    bins: NDArray[np.float64],
    counts: NDArray[np.float64],
    sums: NDArray[np.float64],
    starts: NDArray[np.int64],
    marks: NDArray[np.uint8],
    clock: NDArray[np.int64],
    prefix: int,
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return what Changes has, without the clock.  Takes the fields of Buckets one by one."""
    b = Buckets(bins, counts, sums, starts, marks, clock)
    to_write, to_delete = _take_changed_places(b)
    written = np.empty(to_write.shape[0] * _LARGEST_FIELD, np.uint8)
    end = _pack_fields(b, to_write, prefix, written, np.empty(to_write.shape[0] + 1, np.int64))
    deleted = np.empty(to_delete.shape[0] * _PACKED_NAME_BYTES, np.uint8)
    for i in range(to_delete.shape[0]):
        _pack_name(int(to_delete[i, 0]), int(to_delete[i, 1]), prefix, deleted, i * _PACKED_NAME_BYTES)
    return written[:end], deleted


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
def _pack_fields(
    b: Buckets, places: NDArray[np.uint16], prefix: int, out: NDArray[np.uint8], bounds: NDArray[np.int64]
) -> int:
    """Write the fields of places uint16[k, 2] as packed strings to out uint8[k * _LARGEST_FIELD].

    bounds int64[k + 1]: where they begin and end, filled here.  Returns the end of the last.
    """
    bounds[0] = end = 0
    for i in range(places.shape[0]):
        row, block = int(places[i, 0]), int(places[i, 1])
        at = _pack_name(row, block, prefix, out, end)
        if block == b.marks.shape[1] - 1:
            end = _pack_sums(b, row, out, at + _VALUE_HEAD_BYTES)
        else:
            end = _pack_block(b, row, block, out, at + _VALUE_HEAD_BYTES)
        size = end - at - _VALUE_HEAD_BYTES
        out[at], out[at + 1], out[at + 2] = _VALUE_TAG, size >> 8, size & 255
        bounds[i + 1] = end
    return end


@inlined_kernel
def _pack_name(row: int, block: int, prefix: int, out: NDArray[np.uint8], at: int) -> int:
    out[at], out[at + 1] = _NAME_TAG, prefix
    return _write_bytes(block, 2, out, _write_bytes(row, 2, out, at + 2))


@kernel
def _unpack_fields(
    b: Buckets, places: NDArray[np.uint16], data: NDArray[np.uint8], starts: NDArray[np.int64]
) -> int:
    """Read the values of places, of these bounds, into empty buckets.  The first damaged one, or -1."""
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
    at = _write_bytes(b.starts[row], 8, out, at)
    for j in range(b.sums.shape[1]):
        at = _write_bytes(_bits_of(b.sums[row, j]), 8, out, at)
    return at


@inlined_kernel
def _unpack_sums(b: Buckets, row: int, data: NDArray[np.uint8], at: int, end: int) -> int:
    stored = (end - at) // 8 - 1
    if end - at != 8 + 8 * stored or stored not in (b.sums.shape[1], _SUMS_OF_VERSION_1):
        return -1
    b.starts[row] = _read_bytes(data, at, 8)
    for j in range(stored):
        at += 8
        b.sums[row, j] = _float_of(_read_bytes(data, at, 8))
    if stored == _SUMS_OF_VERSION_1:
        _estimate_squares(b, row)
    b.marks[row, -1] = PRESENT | STORED
    return at + 8


@inlined_kernel
def _estimate_squares(b: Buckets, row: int) -> None:
    weights = (b.sums[row, 0] - b.sums[row, 1], b.sums[row, 1])
    numbers = (b.sums[row, 4] - b.sums[row, 5], b.sums[row, 5])
    for label in range(2):
        if numbers[label] > 0.0:
            b.sums[row, 8 + label] = weights[label] ** 2 / numbers[label]


@inlined_kernel
def _pack_block(b: Buckets, row: int, block: int, out: NDArray[np.uint8], head: int) -> int:
    first = block * BINS_A_BLOCK
    w0, at = _pack_column(b.weights, row, first, 0, out, head + _HEAD_BYTES)
    w1, at = _pack_column(b.weights, row, first, 1, out, at)
    n0 = n1 = _NOT_KEPT
    if b.marks[row, block] & WEIGHTED:
        n0, at = _pack_column(b.counts, row, first, 0, out, at)
        n1, at = _pack_column(b.counts, row, first, 1, out, at)
    out[head], out[head + 1] = w0 | w1 << 4, n0 | n1 << 4
    return at


@inlined_kernel
def _unpack_block(b: Buckets, row: int, block: int, data: NDArray[np.uint8], at: int, end: int) -> int:
    if end - at < _HEAD_BYTES:
        return -1
    first, weights, counts = block * BINS_A_BLOCK, data[at], data[at + 1]
    at = _unpack_column(b.weights, row, first, 0, weights & 15, data, at + _HEAD_BYTES, end)
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
    """Return the bytes that each number takes, and the start of the next column."""
    width = _width(bins, row, first, label)
    for j in range(first, first + BINS_A_BLOCK if width else first):
        number = bins[row, j, label]
        at = _write_bytes(_bits_of(number) if width == 8 else int(number), width, out, at)
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
    """Return the start of the next column, or -1: this one, or one before it, is damaged."""
    if at < 0 or at + width * BINS_A_BLOCK > end or width not in (0, 1, 2, 4, 8):
        return -1
    for j in range(first, first + BINS_A_BLOCK if width else first):
        bits = _read_bytes(data, at, width)
        bins[row, j, label] = _float_of(bits) if width == 8 else float(bits)
        at += width
    return at


@inlined_kernel
def _write_bytes(bits: int, width: int, out: NDArray[np.uint8], at: int) -> int:
    for k in range(width):
        out[at + k] = bits >> 8 * k & 255
    return at + width


@inlined_kernel
def _read_bytes(data: NDArray[np.uint8], at: int, width: int) -> int:
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
