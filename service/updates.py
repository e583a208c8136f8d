"""What /update does, in order: append to the log, wait until the mirror here has learned it, tell how."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from redis.asyncio import Redis

from model_core.examples import NO_FLOATS
from model_core.numerics import log_losses, sigmoids
from service.appending import Appender, NewExamples, Placed
from service.errors import LogFull, StateUnavailable
from service.example_log import Place
from service.metrics import Metrics
from service.models import OpenModel
from service.replica import ModelGone
from service.server_health import ServerHealth
from service.settings import Settings

Status = Literal[
    "learned", "appended", "duplicate", "skipped", "waiting", "sampled_out", "late", "conflict", "unknown"
]


class UpdateResults(NamedTuple):
    """Of r examples, or of r labels for logged predictions: columns, in order.

    probabilities, losses float64[r]: progressive, that is of the state just before the example was learned;
    NaN where they are not known. revisions: of that state, likewise None. ids: event ids, or of labels those
    of the predictions; id_field: which, as replies name it.
    """

    statuses: list[Status]
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


class Updates:
    def __init__(self, client: Redis, settings: Settings, health: ServerHealth, metrics: Metrics) -> None:
        self._client = client
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._appenders: dict[str, Appender] = {}  # by incarnation

    async def submit(self, model: OpenModel, examples: NewExamples, wait: bool) -> UpdateResults:
        """Durable when it returns, and learned unless a status says "appended".

        Raises LogFull, UpdateUnavailable, StateUnavailable (the model was deleted meanwhile).
        """
        if not len(examples.batch):
            return NO_RESULTS
        if self._health.shedding:
            raise LogFull(
                f"Redis uses {self._health.used_share:.0%} of its memory limit; examples are refused above"
                f" {self._settings.memory_share_limit:.0%}, so that what is in the log can still be learned."
            )
        deadline = time.monotonic() + self._settings.update_timeout_seconds
        try:
            placed = await self._appender(model).append(examples, deadline)
        except ModelGone:
            raise StateUnavailable(
                f"Model {model.name!r} was deleted or created anew; nothing was appended."
            ) from None
        model.slices.told(examples.slice_names)
        if wait:
            for entry in {place.entry for place in placed.places if place.entry is not None}:
                await model.outcomes.learned(entry, deadline)
        return results_of(model, placed, examples.batch.labels)

    def _appender(self, model: OpenModel) -> Appender:
        keys = model.mirror.replica.keys
        appender = self._appenders.get(keys.incarnation)
        if appender is None:
            model.belongs(self._retire_appender, keys.incarnation)
            appender = Appender(self._client, keys, self._settings, self._metrics)
            self._appenders[keys.incarnation] = appender
        return appender

    async def _retire_appender(self, incarnation: str) -> None:
        """Of a model that was deleted: what is under way is answered first, as the server knows what became
        of it.
        """
        if incarnation in self._appenders:
            await self._appenders[incarnation].drain(self._settings.update_timeout_seconds)
            await self._close_appender(incarnation)

    async def _close_appender(self, incarnation: str) -> None:
        appender = self._appenders.pop(incarnation, None)
        if appender is not None:
            await appender.close()

    async def close(self) -> None:
        for incarnation in list(self._appenders):
            await self._close_appender(incarnation)


def results_of(model: OpenModel, placed: Placed, labels: npt.NDArray[np.uint8]) -> UpdateResults:
    """What is known of examples in the log by now; labels uint8[r]."""
    margins = np.full(len(labels), np.nan)
    statuses: list[Status] = []
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


def _statuses(model: OpenModel, place: Place, skipped: bytes | None) -> Sequence[Status]:
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
