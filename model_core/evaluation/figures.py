"""Figures of a window, from the histogram and sums that its buckets add up to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

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
    LOWEST,
    PRESENT,
    SPAN,
    STREAM,
    WEIGHTED,
    Buckets,
)
from model_core.evaluation.intervals import (
    Interval,
    auc_interval,
    calibration_error,
    calibration_interval,
    column_sums,
    log_loss_interval,
    margins_of_bins,
    rate_interval,
    squared_weights,
)
from model_core.kernels.compiled import kernel
from model_core.kernels.number_text import plain_number

Window = Literal["15m", "30m", "1h", "24h", "all"]
WINDOWS: tuple[Window, ...] = get_args(Window)
Weighting = Literal["weight", "none"]

FEWEST_CLICKS = 50
TOLERATED_ERRORS = 3.0
MIN_TOLERANCE = 0.05
_FIVES_IN_HALF_AN_HOUR = 6

# Finer where click rates are; each lies within half a bin of the log-odds at which the histogram is cut.
RELIABILITY_EDGES = (
    *(0.0, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07),
    *(0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0),
)


class Histogram(NamedTuple):
    """A window: bins float64[bins, 2] of non-clicks and clicks, and the sums of the same examples.

    squares float64[bins, 2]: their squared weights.
    examples_seen: how many they are, whatever they weigh; clicks_seen: the sum of their labels.
    """

    bins: NDArray[np.float64]
    squares: NDArray[np.float64]
    examples: float
    clicks: float
    predicted_clicks: float
    log_loss: float
    examples_seen: int
    clicks_seen: float


class Auc(NamedTuple):
    """The area under the ROC curve, and how far at most the exact one is from it; NaN where there is none."""

    value: float
    error_bound: float


class ReliabilityRow(NamedTuple):
    """The outcome of predictions from `low` to `high`; examples and rates under the figures' weighting."""

    low: float
    high: float
    examples: float
    mean_prediction: float
    click_rate: float
    click_rate_interval: Interval


@dataclass(frozen=True)
class Figures:
    """The quality of the predictions of a window.

    examples: their number, whatever they weigh; clicks: the sum of their labels.  The others count an example
    by its weight, or once with weighting `none`.  They are None before the window holds 50 clicks, unless
    fewer are asked for, and where they are undefined.

    auc: the chance that a click was predicted higher than a non-click, ties counting half; the exact value is
        at most auc_error_bound away.
    log_loss: mean, in nats.  normalized_entropy: that over the entropy of the window's own click rate.
    calibration_ratio: predicted clicks over clicks.
    calibration_tolerance: how far from 1 chance alone may take it (three standard errors), at least 0.05.
    *_interval: 95 % confidence intervals; that of the AUC is wider by auc_error_bound.
    """

    window: Window
    weighting: Weighting
    examples: int
    clicks: float
    auc: float | None = None
    auc_error_bound: float | None = None
    log_loss: float | None = None
    normalized_entropy: float | None = None
    calibration_ratio: float | None = None
    calibration_tolerance: float | None = None
    mean_prediction: float | None = None
    base_rate: float | None = None
    auc_interval: Interval | None = None
    log_loss_interval: Interval | None = None
    calibration_ratio_interval: Interval | None = None
    base_rate_interval: Interval | None = None
    reliability: tuple[ReliabilityRow, ...] = ()


def figures_of(
    window: Window,
    weighting: Weighting,
    h: Histogram,
    *,
    with_reliability: bool = True,
    fewest_clicks: int = FEWEST_CLICKS,
) -> Figures:
    if h.clicks_seen < fewest_clicks or h.examples == 0.0:
        return Figures(window, weighting, h.examples_seen, h.clicks_seen)
    auc = auc_of_bins(h.bins, h.examples_seen)
    has_auc = not math.isnan(auc.value)
    rate, log_loss = h.clicks / h.examples, h.log_loss / h.examples
    entropy = entropy_of_rate(rate)
    ratio = h.predicted_clicks / h.clicks if h.clicks > 0.0 else None
    return Figures(
        window,
        weighting,
        h.examples_seen,
        h.clicks_seen,
        auc=auc.value if has_auc else None,
        auc_error_bound=auc.error_bound if has_auc else None,
        log_loss=log_loss,
        normalized_entropy=log_loss / entropy if entropy > 0.0 else None,
        calibration_ratio=ratio,
        calibration_tolerance=None if ratio is None else _calibration_tolerance(h),
        mean_prediction=h.predicted_clicks / h.examples,
        base_rate=rate,
        auc_interval=auc_interval(*auc, h.bins, h.squares) if has_auc else None,
        log_loss_interval=log_loss_interval(log_loss, h.bins, h.squares),
        calibration_ratio_interval=None if ratio is None else calibration_interval(ratio, h.bins, h.squares),
        base_rate_interval=rate_interval(column_sums(h.bins), column_sums(h.squares)),
        reliability=reliability(h.bins, h.squares) if with_reliability else (),
    )


def _calibration_tolerance(h: Histogram) -> float:
    return max(MIN_TOLERANCE, TOLERATED_ERRORS * calibration_error(1.0, h.bins, h.squares))


def auc_of_bins(bins: NDArray[np.float64], examples: int) -> Auc:
    """Estimate the AUC from bins float64[bins, 2] of non-clicks and clicks, by ascending prediction.

    Pairs within a bin count half, so the error is at most half of their weight.  The bound also covers the
    rounding of the sums.  NaN where one class is missing.
    """
    others, clicks = bins[:, 0], bins[:, 1]
    pairs = float(clicks.sum() * others.sum())
    if not pairs > 0.0:
        return Auc(math.nan, math.nan)
    below = np.cumsum(others) - others
    shared = 0.5 * float(np.sum(clicks * others)) / pairs
    rounding = 2.0**-52 * (examples + 4 * len(bins))
    return Auc(float(np.sum(clicks * below)) / pairs + shared, shared + rounding)


def entropy_of_rate(rate: float) -> float:
    """Log loss, in nats, of always predicting the click rate; 0 where it is 0 or 1."""
    if not 0.0 < rate < 1.0:
        return 0.0
    return -rate * math.log(rate) - (1.0 - rate) * math.log1p(-rate)


def reliability(bins: NDArray[np.float64], squares: NDArray[np.float64]) -> tuple[ReliabilityRow, ...]:
    """Rows for the buckets of RELIABILITY_EDGES that hold anything.

    The mean prediction is taken from the middles of the bins: within 0.1 % of it where there are 16,384.
    """
    middles, first_bins = _reliability_grid(len(bins))
    predicted = (bins[:, 0] + bins[:, 1]) * middles
    by_bin = np.stack([*bins.T, *squares.T, predicted])
    totals = np.add.reduceat(by_bin, first_bins, axis=1).T
    return tuple(
        _row(low, high, of_bucket)
        for low, high, of_bucket in zip(RELIABILITY_EDGES, RELIABILITY_EDGES[1:], totals, strict=False)
        if of_bucket[0] + of_bucket[1] > 0.0
    )


def _row(low: float, high: float, totals: NDArray[np.float64]) -> ReliabilityRow:
    """totals float64[5]: weights of non-clicks and clicks, their squared weights, predicted clicks."""
    others, clicks, _, _, predicted = totals.tolist()
    examples = others + clicks
    interval = rate_interval(totals[:2], totals[2:4])
    return ReliabilityRow(low, high, examples, predicted / examples, clicks / examples, interval)


@lru_cache
def _reliability_grid(bins: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The probability in the middle of each bin, and with which bin each bucket begins."""
    width = SPAN / bins
    middles = 1.0 / (1.0 + np.exp(-margins_of_bins(bins)))
    edges = np.array(RELIABILITY_EDGES[1:-1])
    cuts = np.rint((np.log(edges / (1.0 - edges)) - LOWEST) / width).astype(np.int64)
    return middles, np.concatenate([[0], cuts])


def histogram_of(b: Buckets, window: Window, weighting: Weighting, firsts: Sequence[int] = (0,)) -> Histogram:
    """The window of the series that begin at the rows `firsts`, together."""
    rows = np.array(
        [row for first in firsts for row in _rows_of(b, window, first) if b.marks[row, -1] & PRESENT],
        np.int64,
    )
    sums = b.sums[rows].sum(axis=0)
    counts = _bins_of(b, rows, weighted=False)
    bins = squares = counts
    if weighting == "weight" and (b.marks[rows, :-1] & WEIGHTED).any():
        bins = _bins_of(b, rows, weighted=True)
        squares = squared_weights(bins, counts, sums[8:])
    of_weighting = sums[:4] if weighting == "weight" else sums[4:8]
    examples, clicks, predicted, log_loss = of_weighting.tolist()
    seen, clicked = int(sums[4]), plain_number(float(sums[5]))
    return Histogram(bins, squares, examples, clicks, predicted, log_loss, seen, clicked)


def _bins_of(b: Buckets, rows: NDArray[np.int64], *, weighted: bool) -> NDArray[np.float64]:
    bins = np.zeros(b.weights.shape[1:])
    _add_bins(b, rows, weighted, bins)
    return bins


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
