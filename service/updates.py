"""What /update does, in order: append to the log, wait until the mirror here has learned it, tell how."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from redis.asyncio import Redis

from model_core.numerics import log_losses, sigmoids
from service.appending import Appender, NewExamples, Placed
from service.errors import LogFull, StateUnavailable
from service.example_log import Place
from service.metrics import Metrics
from service.models import OpenModel
from service.outcomes import Outcome
from service.replica import ModelGone
from service.server_health import ServerHealth
from service.settings import Settings

Status = Literal[
    "learned", "appended", "duplicate", "skipped", "waiting", "sampled_out", "late", "conflict", "unknown"
]


class UpdateResult(NamedTuple):
    """`probability` and `loss` are progressive: of the state just before the example was learned. Of a label
    for a logged prediction there is `prediction_id` in place of `event_id`.
    """

    status: Status
    probability: float | None
    loss: float | None
    event_id: str | None
    revision: str | None
    prediction_id: str | None = None


class Updates:
    def __init__(self, client: Redis, settings: Settings, health: ServerHealth, metrics: Metrics) -> None:
        self._client = client
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._appenders: dict[str, Appender] = {}  # by incarnation

    async def submit(self, model: OpenModel, examples: NewExamples, wait: bool) -> list[UpdateResult]:
        """Durable when it returns, and learned unless a status says "appended".

        Raises LogFull, UpdateUnavailable, StateUnavailable (the model was deleted meanwhile).
        """
        if not len(examples.batch):
            return []
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
            for entry in {place.entry for place, _ in placed if place.entry is not None}:
                await model.outcomes.learned(entry, deadline)
        return results_of(model, placed, examples.batch.labels)

    def _appender(self, model: OpenModel) -> Appender:
        keys = model.mirror.replica.keys
        appender = self._appenders.get(keys.incarnation)
        if appender is None:
            appender = Appender(self._client, keys, self._settings, self._metrics)
            self._appenders[keys.incarnation] = appender
            model.belongings.push_async_callback(self._close_appender, keys.incarnation)
        return appender

    async def _close_appender(self, incarnation: str) -> None:
        appender = self._appenders.pop(incarnation, None)
        if appender is not None:
            await appender.close()

    async def close(self) -> None:
        for incarnation in list(self._appenders):
            await self._close_appender(incarnation)


def results_of(
    model: OpenModel, placed: Sequence[Placed], labels: npt.NDArray[np.uint8]
) -> list[UpdateResult]:
    """What is known of examples in the log by now; labels uint8[r]."""
    held = model.outcomes.held
    outcomes = [None if place.entry is None else held(place.entry) for place, _ in placed]
    margins = np.array(
        [
            0.0 if outcome is None else outcome.margins[place.offset]
            for outcome, (place, _) in zip(outcomes, placed, strict=True)
        ]
    )
    probabilities = sigmoids(margins).tolist()
    losses = log_losses(margins, labels).tolist()
    return [
        _untold(model, place, event_id)
        if outcome is None
        else UpdateResult(_status(outcome, place), probability, loss, event_id, outcome.revision)
        for outcome, (place, event_id), probability, loss in zip(
            outcomes, placed, probabilities, losses, strict=True
        )
    ]


def _status(outcome: Outcome, place: Place) -> Status:
    if place.duplicate:
        return "duplicate"
    return "skipped" if outcome.skipped[place.offset] else "learned"


def _untold(model: OpenModel, place: Place, event_id: str) -> UpdateResult:
    """An outcome is not told by a state that was loaded whole, and is not held for ever."""
    learned = place.entry is not None and model.outcomes.knows(place.entry)
    status: Status = "learned" if learned else "appended"
    return UpdateResult("duplicate" if place.duplicate else status, None, None, event_id, None)
