"""The evaluation of one model: progressive predictions, served ones, and progressive ones by slices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model_core.errors import FormatError
from model_core.evaluation import layout
from model_core.evaluation.online import OnlineEvaluation
from model_core.evaluation.slices import SlicedEvaluation
from model_core.examples.batch import ExampleBatch
from service.models.config.sections import EvaluationConfig
from service.models.evaluation.comparison import Compared, Comparison
from service.models.evaluation.slices import SliceName
from service.storage.records import COMPARISON, FIGURES, FIGURES_OF_SLICES, PROGRESSIVE, SERVED, SLICES


class Evaluations:
    """A function of the examples in order, independent of batches. `fields`, or all results of `take`, store
    it exactly.

    served: None before the first example from a logged prediction.
    comparison: of a challenger with its champion; None before its first entry, and of other models.
    names: the known values of sliced features, by the hash of their category.
    """

    def __init__(self, config: EvaluationConfig) -> None:
        self.config = config
        self.names: dict[int, SliceName] = {}
        self.progressive = OnlineEvaluation()
        self.served: OnlineEvaluation | None = None
        self.comparison: Comparison | None = None
        self.slices = SlicedEvaluation(len(config.slices), config.most) if config.slices else None

    @classmethod
    def from_fields(cls, config: EvaluationConfig, fields: Mapping[bytes, bytes]) -> Evaluations:
        """Restores an evaluation; makes a new one from no fields. Raises FormatError."""
        parts: dict[bytes, dict[bytes, bytes]] = {PROGRESSIVE: {}, SERVED: {}, SLICES: {}}
        for name, value in fields.items():
            if name[:1] in parts:
                parts[name[:1]][name[1:]] = value
            elif name != COMPARISON and name != FIGURES and name not in FIGURES_OF_SLICES:
                raise FormatError(f"an evaluation with a foreign field {name!r}")
        evaluations = cls(config)
        evaluations.progressive = OnlineEvaluation.from_fields(parts[PROGRESSIVE])
        if COMPARISON in fields:
            evaluations.comparison = Comparison.parse(fields[COMPARISON])
        if parts[SERVED]:
            evaluations.served = OnlineEvaluation.from_fields(parts[SERVED])
        if config.slices:
            evaluations.slices = SlicedEvaluation.from_fields(parts[SLICES], len(config.slices), config.most)
        return evaluations

    def know(self, names: Mapping[int, SliceName]) -> None:
        """Sets the values of sliced features; to be called before the first example that has a new one."""
        if self.slices is not None and len(names) > len(self.names):
            self.names = dict(names)
            self.slices.know({category: name.feature for category, name in names.items()})

    def add(self, margins: NDArray[np.float64], batch: ExampleBatch, log_ms: int) -> None:
        """Adds the examples of a log entry, appended at `log_ms`, with the margins float64[r] before each was
        learned; NaN leaves an example out.
        """
        self.progressive.add(margins, batch, log_ms)
        if batch.served_margins.size:
            self._add_served(np.where(np.isfinite(margins), batch.served_margins, np.nan), batch, log_ms)
        if self.slices is not None:
            self.slices.add(margins, batch, log_ms)

    def compare(
        self,
        compared: Compared,
        champion: NDArray[np.float64] | None,
        margins: NDArray[np.float64],
        batch: ExampleBatch,
        log_ms: int,
    ) -> None:
        """Compares predictions of a challenger with those of its champion, as Comparison.add does."""
        if self.comparison is None:
            self.comparison = Comparison()
        self.comparison.add(compared, champion, margins, batch, log_ms)

    def _add_served(self, margins: NDArray[np.float64], batch: ExampleBatch, log_ms: int) -> None:
        if self.served is None and np.isfinite(margins).any():
            self.served = OnlineEvaluation()
        if self.served is not None:
            self.served.add(margins, batch, log_ms)

    def take(self) -> layout.Changes:
        """The changes since the last call."""
        changes = [part.take_changes(prefix) for prefix, part in self._parts()]
        if self.comparison is not None and (stored := self.comparison.take()) is not None:
            changes.append(layout.Changes(layout.packed_strings(COMPARISON, stored), b""))
        return layout.Changes(*map(b"".join, zip(*changes, strict=True)))

    def fields(self) -> dict[bytes, bytes]:
        """All fields."""
        fields = {
            prefix + name: value
            for prefix, part in self._parts()
            for name, value in part.all_fields().items()
        }
        if self.comparison is not None:
            fields[COMPARISON] = self.comparison.packed()
        return fields

    def _parts(self) -> list[tuple[bytes, OnlineEvaluation | SlicedEvaluation]]:
        parts = ((PROGRESSIVE, self.progressive), (SERVED, self.served), (SLICES, self.slices))
        return [(prefix, part) for prefix, part in parts if part is not None]
