"""Histograms and sums of predictions: for the whole stream, and for buckets of time that add up to windows.

An example is added twice: to the whole stream, and to one bucket of time, the shortest that still reaches
back to it.  There are 15 buckets of a minute, 12 of five minutes and 24 of an hour.  As the clock moves on, a
bucket that it leaves behind is added to the longer one around it, and the last is dropped.  So

    the last 15 minutes = the minutes
    the last hour       = the minutes + the fives
    the last day        = the minutes + the fives + the hours

whatever the order in which the examples came.  The bucket at the clock is unfinished: the windows are up to
one bucket shorter than their names.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.kernels.compiled import inlined_kernel, kernel
from model_core.kernels.numerics import exp, log1p

BINS_A_BLOCK = 16

STREAM, FIRST_MINUTE, FIRST_FIVE, FIRST_HOUR, BUCKETS = 0, 1, 16, 28, 52
MINUTES, FIVES, HOURS = FIRST_FIVE - FIRST_MINUTE, FIRST_HOUR - FIRST_FIVE, BUCKETS - FIRST_HOUR
SUMS = 10
EMPTY = -1

PRESENT, WEIGHTED, CHANGED, STORED = 1, 2, 4, 8

CLOCK, NEWEST, LATE, AHEAD = range(4)

LOWEST, SPAN = -16.0, 32.0  # of the bins' log-odds

_MILLISECONDS_A_MINUTE = 60_000


class Buckets(NamedTuple):
    """The arrays of one or more series of 52 buckets; b is 52 times their number.

    weights float64[b, bins, 2]: the weight of non-clicks and of clicks whose log-odds fell into the bin.  The
        bins divide [-16, 16] evenly; what lies outside counts in the first or the last.  A label y between 0
        and 1 counts as 1 - y of a non-click and y of a click, here and below.
    counts float64[b, bins, 2]: the number of examples; kept where a block is WEIGHTED, else it is `weights`.
    sums float64[b, 10]: examples, clicks, predicted clicks and log loss, each weighted, then each plain; then
        the squared weights of non-clicks and of clicks.
    starts int64[b]: which minute, five minutes or hour since the epoch a bucket holds, or EMPTY.
    marks uint8[b, blocks + 1]: of each block of 16 bins, and of the sums: PRESENT; WEIGHTED, a weight was not
        1; CHANGED since it was last stored; STORED, so that it must be deleted when it is no longer PRESENT.
    clock int64[4]: the newest minute; the newest time in milliseconds; how many examples were too LATE for
        every bucket; how many claimed a time more than a minute AHEAD of the log.
    """

    weights: NDArray[np.float64]
    counts: NDArray[np.float64]
    sums: NDArray[np.float64]
    starts: NDArray[np.int64]
    marks: NDArray[np.uint8]
    clock: NDArray[np.int64]


def empty_buckets(bins: int, series: int = 1) -> Buckets:
    """bins: a multiple of 16.  Memory is taken up only where something is added."""
    rows = BUCKETS * series
    return Buckets(
        np.zeros((rows, bins, 2)),
        np.zeros((rows, bins, 2)),
        np.zeros((rows, SUMS)),
        np.full(rows, EMPTY, np.int64),
        np.zeros((rows, bins // BINS_A_BLOCK + 1), np.uint8),
        np.array([EMPTY, EMPTY, 0, 0], np.int64),
    )


class Seen(NamedTuple):
    """An example as the buckets add it."""

    bin: int
    label: float
    weight: float
    p: float
    loss: float


@kernel
def add_examples(
    bins: NDArray[np.float64],
    counts: NDArray[np.float64],
    sums: NDArray[np.float64],
    starts: NDArray[np.int64],
    marks: NDArray[np.uint8],
    clock: NDArray[np.int64],
    margins: NDArray[np.float64],
    labels: NDArray[np.float64],
    weights: NDArray[np.float64],
    event_times: NDArray[np.int64],
    log_time: int,
) -> None:
    """Add the examples of one log entry to series 0; those without a finite margin and weight, or with a
    label outside of [0, 1], are left out.

    event_times int64[r] in milliseconds, -1 for none, or empty; log_time: of the entry, in milliseconds.
    The first six are Buckets, one by one: taking a tuple of arrays apart costs more than adding an example.
    """
    b = Buckets(bins, counts, sums, starts, marks, clock)
    for i in range(margins.size):
        weight = weights[i] if weights.size else 1.0
        if counts_as_example(margins[i], labels[i], weight):
            seen = see(margins[i], labels[i], weight, b.weights.shape[1])
            minute = advance_clock(b, event_times[i] if event_times.size else -1, log_time)
            add_to_series(b, 0, minute, seen)


@inlined_kernel
def counts_as_example(margin: float, label: float, weight: float) -> bool:
    """Test whether all three are what an example has; others are left out."""
    return abs(margin) < math.inf and 0.0 <= label <= 1.0 and 0.0 <= weight < math.inf


@inlined_kernel
def see(margin: float, label: float, weight: float, bins: int) -> Seen:
    """The sigmoid and the log loss of numerics, bit for bit, from one exponential."""
    e = exp(-abs(margin))
    p = 1.0 / (1.0 + e) if margin >= 0.0 else e / (1.0 + e)
    missed = 1.0 - label if margin > 0.0 else label
    loss = missed * abs(margin) + log1p(e)
    at = min(max((margin - LOWEST) * (bins / SPAN), 0.0), bins - 1.0)
    return Seen(int(at), label, weight, p, loss)


@inlined_kernel
def advance_clock(b: Buckets, event_time: int, log_time: int) -> int:
    """The minute in which an example counts.

    That is its event's, if it has one, but nothing happens later than it is logged: a time in the future is a
    wrong clock's, and must not push everything else out of the windows.
    """
    time = log_time
    if event_time >= 0:
        time = min(event_time, log_time)
        b.clock[AHEAD] += event_time > log_time + _MILLISECONDS_A_MINUTE
    minute = time // _MILLISECONDS_A_MINUTE
    if minute > b.clock[CLOCK]:
        leave_behind(b, minute)
    b.clock[NEWEST] = max(b.clock[NEWEST], time)
    b.clock[LATE] += minute // 60 <= b.clock[CLOCK] // 60 - HOURS
    return minute


@inlined_kernel
def add_to_series(b: Buckets, first: int, minute: int, seen: Seen) -> None:
    """Add one example to the series that begins at row `first`."""
    _add(b, first + STREAM, seen)
    bucket = bucket_of(b, first, minute)
    if bucket >= 0:
        _add(b, bucket, seen)


@inlined_kernel
def _add(b: Buckets, row: int, seen: Seen) -> None:
    block, at, label, weight = seen.bin // BINS_A_BLOCK, seen.bin, seen.label, seen.weight
    if weight != 1.0 and not b.marks[row, block] & WEIGHTED:
        keep_counts(b, row, block)
    b.weights[row, at, 0] += weight * (1.0 - label)
    b.weights[row, at, 1] += weight * label
    if b.marks[row, block] & WEIGHTED:
        b.counts[row, at, 0] += 1.0 - label
        b.counts[row, at, 1] += label
    b.marks[row, block] |= PRESENT | CHANGED
    b.marks[row, -1] |= PRESENT | CHANGED
    b.sums[row, 0] += weight
    b.sums[row, 1] += weight * label
    b.sums[row, 2] += weight * seen.p
    b.sums[row, 3] += weight * seen.loss
    b.sums[row, 4] += 1.0
    b.sums[row, 5] += label
    b.sums[row, 6] += seen.p
    b.sums[row, 7] += seen.loss
    b.sums[row, 8] += weight * weight * (1.0 - label)
    b.sums[row, 9] += weight * weight * label


@inlined_kernel
def bucket_of(b: Buckets, first: int, minute: int) -> int:
    """The row of the shortest bucket that still takes examples of this minute, opened; or -1."""
    clock = b.clock[CLOCK]
    if minute > clock - MINUTES:
        row, start = first + FIRST_MINUTE + minute % MINUTES, minute
    elif minute // 5 > clock // 5 - FIVES:
        row, start = first + FIRST_FIVE + minute // 5 % FIVES, minute // 5
    elif minute // 60 > clock // 60 - HOURS:
        row, start = first + FIRST_HOUR + minute // 60 % HOURS, minute // 60
    else:
        return -1
    b.starts[row] = start
    return row


@kernel
def leave_behind(b: Buckets, minute: int) -> None:
    """Move the clock, and every bucket that no longer counts by itself into the longer one around it.

    Hours go first: they make room for the fives, as these do for the minutes.
    """
    b.clock[CLOCK] = minute
    for first in range(0, b.starts.size, BUCKETS):
        for row in range(first + FIRST_HOUR, first + BUCKETS):
            if b.starts[row] != EMPTY and b.starts[row] <= minute // 60 - HOURS:
                clear(b, row)
        for row in range(first + FIRST_FIVE, first + FIRST_HOUR):
            if b.starts[row] != EMPTY and b.starts[row] <= minute // 5 - FIVES:
                _carry(b, row, bucket_of(b, first, b.starts[row] * 5))
        for row in range(first + FIRST_MINUTE, first + FIRST_FIVE):
            if b.starts[row] != EMPTY and b.starts[row] <= minute - MINUTES:
                _carry(b, row, bucket_of(b, first, b.starts[row]))


@kernel
def _carry(b: Buckets, row: int, into: int) -> None:
    if into >= 0:
        merge(b, row, into)
    clear(b, row)


@kernel
def merge(b: Buckets, row: int, into: int) -> None:
    """Add the bucket of one row to that of another."""
    for block in range(b.marks.shape[1] - 1):
        mark = b.marks[row, block]
        if not mark & PRESENT:
            continue
        if mark & WEIGHTED and not b.marks[into, block] & WEIGHTED:
            keep_counts(b, into, block)
        counted = b.counts if mark & WEIGHTED else b.weights
        for at in range(block * BINS_A_BLOCK, (block + 1) * BINS_A_BLOCK):
            for label in range(2):
                b.weights[into, at, label] += b.weights[row, at, label]
                if b.marks[into, block] & WEIGHTED:
                    b.counts[into, at, label] += counted[row, at, label]
        b.marks[into, block] |= PRESENT | CHANGED
    for j in range(b.sums.shape[1]):
        b.sums[into, j] += b.sums[row, j]
    b.marks[into, -1] |= PRESENT | CHANGED


@kernel
def keep_counts(b: Buckets, row: int, block: int) -> None:
    """Separate the counts of a block from its weights."""
    for at in range(block * BINS_A_BLOCK, (block + 1) * BINS_A_BLOCK):
        b.counts[row, at, 0] = b.weights[row, at, 0]
        b.counts[row, at, 1] = b.weights[row, at, 1]
    b.marks[row, block] |= WEIGHTED


@kernel
def clear(b: Buckets, row: int) -> None:
    """Empty the bucket of a row."""
    for block in range(b.marks.shape[1] - 1):
        mark = b.marks[row, block]
        if mark & PRESENT:
            for at in range(block * BINS_A_BLOCK, (block + 1) * BINS_A_BLOCK):
                for label in range(2):
                    b.weights[row, at, label] = 0.0
                    if mark & WEIGHTED:  # memory that was never written takes up no room
                        b.counts[row, at, label] = 0.0
    for j in range(b.sums.shape[1]):
        b.sums[row, j] = 0.0
    for block in range(b.marks.shape[1]):
        b.marks[row, block] = CHANGED | STORED if b.marks[row, block] & STORED else 0
    b.starts[row] = EMPTY
