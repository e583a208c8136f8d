"""Adding examples to the buckets one by one: however they were batched, the sums have the same bits."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.evaluation.buckets import (
    AHEAD,
    BINS_A_BLOCK,
    CHANGED,
    CLOCK,
    HOURS,
    LATE,
    LOWEST,
    NEWEST,
    PRESENT,
    SPAN,
    STREAM,
    WEIGHTED,
    Buckets,
)
from model_core.evaluation.rollover import bucket_of, keep_counts, leave_behind
from model_core.kernels.compiled import inlined_kernel, kernel
from model_core.kernels.numerics import exp, log1p

_MILLISECONDS_A_MINUTE = 60_000


class Seen(NamedTuple):
    """What the buckets take in of an example."""

    bin: int
    label: int
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
    labels: NDArray[np.uint8],
    weights: NDArray[np.float64],
    event_times: NDArray[np.int64],
    log_time: int,
) -> None:
    """Add the examples of one log entry to series 0; those without a finite margin and weight are left out.

    event_times int64[r] in milliseconds, -1 for none, or empty; log_time: of the entry, in milliseconds.
    The first six are Buckets, one by one: taking a tuple of arrays apart costs more than adding an example.
    """
    b = Buckets(bins, counts, sums, starts, marks, clock)
    for i in range(margins.size):
        weight = weights[i] if weights.size else 1.0
        if abs(margins[i]) < math.inf and 0.0 <= weight < math.inf:
            seen = see(margins[i], labels[i], weight, b.weights.shape[1])
            minute = advance_clock(b, event_times[i] if event_times.size else -1, log_time)
            add_to_series(b, 0, minute, seen)


@inlined_kernel
def see(margin: float, label: int, weight: float, bins: int) -> Seen:
    """The sigmoid and the log loss of numerics, bit for bit, from one exponential."""
    e = exp(-abs(margin))
    p = 1.0 / (1.0 + e) if margin >= 0.0 else e / (1.0 + e)
    a = -margin if label else margin
    loss = a + log1p(e) if a > 0.0 else log1p(e)
    at = min(max((margin - LOWEST) * (bins / SPAN), 0.0), bins - 1.0)
    return Seen(int(at), int(label), weight, p, loss)


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
    b.weights[row, at, label] += weight
    if b.marks[row, block] & WEIGHTED:
        b.counts[row, at, label] += 1.0
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
