"""Examples: what the model predicts for and learns from, many at a time."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from model_core.errors import FormatError
from model_core.examples import records as example_records
from model_core.examples.records import ID_BYTES, NO_TIME, Columns

Number = TypeVar("Number", np.float64, np.int64)

NO_FLOATS: NDArray[np.float64] = np.empty(0, np.float64)
NO_INTEGERS: NDArray[np.int64] = np.empty(0, np.int64)


class Ids(Sequence[bytes]):
    """Ids of 16 bytes, b"" for none: `rows` uint8[r, 16], and `present` bool[r]."""

    __slots__ = ("present", "rows")

    def __init__(self, rows: NDArray[np.uint8], present: NDArray[np.bool_] | None = None) -> None:
        self.rows = rows
        self.present = np.ones(len(rows), np.bool_) if present is None else present

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> "Ids": ...
    def __getitem__(self, index: int | slice) -> "bytes | Ids":
        if isinstance(index, slice):
            return Ids(self.rows[index], self.present[index])
        return bytes(self.rows[index].tobytes()) if self.present[index] else b""


class Packed(NamedTuple):
    """r records one after another, and where each begins, int64[r+1] with the end of the last."""

    data: bytes
    starts: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ExampleBatch:
    """r examples with k features in all, in the order of the log (one example, one round).

    row_ptr int64[r+1]: the features of example i are row_ptr[i] .. row_ptr[i+1].
    hashes uint32[k]: the full 32 bits; a model keeps its low `bits`.  The bias is not among them.
    values float64[k], or empty where all are 1.
    labels float64[r], 1.0 for a click, 0.0 for none (and for examples that are only predicted), or between.
    weights float64[r] >= 0, or empty where all are 1.
    event_times int64[r] in milliseconds since the epoch, -1 for none, or empty.
    event_ids: 16 bytes each, b"" for none, or None where no example has one.
    prediction_ids: of the logged predictions that these examples label, likewise.
    served_margins float64[r]: what was predicted when they were served, NaN for none, or empty.
    """

    row_ptr: NDArray[np.int64]
    hashes: NDArray[np.uint32]
    values: NDArray[np.float64]
    labels: NDArray[np.float64]
    weights: NDArray[np.float64] = field(default_factory=lambda: NO_FLOATS)
    event_times: NDArray[np.int64] = field(default_factory=lambda: NO_INTEGERS)
    event_ids: Sequence[bytes] | None = None
    prediction_ids: Sequence[bytes] | None = None
    served_margins: NDArray[np.float64] = field(default_factory=lambda: NO_FLOATS)

    def __len__(self) -> int:
        return self.labels.size

    @classmethod
    def from_encoded(
        cls,
        encoded: Sequence[tuple[list[int], list[float] | None]],
        labels: Sequence[float] | None = None,
        weights: Sequence[float] | None = None,
        event_times: Sequence[int | None] | None = None,
        event_ids: Sequence[bytes | None] | None = None,
    ) -> "ExampleBatch":
        """A batch of (hashes, values) pairs as FeatureEncoder makes them; values None means all 1."""
        row_ptr = np.fromiter(accumulate((len(e[0]) for e in encoded), initial=0), np.int64, len(encoded) + 1)
        return cls(
            row_ptr,
            _joined_hashes(encoded),
            _joined_values(encoded),
            np.zeros(len(encoded)) if labels is None else np.array(labels, np.float64),
            NO_FLOATS if _all(weights, 1.0) else np.array(weights, np.float64),
            _times(event_times),
            None if event_ids is None or not any(event_ids) else [i or b"" for i in event_ids],
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "ExampleBatch":
        """The batch of the records in `data`, one after another.  FormatError names the first bad one."""
        buffer = np.frombuffer(data, np.uint8)
        starts, problem = example_records.find_records(buffer)
        if problem:
            explanation = example_records.explain(problem, data[starts[-1] :])
            raise FormatError(f"record {starts.size - 1}, at byte {starts[-1]}, {explanation}")
        return cls._from_columns(example_records.unpack(buffer, starts))

    def packed(self) -> Packed:
        """One self-delimiting record per example (the layout: example_records)."""
        buffer, starts = example_records.pack(self._columns())
        return Packed(buffer.tobytes(), starts)

    def to_records(self) -> list[bytes]:
        """The records of `packed` by themselves."""
        data, starts = self.packed()
        return [data[start:stop] for start, stop in pairwise(starts.tolist())]

    def to_bytes(self) -> bytes:
        """The records of `packed`, one after another."""
        return self.packed().data

    def dated(self, log_time: int) -> "ExampleBatch":
        """The same examples, those without an event time at `log_time`, in milliseconds since the epoch."""
        times = self.event_times if self.event_times.size else np.full(len(self), NO_TIME, np.int64)
        return replace(self, event_times=np.where(times == NO_TIME, np.int64(log_time), times))

    def slice(self, start: int, stop: int) -> "ExampleBatch":
        """Examples start .. stop - 1, sharing memory with this batch."""
        bounds = self.row_ptr[start : stop + 1]
        first, last = bounds[0], bounds[-1]
        return ExampleBatch(
            bounds - first,
            self.hashes[first:last],
            self.values[first:last],
            self.labels[start:stop],
            self.weights[start:stop],
            self.event_times[start:stop],
            None if self.event_ids is None else self.event_ids[start:stop],
            None if self.prediction_ids is None else self.prediction_ids[start:stop],
            self.served_margins[start:stop],
        )

    @classmethod
    def concatenate(cls, batches: Sequence["ExampleBatch"]) -> "ExampleBatch":
        """One batch of all examples, in order."""
        if len(batches) < 2:
            return batches[0] if batches else cls.from_encoded([])
        rows = [len(b) for b in batches]
        sizes = [b.hashes.size for b in batches]
        row_ptr = np.concatenate([np.zeros(1, np.int64), *[b.row_ptr[1:] for b in batches]])
        row_ptr[1:] += np.repeat(np.cumsum([0, *sizes[:-1]]), rows)
        return cls(
            row_ptr,
            np.concatenate([b.hashes for b in batches]),
            _filled([b.values for b in batches], sizes, NO_FLOATS, 1.0),
            np.concatenate([b.labels for b in batches]),
            _filled([b.weights for b in batches], rows, NO_FLOATS, 1.0),
            _filled([b.event_times for b in batches], rows, NO_INTEGERS, NO_TIME),
            _joined_ids([b.event_ids for b in batches], rows),
            _joined_ids([b.prediction_ids for b in batches], rows),
            _filled([b.served_margins for b in batches], rows, NO_FLOATS, np.nan),
        )

    def _columns(self) -> Columns:
        margins = self.served_margins
        return Columns(
            self.row_ptr,
            self.hashes,
            self.values,
            self.labels,
            self.weights,
            self.event_times,
            *_id_columns(self.event_ids, "event"),
            *_id_columns(self.prediction_ids, "prediction"),
            margins if margins.size or self.prediction_ids is None else np.full(len(self), np.nan),
        )

    @classmethod
    def _from_columns(cls, columns: Columns) -> "ExampleBatch":
        return cls(
            *columns[:6],
            Ids(columns.event_ids, columns.has_event_id) if columns.has_event_id.size else None,
            Ids(columns.prediction_ids, columns.is_served) if columns.is_served.size else None,
            columns.served_margins,
        )


def _id_columns(ids: Sequence[bytes] | None, kind: str) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """uint8[r, 16] and whether there is one bool[r]; both empty where no example has one."""
    if ids is None:
        return np.empty((0, ID_BYTES), np.uint8), np.empty(0, np.bool_)
    if isinstance(ids, Ids):
        return ids.rows, ids.present
    if any(len(i) not in (0, ID_BYTES) for i in ids):
        raise ValueError(f"{kind} ids take {ID_BYTES} bytes")
    flat = bytearray(b"".join(i or bytes(ID_BYTES) for i in ids))
    return np.frombuffer(flat, np.uint8).reshape(-1, ID_BYTES), np.fromiter(
        map(bool, ids), np.bool_, len(ids)
    )


def _joined_hashes(encoded: Sequence[tuple[list[int], list[float] | None]]) -> NDArray[np.uint32]:
    # array takes a list of ints twice as fast as numpy does.
    joined = array("I")
    for hashes, _ in encoded:
        joined.fromlist(hashes)
    return np.frombuffer(joined, np.uint32) if joined else np.empty(0, np.uint32)


def _joined_values(encoded: Sequence[tuple[list[int], list[float] | None]]) -> NDArray[np.float64]:
    if all(values is None for _, values in encoded):
        return NO_FLOATS
    joined = array("d")
    for hashes, values in encoded:
        joined.fromlist([1.0] * len(hashes) if values is None else values)
    return np.frombuffer(joined, np.float64) if joined else NO_FLOATS


def _joined_ids(ids: Sequence[Sequence[bytes] | None], rows: Sequence[int]) -> list[bytes] | None:
    if all(some is None for some in ids):
        return None
    return [i for some, n in zip(ids, rows, strict=True) for i in ([b""] * n if some is None else some)]


def _times(times: Sequence[int | None] | None) -> NDArray[np.int64]:
    if _all(times, None):
        return NO_INTEGERS
    return np.array([NO_TIME if t is None else t for t in times or ()], np.int64)


def _all(values: Sequence[float | None] | None, default: float | None) -> bool:
    return values is None or all(v == default for v in values)


def _filled(
    columns: Sequence[NDArray[Number]], sizes: Sequence[int], empty: NDArray[Number], default: float
) -> NDArray[Number]:
    """The columns joined; those left empty are written out only where another one is not."""
    if not any(map(len, columns)):
        return empty
    return np.concatenate(
        [
            column if column.size else np.full(n, default, empty.dtype)
            for column, n in zip(columns, sizes, strict=True)
        ]
    )
