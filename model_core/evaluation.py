"""How good predictions were: exact measures from the margins that were predicted before each update.

Each measure comes plain, one example one vote, and weighted by importance.  None where it is undefined.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model_core.numerics import log_losses, sigmoids


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
    """The measures of a stream of examples; the density of the model that it left passes through."""

    rows: int
    positives: int
    plain: Measures
    weighted: Measures
    density: float | None = None


def summarize(
    margins: NDArray[np.float64],
    labels: NDArray[np.uint8],
    weights: NDArray[np.float64] | None = None,
    density: float | None = None,
) -> Summary:
    """The measures of margins float64[r] for labels uint8[r], and weights float64[r] (None or empty: all 1).

    Examples whose margin is not finite (those that learning skips) are left out.
    """
    kept = np.isfinite(margins)
    clicks = labels[kept].astype(np.float64)
    one = np.ones(clicks.size)
    p, losses = sigmoids(margins[kept]), log_losses(margins[kept], labels[kept])
    plain = _measures(p, losses, clicks, one)
    given = weights is not None and weights.size > 0
    weighted = _measures(p, losses, clicks, weights[kept]) if given and weights is not None else plain
    return Summary(clicks.size, int(clicks.sum()), plain, weighted, density)


def auc(p: NDArray[np.float64], clicks: NDArray[np.float64], weights: NDArray[np.float64]) -> float | None:
    """The mean of [p_i > p_j] + [p_i = p_j] / 2 over pairs of a click i and a non-click j, by w_i w_j."""
    ranks, groups = np.unique(p, return_inverse=True)
    positive = np.bincount(groups, weights * clicks, ranks.size)
    negative = np.bincount(groups, weights * (1.0 - clicks), ranks.size)
    below = np.cumsum(negative) - negative
    pairs = positive.sum() * negative.sum()
    return float(positive @ (below + 0.5 * negative) / pairs) if pairs > 0.0 else None


def _measures(
    p: NDArray[np.float64],
    losses: NDArray[np.float64],
    clicks: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> Measures:
    total, clicked = float(weights.sum()), float(weights @ clicks)
    log_loss = float(weights @ losses) / total if total > 0.0 else None
    entropy = _entropy(clicked / total) if total > 0.0 else 0.0
    return Measures(
        log_loss,
        auc(p, clicks, weights),
        log_loss / entropy if log_loss is not None and entropy > 0.0 else None,
        float(weights @ p) / clicked if clicked > 0.0 else None,
    )


def _entropy(rate: float) -> float:
    """Log loss of always predicting `rate`, where it is the rate."""
    if not 0.0 < rate < 1.0:
        return 0.0
    return float(-rate * np.log(rate) - (1.0 - rate) * np.log1p(-rate))
