"""Windows put together from buckets."""

from typing import get_args

import numpy as np
from numpy.typing import NDArray

from model_core.evaluation.buckets import (
    BINS_A_BLOCK,
    BUCKETS,
    CLOCK,
    EMPTY,
    FIRST_FIVE,
    FIRST_HOUR,
    FIRST_MINUTE,
    PRESENT,
    STREAM,
    WEIGHTED,
    Buckets,
)
from model_core.evaluation.figures import Histogram, Weighting, Window
from model_core.kernels.compiled import kernel

WINDOWS: tuple[Window, ...] = get_args(Window)
_FIVES_IN_HALF_AN_HOUR = 6


def histogram_of(b: Buckets, window: Window, weighting: Weighting, first: int = 0) -> Histogram:
    """The window of the series that begins at row `first`."""
    rows = [row for row in _rows_of(b, window, first) if b.marks[row, -1] & PRESENT]
    bins = np.zeros(b.weights.shape[1:])
    _add_bins(b, np.array(rows, np.int64), weighting == "weight", bins)
    sums = b.sums[rows].sum(axis=0)
    return Histogram(bins, *(sums[:4] if weighting == "weight" else sums[4:]).tolist(), *map(int, sums[4:6]))


def _rows_of(b: Buckets, window: Window, first: int) -> list[int]:
    if window == "all":
        return [first + STREAM]
    last = {"15m": FIRST_FIVE, "30m": FIRST_HOUR, "1h": FIRST_HOUR, "24h": BUCKETS}[window]
    rows = [row for row in range(first + FIRST_MINUTE, first + last) if b.starts[row] != EMPTY]
    if window == "30m":
        newest = b.clock[CLOCK] // 5
        rows = [r for r in rows if r < first + FIRST_FIVE or b.starts[r] > newest - _FIVES_IN_HALF_AN_HOUR]
    return rows


@kernel
def _add_bins(b: Buckets, rows: NDArray[np.int64], weighted: bool, out: NDArray[np.float64]) -> None:
    for row in rows:
        for block in range(b.marks.shape[1] - 1):
            mark = b.marks[row, block]
            if not mark & PRESENT:
                continue
            source = b.counts if mark & WEIGHTED and not weighted else b.weights
            for at in range(block * BINS_A_BLOCK, (block + 1) * BINS_A_BLOCK):
                out[at, 0] += source[row, at, 0]
                out[at, 1] += source[row, at, 1]
