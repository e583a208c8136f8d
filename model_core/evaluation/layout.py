"""Buckets as the fields of a hash, so that a commit writes only what changed.  All numbers are little-endian.

    name                      value
    u16 row | u16 block       16 bins: u16 widths, then the columns
    u16 row | u16 blocks      the bucket's start, i64, and its 8 sums, f64
    "clock"                   u8 version | u32 bins | u32 rows | 4 x i64 clock

The columns of a block are the weights of non-clicks, those of clicks, and the counts of both where they are
kept.  `widths` has four bits for each, the lowest for the first: how many bytes a number takes (0: all of
them are 0; 1, 2, 4: unsigned integers; 8: float64), or 15 for counts that are not kept.  A block of zeros is
missing.
"""

import struct
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.errors import FormatError
from model_core.evaluation.buckets import PRESENT, Buckets
from model_core.evaluation.packing import (
    LARGEST_FIELD,
    pack_fields,
    take_changed_fields,
    unpack_fields,
)

VERSION = 1
CLOCK_FIELD = b"clock"

_NAME_BYTES = 4
_CLOCK = struct.Struct("<BII4q")


class Changes(NamedTuple):
    """What to store: fields to write, and fields to delete."""

    written: dict[bytes, bytes]
    deleted: list[bytes]


def take_changes(b: Buckets) -> Changes:
    """What changed since it was last taken; from then on it counts as stored."""
    to_write, to_delete, data, bounds = take_changed_fields(*b)
    written = _fields(to_write, data, bounds)
    if written:
        written[CLOCK_FIELD] = _pack_clock(b)
    return Changes(written, _names(to_delete))


def all_fields(b: Buckets) -> dict[bytes, bytes]:
    """Everything there is, as fields; changes nothing."""
    return {CLOCK_FIELD: _pack_clock(b), **_pack(b, np.argwhere(b.marks & PRESENT).astype(np.uint16))}


def restore(b: Buckets, fields: Mapping[bytes, bytes]) -> None:
    """Fill empty buckets from the fields that all_fields or a series of take_changes wrote.

    FormatError where they are not for as many bins and rows, or no such fields.
    """
    if not fields:
        return
    _unpack_clock(b, fields.get(CLOCK_FIELD, b""))
    names = [name for name in fields if name != CLOCK_FIELD]
    if any(len(name) != _NAME_BYTES for name in names):
        raise FormatError("an evaluation with foreign fields")
    values = [fields[name] for name in names]
    places = np.frombuffer(b"".join(names), "<u2").reshape(-1, 2).astype(np.uint16)
    starts = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
    damaged = unpack_fields(b, places, np.frombuffer(b"".join(values), np.uint8), starts)
    if damaged >= 0:
        row, block = places[damaged].tolist()
        raise FormatError(
            f"an evaluation whose field for block {block} of bucket {row} is foreign or damaged"
        )


def _names(places: NDArray[np.uint16]) -> list[bytes]:
    joined = places.astype("<u2").tobytes()
    return [joined[i : i + _NAME_BYTES] for i in range(0, len(joined), _NAME_BYTES)]


def _pack(b: Buckets, places: NDArray[np.uint16]) -> dict[bytes, bytes]:
    out, starts = np.empty(len(places) * LARGEST_FIELD, np.uint8), np.zeros(len(places) + 1, np.int64)
    pack_fields(b, places, out, starts)
    return _fields(places, out, starts)


def _fields(
    places: NDArray[np.uint16], packed: NDArray[np.uint8], starts: NDArray[np.int64]
) -> dict[bytes, bytes]:
    bounds = starts.tolist()
    data = packed[: bounds[-1]].tobytes()
    return {
        name: data[start:stop] for name, (start, stop) in zip(_names(places), pairwise(bounds), strict=True)
    }


def _pack_clock(b: Buckets) -> bytes:
    return _CLOCK.pack(VERSION, b.weights.shape[1], b.weights.shape[0], *b.clock.tolist())


def _unpack_clock(b: Buckets, value: bytes) -> None:
    if len(value) != _CLOCK.size or value[0] != VERSION:
        raise FormatError(f"not an evaluation of version {VERSION}")
    _, bins, rows, *clock = _CLOCK.unpack(value)
    if (rows, bins) != b.weights.shape[:2]:
        raise FormatError(f"an evaluation of {rows} buckets of {bins} bins, not of {b.weights.shape[:2]}")
    b.clock[:] = clock
