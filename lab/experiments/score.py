"""Evaluation of a candidate's predictions in bounded memory, by importance weight."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model_core.evaluation.buckets import LOWEST, SPAN
from model_core.evaluation.figures import auc_of_bins, entropy_of_rate
from model_core.kernels.numerics import log_losses, sigmoids

_BINS = 16_384


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
    ) -> None:
        """margins float64[r] before each update, labels uint8[r], weights float64[r] or empty (all 1)."""
        self._rows += margins.size
        finite = np.isfinite(margins)
        if not finite.all():
            self._skipped += int(margins.size - np.count_nonzero(finite))
            margins, labels = margins[finite], labels[finite]
            weights = weights[finite] if weights.size else weights
        w = weights if weights.size else np.ones(margins.size)
        self._loss += float(w @ log_losses(margins, labels))
        self._weight += float(w.sum())
        self._clicks += float(w @ labels.astype(np.float64))
        self._predicted += float(w @ sigmoids(margins))
        places = np.clip((margins - LOWEST) * (_BINS / SPAN), 0.0, _BINS - 1.0).astype(np.int64)
        self._bins += np.bincount(2 * places + labels, w, 2 * _BINS).reshape(_BINS, 2)

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
