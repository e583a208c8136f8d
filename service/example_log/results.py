"""What is known of examples in the log: whether they are learned, and how they were predicted before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from model_core.examples.batch import NO_FLOATS
from model_core.kernels.numerics import log_losses, sigmoids
from service.example_log.appender import Placed
from service.example_log.stream import Place
from service.models.registry import OpenModel

UpdateStatus = Literal[
    "learned", "appended", "duplicate", "skipped", "waiting", "sampled_out", "late", "conflict", "unknown"
]


class UpdateResults(NamedTuple):
    """Of r examples, or of r labels for logged predictions: columns, in order.

    probabilities, losses float64[r]: progressive, that is of the state just before the example was learned;
    NaN where they are not known. revisions: of that state, likewise None. ids: event ids, or of labels those
    of the predictions; id_field: which, as replies name it.
    """

    statuses: list[UpdateStatus]
    probabilities: npt.NDArray[np.float64]
    losses: npt.NDArray[np.float64]
    revisions: list[str | None]
    ids: list[str]
    id_field: Literal["event_id", "id"] = "event_id"

    def put(self, rows: Sequence[int], others: UpdateResults) -> None:
        """In place of these rows those of `others`, in order."""
        for row, status, revision in zip(rows, others.statuses, others.revisions, strict=True):
            self.statuses[row], self.revisions[row] = status, revision
        self.probabilities[rows], self.losses[rows] = others.probabilities, others.losses


NO_RESULTS = UpdateResults([], NO_FLOATS, NO_FLOATS, [], [])


async def until_learned(model: OpenModel, places: Iterable[Place], deadline: float) -> None:
    """At most until the loop's time is `deadline`."""
    for entry in {place.entry for place in places if place.entry is not None}:
        await model.outcomes.learned(entry, deadline)


def results_of(model: OpenModel, placed: Placed, labels: npt.NDArray[np.uint8]) -> UpdateResults:
    """What is known of examples in the log by now; labels uint8[r]."""
    margins = np.full(len(labels), np.nan)
    statuses: list[UpdateStatus] = []
    revisions: list[str | None] = []
    for place in placed.places:
        outcome = None if place.entry is None else model.outcomes.held(place.entry)
        start, stop = place.offset, place.offset + place.examples
        if outcome is not None:
            margins[len(statuses) : len(statuses) + place.examples] = outcome.margins[start:stop]
        statuses += _statuses(model, place, None if outcome is None else outcome.skipped[start:stop])
        revisions += [None if outcome is None else outcome.revision] * place.examples
    return UpdateResults(
        statuses, sigmoids(margins), log_losses(margins, labels), revisions, placed.event_ids
    )


def _statuses(model: OpenModel, place: Place, skipped: bytes | None) -> Sequence[UpdateStatus]:
    """An outcome, of which `skipped` is a part, is not told by a state that was loaded whole, and is not held
    for ever.
    """
    if place.duplicate:
        return ["duplicate"] * place.examples
    if skipped is None:
        is_learned = place.entry is not None and model.outcomes.knows(place.entry)
        return ["learned" if is_learned else "appended"] * place.examples
    if 1 not in skipped:
        return ["learned"] * place.examples
    return ["skipped" if flag else "learned" for flag in skipped]
