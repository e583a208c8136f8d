"""Evaluation of a candidate's predictions, and its comparison with another, by importance weight."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from model_core.evaluation.figures import Figures
from model_core.evaluation.online import OnlineEvaluation
from model_core.examples.batch import ExampleBatch
from model_core.kernels.numerics import log_losses

_CONFIDENCE = 0.95
_BLOCK_ROWS, _FEWEST_BLOCKS = 64, 10
_NO_LOG_TIME = 0


class Score:
    """Progressive evaluation of the examples so far, by the sums of a live model's: equal examples and
    predictions have equal figures, to the last digit.

    rows: examples so far. skipped: those whose update was not finite.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.skipped = 0
        self._evaluation = OnlineEvaluation()

    @property
    def log_loss(self) -> float:
        """The mean so far, by weight; 0 before the first example."""
        return self._evaluation.log_loss or 0.0

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key, best first: candidates that skip examples come last, then by log loss."""
        return self.skipped > 0, self.log_loss

    def add(self, margins: npt.NDArray[np.float64], batch: ExampleBatch) -> npt.NDArray[np.float64]:
        """margins float64[r] before each update, NaN where learning skipped the example.

        Returns the losses by weight float64[r], NaN where the margin is not finite.
        """
        losses = np.full(margins.size, np.nan)
        finite = np.isfinite(margins)
        self.rows += margins.size
        self.skipped += int(margins.size - np.count_nonzero(finite))
        self._evaluation.add(margins, batch, _NO_LOG_TIME)  # the whole stream has no windows of time
        losses[finite] = log_losses(margins[finite], batch.labels[finite])
        return losses * batch.weights if batch.weights.size else losses

    def figures(self) -> Figures:
        """Those of the whole stream by weight, however few clicks it has."""
        return self._evaluation.figures("all", fewest_clicks=0)


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
