"""Examples as bytes: the kernels that pack and unpack many records in one call.

One record, little-endian, self-delimiting:

    u8 version = 1 | u8 flags | u32 k
    [f64 label] [f64 weight] [i64 event time, ms] [16 bytes event id]
    [16 bytes prediction id, f64 served margin]
    k x u32 hash [k x f64 value]

flags: 1 the label is 1; 2 a weight other than 1; 4 values other than 1; 8 an event time; 16 an event id;
32 it was served: the label is of a prediction that was logged, under that id and with that margin;
64 (without 1) the label is between 0 and 1, neither of them.
What a flag leaves out takes its default: label 0, weight 1, every value 1, no time, no id, not served.
"""

import struct
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

VERSION = 1
LABEL, WEIGHT, VALUES, EVENT_TIME, EVENT_ID, SERVED, SOFT_LABEL = 1, 2, 4, 8, 16, 32, 64
_KNOWN_FLAGS = LABEL | WEIGHT | VALUES | EVENT_TIME | EVENT_ID | SERVED | SOFT_LABEL
HEADER_BYTES = 6
ID_BYTES = 16
NO_TIME = -1

_TRUNCATED, _WRONG_VERSION, _UNKNOWN_FLAGS, _BAD_LABEL = -1, -2, -3, -4


class Columns(NamedTuple):
    """The fields of r records with k features in all, as the arrays of an ExampleBatch.

    event_ids uint8[r, 16], has_event_id bool[r]: two empty arrays where no record has one.
    prediction_ids uint8[r, 16], is_served bool[r], served_margins float64[r]: empty where none was served.
    """

    row_ptr: NDArray[np.int64]
    hashes: NDArray[np.uint32]
    values: NDArray[np.float64]
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    event_times: NDArray[np.int64]
    event_ids: NDArray[np.uint8]
    has_event_id: NDArray[np.bool_]
    prediction_ids: NDArray[np.uint8]
    is_served: NDArray[np.bool_]
    served_margins: NDArray[np.float64]


@njit(cache=True)
def _record_bytes(flags: int, k: int) -> int:
    size = HEADER_BYTES + (12 if flags & VALUES else 4) * k
    size += (8 if flags & SOFT_LABEL else 0) + (8 if flags & WEIGHT else 0)
    size += 8 if flags & EVENT_TIME else 0
    size += ID_BYTES if flags & EVENT_ID else 0
    return size + (ID_BYTES + 8 if flags & SERVED else 0)


@njit(cache=True)
def _measure(buffer: NDArray[np.uint8], start: int) -> int:
    """Length in bytes of the record at `start`, or a negative problem code."""
    if buffer.size - start < HEADER_BYTES:
        return _TRUNCATED
    if buffer[start] != VERSION:
        return _WRONG_VERSION
    flags = int(buffer[start + 1])
    if flags & ~_KNOWN_FLAGS:
        return _UNKNOWN_FLAGS
    size = _record_bytes(flags, int(_read_u32(buffer, start + 2)))
    if size > buffer.size - start:
        return _TRUNCATED
    if flags & SOFT_LABEL:
        label = _read_f64(buffer, start + HEADER_BYTES)
        if flags & LABEL or not 0.0 < label < 1.0:
            return _BAD_LABEL
    return size


@njit(nogil=True, cache=True)
def find_records(buffer: NDArray[np.uint8]) -> tuple[NDArray[np.int64], int]:
    """Starts int64[r+1] of the records that fill `buffer`; 0, or the problem with a record at the last."""
    count, start, problem = 0, 0, 0
    while start < buffer.size and problem == 0:
        size = _measure(buffer, start)
        problem = min(size, 0)
        start += max(size, 0)
        count += 1
    count -= problem < 0
    starts = np.zeros(count + 1, np.int64)
    for i in range(count):
        starts[i + 1] = starts[i] + _measure(buffer, starts[i])
    return starts, problem


def explain(problem: int, record: bytes) -> str:
    """Describe the problem with `record`, for a code of find_records."""
    if problem == _WRONG_VERSION:
        return f"has version {record[0]}, this code reads version {VERSION}"
    if problem == _UNKNOWN_FLAGS:
        return f"has unknown flags {record[1] & ~_KNOWN_FLAGS:#04x}"
    if len(record) < HEADER_BYTES:
        return f"is truncated: {len(record)} bytes, a header alone takes {HEADER_BYTES}"
    size = _record_bytes(record[1], int.from_bytes(record[2:6], "little"))
    if problem == _BAD_LABEL:
        (label,) = struct.unpack_from("<d", record, HEADER_BYTES)
        return f"has the flags {record[1]:#04x} and the label {label}, which is not between 0 and 1"
    return f"is truncated: its header announces {size} bytes, {len(record)} are there"


@njit(nogil=True, cache=True)
def unpack(buffer: NDArray[np.uint8], starts: NDArray[np.int64]) -> Columns:
    """The columns of checked records."""
    r = starts.size - 1
    row_ptr = np.zeros(r + 1, np.int64)
    seen = 0
    for i in range(r):
        seen |= buffer[starts[i] + 1]
        row_ptr[i + 1] = row_ptr[i] + _read_u32(buffer, starts[i] + 2)
    k = row_ptr[r]
    columns = Columns(
        row_ptr,
        np.empty(k, np.uint32),
        np.ones(k if seen & VALUES else 0, np.float64),
        np.empty(r, np.float64),
        np.ones(r if seen & WEIGHT else 0, np.float64),
        np.full(r if seen & EVENT_TIME else 0, NO_TIME, np.int64),
        np.zeros((r if seen & EVENT_ID else 0, ID_BYTES), np.uint8),
        np.zeros(r if seen & EVENT_ID else 0, np.bool_),
        np.zeros((r if seen & SERVED else 0, ID_BYTES), np.uint8),
        np.zeros(r if seen & SERVED else 0, np.bool_),
        np.full(r if seen & SERVED else 0, np.nan, np.float64),
    )
    for i in range(r):
        _unpack_one(buffer, starts[i], i, columns)
    return columns


@njit(cache=True)
def _unpack_one(buffer: NDArray[np.uint8], start: int, i: int, columns: Columns) -> None:
    flags = buffer[start + 1]
    at = start + HEADER_BYTES
    columns.labels[i] = 1.0 if flags & LABEL else 0.0
    if flags & SOFT_LABEL:
        columns.labels[i] = _read_f64(buffer, at)
        at += 8
    if flags & WEIGHT:
        columns.weights[i] = _read_f64(buffer, at)
        at += 8
    if flags & EVENT_TIME:
        columns.event_times[i] = np.uint64(_read_u64(buffer, at)).view(np.int64)
        at += 8
    if flags & EVENT_ID:
        columns.has_event_id[i] = True
        columns.event_ids[i] = buffer[at : at + ID_BYTES]
        at += ID_BYTES
    if flags & SERVED:
        columns.is_served[i] = True
        columns.prediction_ids[i] = buffer[at : at + ID_BYTES]
        columns.served_margins[i] = _read_f64(buffer, at + ID_BYTES)
        at += ID_BYTES + 8
    first, stop = columns.row_ptr[i], columns.row_ptr[i + 1]
    for j in range(first, stop):
        columns.hashes[j] = _read_u32(buffer, at + 4 * (j - first))
    at += 4 * (stop - first)
    if flags & VALUES:
        for j in range(first, stop):
            columns.values[j] = _read_f64(buffer, at + 8 * (j - first))


@njit(cache=True)
def _flags(columns: Columns, i: int) -> int:
    flags = LABEL if columns.labels[i] == 1.0 else 0
    if 0.0 < columns.labels[i] < 1.0:
        flags = SOFT_LABEL
    if columns.weights.size and columns.weights[i] != 1.0:
        flags |= WEIGHT
    if columns.event_times.size and columns.event_times[i] != NO_TIME:
        flags |= EVENT_TIME
    if columns.has_event_id.size and columns.has_event_id[i]:
        flags |= EVENT_ID
    if columns.is_served.size and columns.is_served[i]:
        flags |= SERVED
    if columns.values.size:
        for j in range(columns.row_ptr[i], columns.row_ptr[i + 1]):
            if columns.values[j] != 1.0:
                return flags | VALUES
    return flags


@njit(nogil=True, cache=True)
def pack(columns: Columns) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All records in one buffer uint8[], and where each starts int64[r+1]."""
    r = columns.labels.size
    starts = np.zeros(r + 1, np.int64)
    for i in range(r):
        k = columns.row_ptr[i + 1] - columns.row_ptr[i]
        starts[i + 1] = starts[i] + _record_bytes(_flags(columns, i), k)
    buffer = np.empty(starts[r], np.uint8)
    for i in range(r):
        _pack_one(buffer, starts[i], i, columns)
    return buffer, starts


@njit(cache=True)
def _pack_one(buffer: NDArray[np.uint8], start: int, i: int, columns: Columns) -> None:
    flags = _flags(columns, i)
    first, stop = columns.row_ptr[i], columns.row_ptr[i + 1]
    buffer[start] = VERSION
    buffer[start + 1] = flags
    _write_u32(buffer, start + 2, np.uint32(stop - first))
    at = start + HEADER_BYTES
    if flags & SOFT_LABEL:
        _write_u64(buffer, at, np.float64(columns.labels[i]).view(np.uint64))
        at += 8
    if flags & WEIGHT:
        _write_u64(buffer, at, np.float64(columns.weights[i]).view(np.uint64))
        at += 8
    if flags & EVENT_TIME:
        _write_u64(buffer, at, np.int64(columns.event_times[i]).view(np.uint64))
        at += 8
    if flags & EVENT_ID:
        buffer[at : at + ID_BYTES] = columns.event_ids[i]
        at += ID_BYTES
    if flags & SERVED:
        buffer[at : at + ID_BYTES] = columns.prediction_ids[i]
        _write_u64(buffer, at + ID_BYTES, np.float64(columns.served_margins[i]).view(np.uint64))
        at += ID_BYTES + 8
    for j in range(first, stop):
        _write_u32(buffer, at + 4 * (j - first), columns.hashes[j])
    at += 4 * (stop - first)
    if flags & VALUES:
        for j in range(first, stop):
            _write_u64(buffer, at + 8 * (j - first), np.float64(columns.values[j]).view(np.uint64))


@njit(cache=True)
def _read_u32(buffer: NDArray[np.uint8], at: int) -> np.uint32:
    word = np.uint32(0)
    for byte in range(4):
        word |= np.uint32(buffer[at + byte]) << np.uint32(8 * byte)
    return word


@njit(cache=True)
def _read_u64(buffer: NDArray[np.uint8], at: int) -> np.uint64:
    word = np.uint64(0)
    for byte in range(8):
        word |= np.uint64(buffer[at + byte]) << np.uint64(8 * byte)
    return word


@njit(cache=True)
def _read_f64(buffer: NDArray[np.uint8], at: int) -> np.float64:
    return np.uint64(_read_u64(buffer, at)).view(np.float64)


@njit(cache=True)
def _write_u32(buffer: NDArray[np.uint8], at: int, word: np.uint32) -> None:
    for byte in range(4):
        buffer[at + byte] = np.uint8((word >> np.uint32(8 * byte)) & np.uint32(0xFF))


@njit(cache=True)
def _write_u64(buffer: NDArray[np.uint8], at: int, word: np.uint64) -> None:
    for byte in range(8):
        buffer[at + byte] = np.uint8((word >> np.uint64(8 * byte)) & np.uint64(0xFF))
