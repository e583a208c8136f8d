"""The comparison of a challenger with its champion, as the learner of the challenger stores it."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from model_core.errors import FormatError
from model_core.evaluation.comparison import PairedComparison
from model_core.examples.batch import ExampleBatch

_HEAD = struct.Struct("<qq")


class Compared(NamedTuple):
    """The generations of the two states: if one is replaced, as by a restore, other models are compared."""

    champion: int
    challenger: int


class Comparison:
    """A function of the pairs in their order; the last `stored` holds it exactly.

    compared: None before the first entry.
    """

    def __init__(self) -> None:
        self.compared: Compared | None = None
        self.paired = PairedComparison()
        self._has_changed = False

    @classmethod
    def parse(cls, stored: bytes) -> Comparison:
        """Raises FormatError."""
        if len(stored) < _HEAD.size:
            raise FormatError("not a comparison")
        comparison = cls()
        comparison.compared = Compared(*_HEAD.unpack_from(stored))
        comparison.paired = PairedComparison.from_bytes(stored[_HEAD.size :])
        return comparison

    def add(
        self,
        compared: Compared,
        champion: npt.NDArray[np.float64] | None,
        challenger: npt.NDArray[np.float64],
        batch: ExampleBatch,
        log_ms: int,
    ) -> None:
        """Add the examples of a log entry, with the margins float64[r] of both models before they learned
        them; NaN of one that a model skips, None of the champion's if they are not at hand.
        """
        if champion is None and self.compared is None:
            return
        if champion is None and self.compared is not None:
            compared = self.compared._replace(challenger=compared.challenger)
        if compared != self.compared:
            self.compared, self.paired = compared, PairedComparison()
        if champion is None:
            self.paired.add_unpaired(len(batch))
        else:
            self.paired.add(champion, challenger, batch, log_ms)
        self._has_changed = True

    def take(self) -> bytes | None:
        """Return what is to be stored; None if nothing has changed since the last call."""
        if not self._has_changed:
            return None
        self._has_changed = False
        return self.packed()

    def packed(self) -> bytes:
        assert self.compared is not None, "it has no entry"
        return _HEAD.pack(*self.compared) + self.paired.to_bytes()
