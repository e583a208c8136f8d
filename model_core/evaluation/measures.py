"""Exact measures of the quality of predictions, from the margins predicted before each update.

Each measure comes plain, one example one vote, and weighted by importance.  None where it is undefined.  An
example of weight w and label y counts as a weight w y of a click and w (1 - y) of a non-click.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from model_core.kernels.number_text import plain_number
from model_core.kernels.numerics import log_losses, sigmoids

BLOCK_ROWS = 2**18

Labels = NDArray[np.float64] | NDArray[np.uint8]
"""Labels of r examples; in uint8[r], where all are 0 or 1, they take an eighth of the memory."""


@dataclass(frozen=True)
class Measures:
    """log_loss: mean loss per example, in nats.

    auc: the chance that a click outranks a non-click; ties count half.
    normalized_entropy: log_loss over that of always predicting the click rate; below 1 is better than that.
    calibration_ratio: predicted clicks over clicks.
    """

    log_loss: float | None
    auc: float | None
    normalized_entropy: float | None
    calibration_ratio: float | None


@dataclass(frozen=True)
class Summary:
    """The measures of a stream of examples; the density of the model that it left passes through.

    positives: the sum of the labels.
    """

    rows: int
    positives: float
    plain: Measures
    weighted: Measures
    density: float | None = None


def summarize(
    margins: NDArray[np.float64],
    labels: Labels,
    weights: NDArray[np.float64] | None = None,
    density: float | None = None,
) -> Summary:
    """The measures of margins float64[r] for labels float64[r] or uint8[r], and weights float64[r] (None or
    empty: all 1).

    Examples whose margin is not finite (those that learning skips) are left out. Takes 10 bytes an example
    beside the arguments, about 60 with weights or labels between 0 and 1, and 8 MiB.
    """
    labels, kept = compact(labels), np.isfinite(margins)
    if weights is not None and not weights.size:
        weights = None
    if not kept.all():
        margins, labels = margins[kept], labels[kept]
        weights = None if weights is None else weights[kept]
    with ThreadPoolExecutor(1) as beside:
        plain_auc = beside.submit(_plain_auc, margins, labels)
        plain = _measures(margins, labels, None, None)
        plain = replace(plain, auc=plain_auc.result())
    if weights is None:
        weighted = plain
    else:
        area = auc(sigmoids(margins), labels, weights)
        weighted = _measures(margins, labels, area, weights)
    return Summary(labels.size, plain_number(float(labels.sum())), plain, weighted, density)


def compact(labels: Labels) -> Labels:
    """The same labels, as uint8[r] if all are 0 or 1."""
    if labels.dtype == np.uint8:
        return labels
    hard = labels.astype(np.uint8)
    return hard if (hard == labels).all() else labels


def auc(p: NDArray[np.float64], labels: Labels, weights: NDArray[np.float64]) -> float | None:
    """The mean of [p_i > p_j] + [p_i = p_j] / 2 over pairs of a click i and a non-click j, by w_i w_j.

    With labels between 0 and 1, over all pairs, by w_i y_i w_j (1 - y_j).
    """
    clicks = labels.astype(np.float64)
    ranks, groups = np.unique(p, return_inverse=True)
    positive = np.bincount(groups, weights * clicks, ranks.size)
    negative = np.bincount(groups, weights * (1.0 - clicks), ranks.size)
    below = np.cumsum(negative) - negative
    pairs = positive.sum() * negative.sum()
    return float(positive @ (below + 0.5 * negative) / pairs) if pairs > 0.0 else None


def _plain_auc(margins: NDArray[np.float64], labels: Labels) -> float | None:
    """`auc` of the sigmoids where every weight is 1: of hard labels from two sorted arrays, in integers."""
    if labels.dtype != np.uint8:
        return auc(sigmoids(margins), labels, np.ones(labels.size))
    clicks, others = (_sorted_sigmoids(margins[labels == label]) for label in (1, 0))
    if not clicks.size or not others.size:
        return None
    twice = 0
    for start in range(0, clicks.size, BLOCK_ROWS):
        block = clicks[start : start + BLOCK_ROWS]
        twice += int(np.searchsorted(others, block, "left").sum())
        twice += int(np.searchsorted(others, block, "right").sum())
    return twice / (2 * clicks.size * others.size)


def _sorted_sigmoids(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace margins by their sigmoids, sorted, in place."""
    for start in range(0, margins.size, BLOCK_ROWS):
        margins[start : start + BLOCK_ROWS] = sigmoids(margins[start : start + BLOCK_ROWS])
    margins.sort()
    return margins


def _measures(
    margins: NDArray[np.float64],
    labels: Labels,
    area: float | None,
    weights: NDArray[np.float64] | None,
) -> Measures:
    total = clicked = loss = predicted = 0.0
    for start in range(0, margins.size, BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        m, y = margins[rows], labels[rows].astype(np.float64)
        w = np.ones(y.size) if weights is None else weights[rows]
        total += float(w.sum())
        clicked += float(w @ y)
        loss += float(w @ log_losses(m, y))
        predicted += float(w @ sigmoids(m))
    log_loss = loss / total if total > 0.0 else None
    entropy = _entropy(clicked / total) if total > 0.0 else 0.0
    return Measures(
        log_loss,
        area,
        log_loss / entropy if log_loss is not None and entropy > 0.0 else None,
        predicted / clicked if clicked > 0.0 else None,
    )


def _entropy(rate: float) -> float:
    """Log loss of always predicting `rate`, where it is the rate."""
    if not 0.0 < rate < 1.0:
        return 0.0
    return float(-rate * np.log(rate) - (1.0 - rate) * np.log1p(-rate))
