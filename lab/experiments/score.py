"""Evaluation of a candidate's predictions in bounded memory, by importance weight."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from model_core.evaluation.buckets import LOWEST, SPAN
from model_core.evaluation.figures import auc_of_bins, entropy_of_rate
from model_core.kernels.numerics import log_losses, sigmoids

_BINS = 16_384
_CONFIDENCE = 0.95
_BLOCK_ROWS, _FEWEST_BLOCKS = 64, 10


@dataclass(frozen=True)
class Figures:
    """Figures of progressive validation over `rows` examples; None where undefined.

    auc: within auc_error_bound of the exact one. skipped: examples whose update was not finite.
    """

    rows: int
    skipped: int
    log_loss: float | None
    normalized_entropy: float | None
    auc: float | None
    auc_error_bound: float | None
    calibration_ratio: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Score:
    """Sums over the examples so far."""

    def __init__(self) -> None:
        self._rows = 0
        self._skipped = 0
        self._loss = self._weight = self._clicks = self._predicted = 0.0
        self._bins: npt.NDArray[np.float64] = np.zeros((_BINS, 2))

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key, best first: candidates that skip examples come last, then by log loss."""
        return self._skipped > 0, self._loss / self._weight if self._weight > 0.0 else 0.0

    def add(
        self,
        margins: npt.NDArray[np.float64],
        labels: npt.NDArray[np.uint8],
        weights: npt.NDArray[np.float64],
    ) -> npt.NDArray[np.float64]:
        """margins float64[r] before each update, labels uint8[r], weights float64[r] or empty (all 1).

        Returns the losses by weight float64[r], NaN where the margin is not finite.
        """
        found = np.full(margins.size, np.nan)
        self._rows += margins.size
        finite = np.isfinite(margins)
        if not finite.all():
            self._skipped += int(margins.size - np.count_nonzero(finite))
            margins, labels = margins[finite], labels[finite]
            weights = weights[finite] if weights.size else weights
        w = weights if weights.size else np.ones(margins.size)
        found[finite] = w * log_losses(margins, labels)
        self._loss += float(found[finite].sum())
        self._weight += float(w.sum())
        self._clicks += float(w @ labels.astype(np.float64))
        self._predicted += float(w @ sigmoids(margins))
        places = np.clip((margins - LOWEST) * (_BINS / SPAN), 0.0, _BINS - 1.0).astype(np.int64)
        self._bins += np.bincount(2 * places + labels, w, 2 * _BINS).reshape(_BINS, 2)
        return found

    def figures(self) -> Figures:
        area = auc_of_bins(self._bins, self._rows)
        known = np.isfinite(area.value)
        log_loss = self._loss / self._weight if self._weight > 0.0 else None
        entropy = entropy_of_rate(self._clicks / self._weight) if self._weight > 0.0 else 0.0
        return Figures(
            self._rows,
            self._skipped,
            log_loss,
            log_loss / entropy if log_loss is not None and entropy > 0.0 else None,
            area.value if known else None,
            area.error_bound if known else None,
            self._predicted / self._clicks if self._clicks > 0.0 else None,
        )


@dataclass(frozen=True)
class Difference:
    """The mean loss of a candidate minus that of the present configuration, on the same examples.

    low, high: an interval that holds for all candidates of the race together at 95 %; None below 640 rows.
    """

    mean: float
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Paired:
    """Differences of the losses of two models on the same examples, by weight.

    The unit of the standard error is a block of 64 consecutive rows: neighbours in a log are alike, so that
    rows taken one by one would make it too small. The mean is a ratio of sums, sum(D) / sum(W) over the
    blocks, with the linearised variance b / (b - 1) * sum((D - mean W)^2) / sum(W)^2.
    """

    def __init__(self) -> None:
        self._blocks = 0
        self._sums = np.zeros(5)  # of D, W, D^2, D W, W^2

    def add(
        self,
        losses: npt.NDArray[np.float64],
        others: npt.NDArray[np.float64],
        weights: npt.NDArray[np.float64],
    ) -> None:
        """Losses by weight float64[r] as Score.add returns them, weights float64[r] or empty (all 1)."""
        if not losses.size:
            return
        differences = losses - others
        both = np.isfinite(differences)
        w = np.where(both, weights if weights.size else 1.0, 0.0)
        starts = np.arange(0, losses.size, _BLOCK_ROWS)
        d = np.add.reduceat(np.where(both, differences, 0.0), starts)
        w = np.add.reduceat(w, starts)
        self._blocks += starts.size
        self._sums += [d.sum(), w.sum(), d @ d, d @ w, w @ w]

    def difference(self, candidates: int) -> Difference | None:
        """The interval among `candidates` (Bonferroni); None without an example that both predicted."""
        d, w, dd, dw, ww = self._sums.tolist()
        if w <= 0.0:
            return None
        mean, b = d / w, self._blocks
        if b < _FEWEST_BLOCKS:
            return Difference(mean, None, None)
        variance = max(dd - 2.0 * mean * dw + mean * mean * ww, 0.0) * b / (b - 1) / (w * w)
        reach = NormalDist().inv_cdf(1.0 - (1.0 - _CONFIDENCE) / (2 * candidates)) * math.sqrt(variance)
        return Difference(mean, mean - reach, mean + reach)
