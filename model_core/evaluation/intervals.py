"""95 % confidence intervals of figures, from histograms of the predictions of clicks and of non-clicks.

Examples are taken as drawn independently, and their number as given by chance too.  An example counts by its
weight w, so the variance of a weighted sum is that of w² times the squared deviations.  Margins are those in
the middle of their bins.  docs/mathematics.md has the formulas.
"""

import math
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.evaluation.buckets import LOWEST, SPAN

CONFIDENCE = 0.95
STANDARD_ERRORS = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0)

Floats = NDArray[np.float64]

_LARGEST_EXPONENT = 50.0  # margins beyond the bins make a loss of almost 0, and its error large


class Interval(NamedTuple):
    """The bounds within which the true value is expected."""

    low: float
    high: float


def squared_weights(weights: Floats, counts: Floats, totals: Floats) -> Floats:
    """Squared weights float64[bins, 2] by bin, from weights and counts float64[bins, 2] of non-clicks and
    clicks, and totals float64[2], the squared weights of each class.

    Only the totals are known: a bin has the share that it would have if its examples weighed the same.
    """
    equal = np.divide(weights**2, counts, out=np.zeros_like(weights), where=counts > 0.0)
    sums = column_sums(equal)
    return equal * np.divide(totals, sums, out=np.ones(2), where=sums > 0.0)


def rate_interval(weights: Floats, squares: Floats) -> Interval:
    """Interval of the share of clicks, from the weights float64[2] of non-clicks and clicks: Wilson's."""
    others, clicks = weights.tolist()
    total = others + clicks
    rate = clicks / total
    variance = (squares[0] * rate**2 + squares[1] * (1.0 - rate) ** 2) / total**2
    return wilson(rate, variance, total**2 / float(squares.sum()))


def wilson(share: float, variance: float, most: float) -> Interval:
    """Wilson's interval of a share, for the number of examples that gives the variance.

    most: the number if the variance is 0, as that of a share of 0 or 1.
    """
    n = share * (1.0 - share) / variance if variance > 0.0 else most
    z2 = STANDARD_ERRORS**2
    middle = (n * share + z2 / 2.0) / (n + z2)
    reach = STANDARD_ERRORS * math.sqrt(n * share * (1.0 - share) + z2 / 4.0) / (n + z2)
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach))


def auc_interval(auc: float, error_bound: float, bins: Floats, squares: Floats) -> Interval:
    """Interval of the AUC of bins float64[bins, 2]: Wilson's, with the variance of DeLong, and wider by the
    bound of the error that the bins make.

    The variance is that of the mean rank of clicks among the non-clicks, and of non-clicks among the clicks.
    """
    occupied, totals = bins[:, 0] + bins[:, 1] > 0.0, column_sums(bins)
    others, clicks = bins[occupied].T / totals[:, None]
    of_others, of_clicks = squares[occupied].T / totals[:, None] ** 2
    below = np.cumsum(others) - 0.5 * others
    above = 1.0 - np.cumsum(clicks) + 0.5 * clicks
    variance = float((of_clicks * (below - auc) ** 2 + of_others * (above - auc) ** 2).sum())
    low, high = wilson(auc, variance, 1.0 / max(float(of_others.sum()), float(of_clicks.sum())))
    return Interval(max(0.0, low - error_bound), min(1.0, high + error_bound))


def log_loss_interval(log_loss: float, bins: Floats, squares: Floats) -> Interval:
    """Interval of the mean log loss: normal, of its logarithm."""
    losses = _losses(len(bins))
    variance = float((squares * (losses - log_loss) ** 2).sum()) / float(bins.sum()) ** 2
    return _of_logarithm(log_loss, variance)


def calibration_interval(ratio: float, bins: Floats, squares: Floats) -> Interval:
    """Interval of predicted clicks over clicks: normal, of the logarithm of the ratio of the two sums."""
    return _of_logarithm(ratio, calibration_error(ratio, bins, squares) ** 2)


def calibration_error(ratio: float, bins: Floats, squares: Floats) -> float:
    """Standard error of predicted clicks over clicks, if `ratio` is the true one."""
    p = _probabilities(len(bins))
    deviations = squares[:, 0] * p**2 + squares[:, 1] * (p - ratio) ** 2
    return math.sqrt(float(deviations.sum())) / float(bins[:, 1].sum())


def _of_logarithm(value: float, variance: float) -> Interval:
    if value <= 0.0:
        return Interval(value, value)
    factor = math.exp(min(STANDARD_ERRORS * math.sqrt(variance) / value, _LARGEST_EXPONENT))
    return Interval(value / factor, value * factor)


def column_sums(columns: Floats) -> Floats:
    """The sums float64[2] of the two columns, ten times as fast as sum(axis=0)."""
    return np.array([columns[:, 0].sum(), columns[:, 1].sum()])


@lru_cache
def margins_of_bins(bins: int) -> Floats:
    """The log-odds in the middle of each bin."""
    middles: Floats = LOWEST + SPAN / bins * (np.arange(bins, dtype=np.float64) + 0.5)
    return middles


@lru_cache
def _probabilities(bins: int) -> Floats:
    return 1.0 / (1.0 + np.exp(-margins_of_bins(bins)))


@lru_cache
def _losses(bins: int) -> Floats:
    """float64[bins, 2]: the log loss of a non-click and of a click."""
    margins = margins_of_bins(bins)
    return np.stack([np.logaddexp(0.0, margins), np.logaddexp(0.0, -margins)], axis=1)
