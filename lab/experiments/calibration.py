"""Calibration of a log's predictions: in total, by size of the prediction, and by feature.

Also what a learned map from margin to probability, refitted over the predictions so far, would change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lab.experiments.datasets import Dataset
from model_core.kernels.numerics import log_losses, sigmoids

AFTER_ROWS = 10_000
TOLERANCE, STANDARD_ERRORS = 0.01, 2.0
TENTHS = 10
SLICE_CLICKS = 1_000
_REFIT_ROWS = 1_000
_LARGEST_MARGIN, _BINS = 15.0, 600
_NEWTON_STEPS = 20

Floats = npt.NDArray[np.float64]


class Count(NamedTuple):
    """How many of `of` parts are right: predicted clicks within 1 % or 2 standard errors of the actual."""

    right: int
    of: int


@dataclass(frozen=True)
class Calibration:
    """From row 10,000 on. total: predicted over actual clicks. reach: what counts as right, around 1.

    slices: the features with 1,000 clicks or more.
    """

    log_loss: float
    total: float
    reach: float
    tenths: Count
    slices: Count

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"tenths": list(self.tenths), "slices": list(self.slices)}

    @classmethod
    def from_json(cls, obj: dict[str, Any]) -> Calibration:
        counts = {name: Count(*obj[name]) for name in ("tenths", "slices")}
        return cls(**(obj | counts))


def first_rows_ratio(margins: Floats, labels: Floats) -> float:
    """Predicted over actual clicks in the first 10,000 rows."""
    return float(sigmoids(margins[:AFTER_ROWS]).sum() / max(labels[:AFTER_ROWS].sum(), 1))


def calibration_of(margins: Floats, data: Dataset) -> Calibration | None:
    """Judge margins float64[r] made before each row was learned; None for a log of 10,000 rows or fewer."""
    if data.rows <= AFTER_ROWS or not data.batch.labels[AFTER_ROWS:].any():
        return None
    kept = margins[AFTER_ROWS:]
    labels = data.batch.labels[AFTER_ROWS:].astype(np.float64)
    predicted = sigmoids(kept)
    sums = np.stack([predicted, labels, predicted * (1.0 - predicted)])
    tenths = np.array_split(np.argsort(kept, kind="stable"), TENTHS)
    ratio, reach = _ratios(sums.sum(axis=1)[:, None])
    return Calibration(
        float(log_losses(kept, data.batch.labels[AFTER_ROWS:]).mean()),
        float(ratio[0]),
        float(reach[0]),
        _count(np.stack([sums[:, rows].sum(axis=1) for rows in tenths], axis=1)),
        _count(_of_features(sums, data)),
    )


def _of_features(sums: Floats, data: Dataset) -> Floats:
    """The sums float64[3, f] over the rows of each feature that has enough clicks."""
    lengths = np.diff(data.batch.row_ptr)[AFTER_ROWS:]
    features = data.batch.hashes[data.batch.row_ptr[AFTER_ROWS] :].astype(np.int64)
    by_feature: Floats = np.stack(
        [np.bincount(features, np.repeat(one, lengths), data.features) for one in sums], dtype=np.float64
    )
    return by_feature[:, by_feature[1] >= SLICE_CLICKS]


def _ratios(sums: Floats) -> tuple[Floats, Floats]:
    """Predicted over actual clicks, and the distance from 1 up to which that is right."""
    predicted, clicks, variance = sums
    with np.errstate(divide="ignore", invalid="ignore"):
        return predicted / clicks, np.maximum(TOLERANCE, STANDARD_ERRORS * np.sqrt(variance) / clicks)


def _count(sums: Floats) -> Count:
    """A part without clicks is right if no more were predicted than two standard errors."""
    predicted, clicks, variance = sums
    off = np.abs(predicted - clicks)
    right = off <= np.maximum(TOLERANCE * clicks, STANDARD_ERRORS * np.sqrt(variance))
    return Count(int(right.sum()), right.size)


Map = Callable[[Floats], Floats]


def recalibrated(margins: Floats, labels: Floats, fit: Callable[[Floats], Map]) -> Floats:
    """Margins float64[r] through a map that is fitted again every 1,000 rows to the rows before."""
    seen, out = np.zeros((3, _BINS)), margins.copy()
    for start in range(0, margins.size, _REFIT_ROWS):
        rows = slice(start, start + _REFIT_ROWS)
        if start >= AFTER_ROWS:
            out[rows] = fit(seen)(margins[rows])
        part = margins[rows]
        places = np.clip((part / _LARGEST_MARGIN + 1.0) * (_BINS / 2), 0, _BINS - 1).astype(np.int64)
        sums = [np.bincount(places, weights, _BINS) for weights in (np.ones(part.size), labels[rows], part)]
        seen += np.stack(sums)
    return out


def platt(seen: Floats) -> Map:
    """The map a margin + b of the largest likelihood. seen float64[3, bins]: rows, clicks, sum of margins."""
    rows, clicks, total = seen[:, seen[0] > 0.0]
    inputs = np.stack([total / rows, np.ones(rows.size)])
    slopes = np.array([1.0, 0.0])
    for _ in range(_NEWTON_STEPS):
        p = sigmoids(slopes @ inputs)
        hessian = (inputs * (rows * p * (1.0 - p))) @ inputs.T + 1e-9 * np.eye(2)
        change = np.linalg.solve(hessian, inputs @ (rows * p - clicks))
        slopes -= change
        if np.abs(change).max() < 1e-9:
            break
    return lambda margins: slopes[0] * margins + slopes[1]


def isotonic(seen: Floats) -> Map:
    """The best map that does not decrease, constant between its steps; one example more in each bin, as
    predicted, keeps it from 0 and 1.
    """
    filled = seen[0] > 0.0
    rows, clicks, total = seen[:, filled]
    clicks, rows = clicks + sigmoids(total / rows), rows + 1.0
    blocks: list[tuple[float, float, int]] = []
    for one in zip(clicks.tolist(), rows.tolist(), [1] * rows.size, strict=True):
        blocks.append(one)
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            last, before = blocks.pop(), blocks.pop()
            blocks.append((before[0] + last[0], before[1] + last[1], before[2] + last[2]))
    rates = np.repeat([c / r for c, r, _ in blocks], [bins for *_, bins in blocks])
    edges = np.linspace(-_LARGEST_MARGIN, _LARGEST_MARGIN, _BINS + 1)[:-1][filled]
    levels = np.log(rates / (1.0 - rates))
    return lambda margins: levels[np.maximum(np.searchsorted(edges, margins, side="right") - 1, 0)]
