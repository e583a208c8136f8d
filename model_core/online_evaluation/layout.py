"""Buckets as the fields of a hash, so that a commit writes only what changed.  All numbers are little-endian.

    name                        value
    u16 row | u16 block         a block of 32 bins: u8 kind | 64 weights | 64 counts where they are kept
    u16 row | u16 blocks        the bucket's start, i64, and its 8 sums, f64
    "clock"                     u8 version | u32 bins | u32 rows | 4 x i64 clock

The numbers of a block alternate between non-clicks and clicks, bin by bin.  The low four bits of `kind` say
how many bytes a weight takes (1, 2, 4: an unsigned integer; 8: a float64), the high four the same of a count,
or 0 where every weight was 1.  A field that is missing is all zeros; a bucket without sums is empty.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.errors import FormatError
from model_core.online_evaluation.buckets import (
    BINS_A_BLOCK,
    CHANGED,
    PRESENT,
    STORED,
    WEIGHTED,
    Buckets,
)

VERSION = 1
CLOCK_FIELD = b"clock"

_NAME = struct.Struct("<HH")
_SUMS = struct.Struct("<q8d")
_CLOCK = struct.Struct("<BII4q")
_NUMBERS_A_BLOCK = 2 * BINS_A_BLOCK
_TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<f8"),
}


class Changes(NamedTuple):
    """What to store: fields to write, and fields to delete."""

    written: dict[bytes, bytes]
    deleted: list[bytes]


def take_changes(b: Buckets) -> Changes:
    """What changed since it was last taken; from then on it counts as stored."""
    changed = b.marks & CHANGED != 0
    present = b.marks & PRESENT != 0
    written = _packed(b, changed & present)
    if changed.any():
        written[CLOCK_FIELD] = _pack_clock(b)
    rows, blocks = np.nonzero(changed & ~present)
    deleted = [_NAME.pack(*name) for name in zip(rows.tolist(), blocks.tolist(), strict=True)]
    b.marks[changed] &= PRESENT | WEIGHTED
    b.marks[changed & present] |= STORED
    return Changes(written, deleted)


def all_fields(b: Buckets) -> dict[bytes, bytes]:
    """Everything there is, as fields; changes nothing."""
    return {CLOCK_FIELD: _pack_clock(b), **_packed(b, b.marks & PRESENT != 0)}


def restore(b: Buckets, fields: Mapping[bytes, bytes]) -> None:
    """Fill empty buckets from the fields that all_fields or a series of take_changes wrote.

    FormatError where they are not for as many bins and rows, or no such fields.
    """
    if CLOCK_FIELD not in fields:
        if fields:
            raise FormatError("an evaluation without its clock")
        return
    _unpack_clock(b, fields[CLOCK_FIELD])
    for name, value in fields.items():
        if name != CLOCK_FIELD:
            _unpack_field(b, name, value)


def _packed(b: Buckets, chosen: NDArray[np.bool_]) -> dict[bytes, bytes]:
    """The fields of the blocks and sums that `chosen` bool[b, blocks + 1] marks."""
    rows, blocks = np.nonzero(chosen[:, :-1])
    fields = {
        _NAME.pack(row, block): value
        for row, block, value in zip(
            rows.tolist(), blocks.tolist(), _pack_blocks(b, rows, blocks), strict=True
        )
    }
    last = b.marks.shape[1] - 1
    for row in np.flatnonzero(chosen[:, -1]).tolist():
        fields[_NAME.pack(row, last)] = _SUMS.pack(int(b.starts[row]), *b.sums[row].tolist())
    return fields


def _pack_blocks(b: Buckets, rows: NDArray[np.int64], blocks: NDArray[np.int64]) -> Iterator[bytes]:
    weighted = b.marks[rows, blocks] & WEIGHTED != 0
    weights = _narrowest(_by_block(b.weights)[rows, blocks])
    counts = iter(_narrowest(_by_block(b.counts)[rows[weighted], blocks[weighted]]))
    for (width, data), with_counts in zip(weights, weighted.tolist(), strict=True):
        counts_width, counts_data = next(counts) if with_counts else (0, b"")
        yield bytes((width | counts_width << 4,)) + data + counts_data


def _by_block(bins: NDArray[np.float64]) -> NDArray[np.float64]:
    return bins.reshape(bins.shape[0], -1, _NUMBERS_A_BLOCK)


def _narrowest(numbers: NDArray[np.float64]) -> list[tuple[int, bytes]]:
    """For each row of float64[k, 64]: the bytes a number that hold all of it exactly, and it in so many."""
    largest = numbers.max(axis=1, initial=0.0)
    width = np.select([largest < 2.0**8, largest < 2.0**16, largest < 2.0**32], [1, 2, 4], 8)
    width[(numbers != np.floor(numbers)).any(axis=1)] = 8
    packed: list[tuple[int, bytes]] = [(0, b"")] * len(numbers)
    for bytes_each, dtype in _TYPES.items():
        those = np.flatnonzero(width == bytes_each)
        data, size = numbers[those].astype(dtype).tobytes(), _NUMBERS_A_BLOCK * bytes_each
        for i, at in enumerate(those.tolist()):
            packed[at] = bytes_each, data[i * size : (i + 1) * size]
    return packed


def _pack_clock(b: Buckets) -> bytes:
    return _CLOCK.pack(VERSION, b.weights.shape[1], b.weights.shape[0], *b.clock.tolist())


def _unpack_clock(b: Buckets, value: bytes) -> None:
    if len(value) != _CLOCK.size or value[0] != VERSION:
        raise FormatError(f"not an evaluation of version {VERSION}")
    _, bins, rows, *clock = _CLOCK.unpack(value)
    if (rows, bins) != b.weights.shape[:2]:
        raise FormatError(f"an evaluation of {rows} buckets of {bins} bins, not of {b.weights.shape[:2]}")
    b.clock[:] = clock


def _unpack_field(b: Buckets, name: bytes, value: bytes) -> None:
    row, block = _NAME.unpack(name) if len(name) == _NAME.size else (0xFFFF, 0xFFFF)
    if row >= b.marks.shape[0] or block >= b.marks.shape[1]:
        raise FormatError(f"an evaluation has no field {name!r}")
    b.marks[row, block] = PRESENT | STORED
    if block == b.marks.shape[1] - 1:
        if len(value) != _SUMS.size:
            raise FormatError(f"the sums of bucket {row} take {_SUMS.size} bytes, not {len(value)}")
        b.starts[row], *sums = _SUMS.unpack(value)
        b.sums[row] = sums
        return
    weights, counts = _unpack_block(value, f"block {block} of bucket {row}")
    _by_block(b.weights)[row, block] = weights
    if counts is not None:
        _by_block(b.counts)[row, block] = counts
        b.marks[row, block] |= WEIGHTED


def _unpack_block(value: bytes, what: str) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    width, counts_width = (value[0] & 15, value[0] >> 4) if value else (0, 0)
    if width not in _TYPES or counts_width not in (0, *_TYPES):
        raise FormatError(f"{what} is of an unknown kind")
    middle = 1 + _NUMBERS_A_BLOCK * width
    if len(value) != middle + _NUMBERS_A_BLOCK * counts_width:
        raise FormatError(f"{what} is truncated or too long")
    weights = np.frombuffer(value[1:middle], _TYPES[width])
    counts = np.frombuffer(value[middle:], _TYPES[counts_width]) if counts_width else None
    return weights, counts
