"""Paired losses: the losses of two models on the same examples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract
from model_core.kernels.numerics import log_losses
from model_core.learning.mixture import mixed_margins
from model_core.learning.rounds import Learned
from model_core.learning.state import Mixture, parse_evidence
from model_core.learning.step import offset_from
from model_core.snapshot import Snapshot
from service.models.config.sections import AutoRollback
from service.snapshots.store.formats import config_of

STANDARD_ERRORS = 3.0


class Verdict(NamedTuple):
    """Weighted mean log losses, their mean difference and its standard error."""

    live: float
    good: float
    difference: float
    error: float

    def is_worse(self, gate: AutoRollback) -> bool:
        return self.difference > gate.margin and self.difference > STANDARD_ERRORS * self.error

    @property
    def standard_errors(self) -> float:
        return self.difference / self.error if self.error else math.inf


@dataclass(frozen=True, eq=False)
class GoodModel:
    """A snapshot for prediction only: its weights float64[K, k] of K experts, or of one model, by ascending
    slot, of the slots that have one that is not 0.

    `number`: number of log examples that it has learned. `bases`: margins of an example without features.
    `weights_of_experts`: with their logarithms; none of a single model.
    """

    id: str
    number: int
    hashing: HashContract
    slots: npt.NDArray[np.uint32]
    weights: npt.NDArray[np.float64]
    bases: npt.NDArray[np.float64]
    weights_of_experts: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None

    @classmethod
    def of(cls, name: str, snapshot: Snapshot) -> GoodModel:
        """Extract the weights. Raises SnapshotMismatch."""
        header = snapshot.header
        config = config_of(header)
        weights, evidence = snapshot.weights_of_experts(config.hyper), parse_evidence(header.discount)
        is_bias = snapshot.slots == config.hashing.size
        offset = config.hashing.prior_offset + offset_from(evidence.prior)
        bases = offset + weights[:, is_bias].sum(axis=1)
        kept = weights.any(axis=0) & ~is_bias
        mixed = (evidence.weights, evidence.log_weights) if isinstance(evidence, Mixture) else None
        slots = snapshot.slots[kept]
        return cls(name, header.applied_number, config.hashing, slots, weights[:, kept], bases, mixed)

    def margins(self, batch: ExampleBatch) -> npt.NDArray[np.float64]:
        """Return the margins float64[r]; they are summed in another order than in the kernels."""
        rows = np.repeat(np.arange(len(batch)), np.diff(batch.row_ptr))
        slots = batch.hashes & np.uint32(self.hashing.size - 1)
        places = np.searchsorted(self.slots, slots)
        known = np.append(self.slots, np.uint32(self.hashing.size))[places] == slots
        values = batch.values if batch.values.size else 1.0
        margins = np.empty((len(batch), len(self.weights)))
        for expert, weights in enumerate(self.weights):
            terms = np.where(known, np.append(weights, 0.0)[places], 0.0) * values
            margins[:, expert] = np.bincount(rows, terms, minlength=len(batch)) + self.bases[expert]
        mixed = self.weights_of_experts
        return margins[:, 0] if mixed is None else mixed_margins(margins, *mixed)


class PairedLosses:
    """Losses of the newest examples, `max_examples` at most; `end`: the number of the next example."""

    def __init__(self, good: GoodModel, max_examples: int) -> None:
        self.good = good
        self.end = 0
        self._max_examples = max_examples
        self._rows = np.empty((0, 3))  # losses of the live model, of the good one, weights

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, number: int, batch: ExampleBatch, learned: Learned) -> None:
        """Add the losses of a batch; `number`: of its first example; `learned`: with the margins that the
        live model predicted before. Examples that could not be learned are left out.
        """
        counts = learned.skipped == 0
        rows = np.empty((len(batch), 3))
        rows[:, 0] = log_losses(np.where(counts, learned.margins, 0.0), batch.labels)
        rows[:, 1] = log_losses(self.good.margins(batch), batch.labels)
        rows[:, 2] = np.where(counts, batch.weights if batch.weights.size else 1.0, 0.0)
        self.end = number + len(batch)
        self._rows = np.concatenate([self._rows, rows])[-self._max_examples :]

    def verdict(self) -> Verdict:
        live, good, weights = self._rows.T
        total = float(weights.sum())
        if not total:
            return Verdict(math.nan, math.nan, 0.0, 0.0)
        difference = live - good
        mean = float(weights @ difference) / total
        error = math.sqrt(float((weights**2) @ (difference - mean) ** 2)) / total
        return Verdict(float(weights @ live) / total, float(weights @ good) / total, mean, error)
