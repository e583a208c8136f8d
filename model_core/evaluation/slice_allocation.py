"""Allocation of slices to the most frequent values of features, and their examples.

Each sliced feature has a series of buckets for `other`, and one for each of its `most` most frequent values.
Further series are spare: they are of values that were or soon are among the most frequent, so that values
that take turns lose nothing.  A value that occurs takes a free series.  If there is none, it takes that of
the least frequent value once it is twice as frequent, or among the most frequent; the past of that value
then counts as `other`.

The series of feature f are f (most + 1), which is `other`, and the `most` after it; its spare ones stand
behind those of all features.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.evaluation.buckets import (
    BUCKETS,
    PRESENT,
    Buckets,
    add_to_series,
    advance_clock,
    clear,
    counts_as_example,
    merge,
    see,
)
from model_core.kernels.compiled import inlined_kernel, kernel

OTHER = 0
NO_VALUE = -1


class Values(NamedTuple):
    """The v values of f sliced features that can have a slice.

    hashes uint32[v]: of the category; features uint8[v]: which feature it is a value of.
    counts int64[v]: how many examples had it.  series int64[v]: its own series, or OTHER.
    changed uint8[v]: 1 where counts or series changed since they were stored.
    holders int64[s]: the value that has the series, or NO_VALUE.
    table int64[2^m]: open addressing, hash << 16 | value + 1, or 0.
    bars int64[f]: a count that a value of the feature has to exceed to get a series.
    """

    hashes: NDArray[np.uint32]
    features: NDArray[np.uint8]
    counts: NDArray[np.int64]
    series: NDArray[np.int64]
    changed: NDArray[np.uint8]
    holders: NDArray[np.int64]
    table: NDArray[np.int64]
    bars: NDArray[np.int64]


@kernel
def index_values(values: Values) -> None:
    """Enter all values into the empty table, and those with a series into holders."""
    for v in range(values.hashes.size):
        at = _place(values.table, values.hashes[v])
        if values.table[at] == 0:
            values.table[at] = int(values.hashes[v]) << 16 | v + 1
        if values.series[v] != OTHER:
            values.holders[values.series[v]] = v


@kernel
def add_to_slices(
    bins: NDArray[np.float64],
    bin_counts: NDArray[np.float64],
    sums: NDArray[np.float64],
    starts: NDArray[np.int64],
    marks: NDArray[np.uint8],
    clock: NDArray[np.int64],
    value_hashes: NDArray[np.uint32],
    features: NDArray[np.uint8],
    counts: NDArray[np.int64],
    series: NDArray[np.int64],
    changed: NDArray[np.uint8],
    holders: NDArray[np.int64],
    table: NDArray[np.int64],
    bars: NDArray[np.int64],
    sliced: int,
    most: int,
    row_ptr: NDArray[np.int64],
    hashes: NDArray[np.uint32],
    margins: NDArray[np.float64],
    labels: NDArray[np.float64],
    weights: NDArray[np.float64],
    event_times: NDArray[np.int64],
    log_time: int,
) -> None:
    """Add the examples of one log entry, as add_examples does, to the slices of each of `sliced` features,
    `most` of each and those to spare.

    The first fourteen are Buckets and Values, one by one as there.
    """
    b = Buckets(bins, bin_counts, sums, starts, marks, clock)
    values = Values(value_hashes, features, counts, series, changed, holders, table, bars)
    for i in range(margins.size):
        weight = weights[i] if weights.size else 1.0
        if not counts_as_example(margins[i], labels[i], weight):
            continue
        seen = see(margins[i], labels[i], weight, b.weights.shape[1])
        minute = advance_clock(b, event_times[i] if event_times.size else -1, log_time)
        in_slice = 0  # a bit for each feature
        for j in range(row_ptr[i], row_ptr[i + 1]):
            v = _find(values, hashes[j])
            if v != NO_VALUE and not _repeats(hashes, row_ptr[i], j):
                _count(b, values, sliced, most, v)
                if values.series[v] != OTHER:
                    add_to_series(b, values.series[v] * BUCKETS, minute, seen)
                    in_slice |= 1 << int(values.features[v])
        for feature in range(sliced):
            if not in_slice >> feature & 1:
                add_to_series(b, feature * (most + 1) * BUCKETS, minute, seen)


@njit(cache=True)
def series_of(sliced: int, most: int, spare: int, feature: int, k: int) -> int:
    """Return the k-th series for values of a feature, from 0 on."""
    if k < most:
        return feature * (most + 1) + 1 + k
    return sliced * (most + 1) + feature * spare + k - most


@inlined_kernel
def _place(table: NDArray[np.int64], wanted: int) -> int:
    at = int(wanted) & table.size - 1
    while table[at] != 0 and table[at] >> 16 != int(wanted):
        at = at + 1 & table.size - 1
    return at


@inlined_kernel
def _find(values: Values, wanted: int) -> int:
    """Find the value with this hash, or NO_VALUE."""
    return (values.table[_place(values.table, wanted)] & 0xFFFF) - 1


@inlined_kernel
def _repeats(hashes: NDArray[np.uint32], first: int, j: int) -> bool:
    """Test whether the example has this feature already."""
    earlier = first
    while earlier < j and hashes[earlier] != hashes[j]:
        earlier += 1
    return earlier < j


@inlined_kernel
def _count(b: Buckets, values: Values, sliced: int, most: int, v: int) -> None:
    values.counts[v] += 1
    values.changed[v] = 1
    if values.series[v] == OTHER and values.counts[v] > values.bars[values.features[v]]:
        _seek_series(b, values, sliced, most, v)


@kernel
def _seek_series(b: Buckets, values: Values, sliced: int, most: int, v: int) -> None:
    feature, spare = int(values.features[v]), values.holders.size // sliced - most - 1
    other = feature * (most + 1)
    rarest, ahead = other, 0
    for k in range(most + spare):
        series = series_of(sliced, most, spare, feature, k)
        holder = values.holders[series]
        if holder == NO_VALUE:
            values.holders[series], values.series[v] = v, series
            return
        ahead += values.counts[holder] >= values.counts[v]
        if rarest == other or values.counts[holder] < values.counts[values.holders[rarest]]:
            rarest = series
    holder = values.holders[rarest]
    if ahead < most or values.counts[v] >= 2 * values.counts[holder]:
        _become_other(b, rarest * BUCKETS, other * BUCKETS)
        values.series[holder], values.changed[holder] = OTHER, 1
        values.holders[rarest], values.series[v] = v, rarest
    else:
        values.bars[feature] = values.counts[holder]


@kernel
def _become_other(b: Buckets, first: int, other: int) -> None:
    """All series share one clock, so what a row holds belongs into the same row of another."""
    for k in range(BUCKETS):
        if b.marks[first + k, -1] & PRESENT:
            b.starts[other + k] = b.starts[first + k]
            merge(b, first + k, other + k)
            clear(b, first + k)
