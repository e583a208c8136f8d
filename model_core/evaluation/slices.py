"""The running evaluation of one source of predictions, by the values of some features.

The log holds hashes alone, so a slice goes by the 32-bit hash of its category, `name=value`.  Which hashes
are values of a sliced feature must be registered before the first example that has one; names are not known
here.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.errors import FormatError
from model_core.evaluation import layout
from model_core.evaluation.buckets import BUCKETS, STREAM, WEIGHTED, empty_buckets
from model_core.evaluation.figures import Figures, Weighting, Window, figures_of, histogram_of
from model_core.evaluation.slice_allocation import (
    NO_VALUE,
    OTHER,
    Values,
    add_to_slices,
    index_values,
    series_of,
)
from model_core.examples.batch import ExampleBatch

BINS = 512
MOST_SERIES = 0xFFFF // BUCKETS
MOST_VALUES = 0xFFFE
VALUES_A_SPARE_SERIES = 4

_EXAMPLES = 4  # of the sums of a bucket
_NAME = struct.Struct("<cI")
_VALUE = struct.Struct("<BQH")
_VALUE_LETTER = b"v"

# The field of a value as two strings of MessagePack of up to 31 bytes: a name with its prefix, and a value.
_NAME_TAG, _VALUE_TAG = 0xA0 | 1 + _NAME.size, 0xA0 | _VALUE.size
_PACKED_VALUE = np.dtype(
    [
        *(("name_tag", "u1"), ("prefix", "S1"), ("letter", "S1"), ("category", "<u4")),
        *(("value_tag", "u1"), ("feature", "u1"), ("examples", "<u8"), ("series", "<u2")),
    ]
)


class Slice(NamedTuple):
    """feature: its number; category: the hash of its `name=value`, or None for all other examples."""

    feature: int
    category: int | None
    figures: Figures


class SlicedEvaluation:
    """The figures of OnlineEvaluation for the `most` most frequent values of each feature, and for the rest.

    features: how many are sliced.  The rest are examples with other values of the feature, or without it.
    Slices are numbered by their series, see slice_allocation; those of spare series belong to the rest.
    Stored like OnlineEvaluation, whose clock leaves the spare series out of its number of rows, and one field
    more for each value that was met:

        "v" | u32 hash        u8 feature | u64 examples that had it | u16 its series of buckets, or 0
    """

    def __init__(self, features: int, most: int = 20, bins: int = BINS) -> None:
        if not 1 <= features <= 32 or most < 1 or features * (most + 1) > MOST_SERIES:
            raise ValueError(
                f"1 to 32 features, at least one value each, at most {MOST_SERIES} slices in all"
            )
        self._features = features
        self._most = most
        self._spare = min(-(-most // VALUES_A_SPARE_SERIES), MOST_SERIES // features - most - 1)
        self._rows = features * (most + 1) * BUCKETS
        self._series = features * (most + 1 + self._spare)
        self._buckets = empty_buckets(bins, self._series)
        self._values = _values(np.empty(0, _VALUES), self._series, features)

    @classmethod
    def from_fields(
        cls, fields: Mapping[bytes, bytes], features: int, most: int = 20, bins: int = BINS
    ) -> "SlicedEvaluation":
        """Restore a stored evaluation; from no fields, a new one.  Raises FormatError."""
        evaluation = cls(features, most, bins)
        of_values = [name for name in fields if name[:1] == _VALUE_LETTER and len(name) == _NAME.size]
        of_buckets = {name: fields[name] for name in fields.keys() - set(of_values)}
        layout.restore(evaluation._buckets, of_buckets, evaluation._rows)
        rows = [_unpack_value(name, fields[name], features, evaluation._series) for name in of_values]
        evaluation._values = _values(np.array(rows, _VALUES), evaluation._series, features)
        return evaluation

    def know(self, categories: Mapping[int, int]) -> None:
        """Register hashes of categories as values of the sliced feature of that number; known ones stay."""
        v = self._values
        known = set(v.hashes.tolist())
        added = [(h, f, 0, OTHER, 0) for h, f in categories.items() if h not in known and f < self._features]
        if not added:
            return
        if len(known) + len(added) > MOST_VALUES:
            raise ValueError(f"at most {MOST_VALUES} values can have slices")
        rows = np.empty(len(known), _VALUES)
        for name, column in zip(_VALUES.names or (), v[:5], strict=True):
            rows[name] = column
        self._values = _values(np.concatenate([rows, np.array(added, _VALUES)]), self._series, self._features)

    def add(self, margins: NDArray[np.float64], examples: ExampleBatch, log_time: int) -> None:
        """Add the examples of one log entry, as OnlineEvaluation.add does."""
        b, v, e = self._buckets, self._values, examples
        buckets = (b.weights, b.counts, b.sums, b.starts, b.marks, b.clock)
        values = (v.hashes, v.features, v.counts, v.series, v.changed, v.holders, v.table, v.bars)
        rows = (e.row_ptr, e.hashes, margins, e.labels, e.weights, e.event_times, log_time)
        add_to_slices(*(buckets + values + (self._features, self._most) + rows))

    def take_changes(self, prefix: bytes) -> layout.Changes:
        """The fields to write and to delete since the last call; prefix: one byte before each name."""
        written, deleted = layout.take_changes(self._buckets, prefix, self._rows)
        changed = np.flatnonzero(self._values.changed)
        self._values.changed[changed] = 0
        return layout.Changes(written + self._packed_values(changed, prefix).tobytes(), deleted)

    def all_fields(self) -> dict[bytes, bytes]:
        """The whole state."""
        fields = layout.all_fields(self._buckets, self._rows)
        for packed in self._packed_values(np.flatnonzero(self._values.counts)):
            field = packed.tobytes()
            fields[field[2 : 2 + _NAME.size]] = field[-_VALUE.size :]
        return fields

    def slices(self) -> list[int]:
        """Number the slices: for each feature that of the rest, then those of its most frequent values in the
        order of their numbers, which they keep.
        """
        return [
            number
            for feature in range(self._features)
            for number in (feature * (self._most + 1), *sorted(self._most_frequent(feature)[: self._most]))
        ]

    def slice_of(self, number: int) -> tuple[int, int | None]:
        """Return feature and hash of the category of a slice, None for the rest."""
        if self._is_rest(number):
            return number // (self._most + 1), None
        v = int(self._values.holders[number])
        return int(self._values.features[v]), int(self._values.hashes[v])

    def examples_in_rest(self, number: int) -> int:
        """Count the examples that had the value of a slice and are not in it but in the rest: they came
        before it had the slice. For the rest, those of all values of its feature with a slice.
        """
        if self._is_rest(number):
            own = self._most_frequent(number // (self._most + 1))[: self._most]
            return sum(self.examples_in_rest(other) for other in own)
        seen = self._values.counts[self._values.holders[number]]
        return int(seen - self._buckets.sums[number * BUCKETS + STREAM, _EXAMPLES])

    def largest_in_rest(self, feature: int) -> int:
        """Count the examples that had the most frequent value of a feature among those without a slice."""
        v = self._values
        shown = v.holders[self._most_frequent(feature)[: self._most]]
        in_rest = v.features == feature
        in_rest[shown] = False
        return int(v.counts[in_rest].max(initial=0))

    def weighted(self, number: int) -> bool:
        """Test whether any example of the slice had a weight other than 1."""
        marks = self._buckets.marks.reshape(self._series, BUCKETS, -1)[self._series_of(number), :, :-1]
        return bool((marks & WEIGHTED).any())

    def figures_of(self, number: int, window: Window, weighting: Weighting = "weight") -> Figures:
        """Return the figures of one slice, without reliability."""
        firsts = [series * BUCKETS for series in self._series_of(number)]
        histogram = histogram_of(self._buckets, window, weighting, firsts)
        return figures_of(window, weighting, histogram, with_reliability=False)

    def figures(self, window: Window, weighting: Weighting = "weight") -> list[Slice]:
        """Return the slices: for each feature the rest, then its most frequent values."""
        return [
            Slice(*self.slice_of(number), self.figures_of(number, window, weighting))
            for number in self.slices()
        ]

    def _is_rest(self, number: int) -> bool:
        return number * BUCKETS < self._rows and number % (self._most + 1) == 0

    def _most_frequent(self, feature: int) -> list[int]:
        """The series of a feature that values have, the most frequent first."""
        places = range(self._most + self._spare)
        own = (series_of(self._features, self._most, self._spare, feature, k) for k in places)
        holders, counts = self._values.holders, self._values.counts
        held = (series for series in own if holders[series] != NO_VALUE)
        return sorted(held, key=lambda series: -int(counts[holders[series]]))

    def _series_of(self, number: int) -> list[int]:
        """The series of a slice: of the rest also those of its values that are not the most frequent."""
        if not self._is_rest(number):
            return [number]
        return [number, *self._most_frequent(number // (self._most + 1))[self._most :]]

    def _packed_values(self, chosen: NDArray[np.int64], prefix: bytes = b"") -> NDArray[np.void]:
        packed, v = np.empty(chosen.size, _PACKED_VALUE), self._values
        packed["name_tag"], packed["prefix"], packed["letter"] = _NAME_TAG, prefix, _VALUE_LETTER
        packed["category"] = v.hashes[chosen]
        packed["value_tag"], packed["feature"] = _VALUE_TAG, v.features[chosen]
        packed["examples"], packed["series"] = v.counts[chosen], v.series[chosen]
        return packed


def warm_up() -> None:
    """Compile every kernel of a sliced evaluation on one example, or load it from the cache."""
    evaluation = SlicedEvaluation(1)
    evaluation.know({1: 0})
    evaluation.add(np.zeros(1), ExampleBatch.from_encoded([([1], None)], [1]), 0)
    evaluation.take_changes(b"-")
    SlicedEvaluation.from_fields(evaluation.all_fields(), 1).figures("15m")


_VALUES = np.dtype([("hash", "u4"), ("feature", "u1"), ("count", "i8"), ("series", "i8"), ("changed", "u1")])


def _values(rows: NDArray[np.void], series: int, features: int) -> Values:
    room = 64
    while room < 8 * len(rows):
        room *= 2
    values = Values(
        rows["hash"].copy(),
        rows["feature"].copy(),
        rows["count"].copy(),
        rows["series"].copy(),
        rows["changed"].copy(),
        np.full(series, NO_VALUE, np.int64),
        np.zeros(room, np.int64),
        np.zeros(features, np.int64),
    )
    index_values(values)
    return values


def _unpack_value(name: bytes, value: bytes, features: int, series: int) -> tuple[int, int, int, int, int]:
    if len(value) != _VALUE.size:
        raise FormatError(f"an evaluation whose field {name!r} is foreign or damaged")
    feature, count, own_series = _VALUE.unpack(value)
    if feature >= features or own_series >= series:
        raise FormatError("an evaluation of other slices")
    return _NAME.unpack(name)[1], feature, count, own_series, 0
