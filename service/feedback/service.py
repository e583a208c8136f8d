"""What this process does with predictions that wait: keeps them, says that they were shown, labels them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from redis.asyncio import Redis
from redis.exceptions import BusyLoadingError, ResponseError

from model_core.examples import ExampleBatch
from service.coalescing import Coalescer
from service.errors import LabelsUnavailable, StateUnavailable
from service.evaluation.slice_names import SliceName
from service.example_log import raise_unless_transient
from service.feedback.identity import packed_id
from service.feedback.waiting import Label, Labelled, Waiting, key_of, value_of
from service.metrics import Metrics
from service.models import OpenModel
from service.redis_client import CONNECTION_FAILURES, Channel, NotSent
from service.replica import ModelGone
from service.server_health import ServerHealth
from service.settings import Settings

MOST_A_CALL = 1000
Reply = TypeVar("Reply")


class Served(NamedTuple):
    """Predictions to be kept. `ids`: 16 bytes each; `look`: whether some may have been kept before;
    `slice_names`: values of sliced features that are new here.
    """

    batch: ExampleBatch
    margins: npt.NDArray[np.float64]
    ids: Sequence[bytes]
    generation: int
    commit: int
    look: bool
    slice_names: Mapping[int, SliceName] = MappingProxyType({})


class _Timed(NamedTuple):
    """Ids or labels, to be answered before the deadline (time.monotonic())."""

    items: Sequence[Any]
    deadline: float


class ModelFeedback:
    """Of one incarnation of a model: requests that come together share a call."""

    def __init__(self, client: Redis, model: OpenModel, settings: Settings) -> None:
        self._waiting = Waiting(model.mirror.replica.keys, model.config.feedback, settings)
        self._channels = [Channel(client) for _ in range(3)]
        logging, exposing, labelling = self._channels
        self.log = Coalescer[Served, str](
            lambda requests: self._log(logging, requests), lambda served: len(served.ids), MOST_A_CALL
        )
        self.expose = Coalescer[_Timed, list[str]](
            lambda requests: _together(requests, lambda keys: self._waiting.expose(exposing, keys)),
            lambda timed: len(timed.items),
            MOST_A_CALL,
        )
        self.label = Coalescer[_Timed, list[Labelled]](
            lambda requests: _together(requests, lambda labels: self._waiting.label(labelling, labels)),
            lambda timed: len(timed.items),
            MOST_A_CALL,
        )

    async def _log(self, channel: Channel, requests: list[Served]) -> list[str]:
        """One attempt: whoever predicts does not wait for a server that is away."""
        records = ExampleBatch.concatenate([_features_of(served.batch) for served in requests]).to_records()
        following = iter(records)
        values = [
            (key_of(i), value_of(i, served.generation, served.commit, margin, next(following)))
            for served in requests
            for i, margin in zip(served.ids, served.margins.tolist(), strict=True)
        ]
        if names := {hashed: name for served in requests for hashed, name in served.slice_names.items()}:
            await self._waiting.note_slices(channel, names)
        letters = await self._waiting.log(channel, values, any(served.look for served in requests))
        return [letters[a:b] for a, b in pairwise(accumulate((len(s.ids) for s in requests), initial=0))]

    async def close(self) -> None:
        for coalescer in (self.log, self.expose, self.label):
            await coalescer.close()
        for channel in self._channels:
            await channel.close()


class Feedback:
    def __init__(self, client: Redis, settings: Settings, health: ServerHealth, metrics: Metrics) -> None:
        self._client = client
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._open: dict[str, ModelFeedback] = {}  # by incarnation
        self._keeping: set[asyncio.Task[str]] = set()

    async def keep(self, model: OpenModel, served: Served) -> str:
        """A letter for each prediction as log_predictions.lua says it, "A" where Redis is away or full."""
        lost = "A" * len(served.ids)
        if self._health.shedding or not self._health.up:
            return self._kept(model, lost)
        try:
            letters = await self._of(model).log.submit(served)
            model.slices.told(served.slice_names)
            return self._kept(model, letters)
        except (*CONNECTION_FAILURES, ResponseError, ModelGone, StateUnavailable):
            return self._kept(model, lost)

    def keep_soon(self, model: OpenModel, served: Served) -> bool:
        """Keeps them while nobody waits for it; whether that may be hoped for."""
        task = asyncio.create_task(self.keep(model, served))
        self._keeping.add(task)  # the loop holds tasks weakly
        task.add_done_callback(self._keeping.discard)
        return self._health.up and not self._health.shedding

    def _kept(self, model: OpenModel, letters: str) -> str:
        self._metrics.unlogged(model.name, away=letters.count("A"), full=letters.count("F"))
        return letters

    async def expose(self, model: OpenModel, ids: Sequence[str]) -> list[str]:
        """A letter for each id as expose.lua says it. Raises LabelsUnavailable, StateUnavailable."""
        keys = [key_of(packed_id(text)) for text in ids]
        return await self._answers(model, self._of(model).expose, keys, ids)

    async def label(
        self, model: OpenModel, labels: Sequence[tuple[str, int, float]], deadline: float
    ) -> list[Labelled]:
        """What became of (id, label, weight). Raises LogFull, LabelsUnavailable, StateUnavailable."""
        asked = [Label(key_of(packed_id(text)), label, weight) for text, label, weight in labels]
        ids = [text for text, _, _ in labels]
        answers = await self._answers(model, self._of(model).label, asked, ids, deadline)
        for answer in answers:
            if answer.delay is not None and answer.letter in "JW":
                self._metrics.label_arrived(model.name, answer.delay)
        return answers

    async def _answers(
        self,
        model: OpenModel,
        coalescer: Coalescer[_Timed, list[Reply]],
        items: Sequence[Any],
        ids: Sequence[str],
        deadline: float | None = None,
    ) -> list[Reply]:
        until = deadline or time.monotonic() + self._settings.update_timeout_seconds
        answers: list[Reply] = []
        try:
            for start in range(0, len(items), MOST_A_CALL):
                answers += await coalescer.submit(_Timed(items[start : start + MOST_A_CALL], until))
        except ModelGone:
            raise StateUnavailable(f"Model {model.name!r} was deleted or created anew.") from None
        except _Unanswered as failure:
            raise LabelsUnavailable(failure.outcome, ids) from None
        return answers

    def _of(self, model: OpenModel) -> ModelFeedback:
        incarnation = model.mirror.replica.keys.incarnation
        if incarnation not in self._open:
            self._open[incarnation] = ModelFeedback(self._client, model, self._settings)
            model.belongings.push_async_callback(self._close, incarnation)
        return self._open[incarnation]

    async def _close(self, incarnation: str) -> None:
        feedback = self._open.pop(incarnation, None)
        if feedback is not None:
            await feedback.close()

    async def close(self) -> None:
        await asyncio.gather(*self._keeping)  # each has the time-out of a call
        for incarnation in list(self._open):
            await self._close(incarnation)


class _Unanswered(Exception):
    def __init__(self, may_have_happened: bool) -> None:
        super().__init__()
        self.outcome = "unknown" if may_have_happened else "not_appended"


async def _together(
    requests: list[_Timed], call: Callable[[list[Any]], Awaitable[Sequence[Reply]]]
) -> list[list[Reply]]:
    """The answers of each request, from one call for all. Raises what _until_answered raises."""
    items = [item for request in requests for item in request.items]
    answers = list(await _until_answered(lambda: call(items), requests[0].deadline))
    bounds = pairwise(accumulate((len(request.items) for request in requests), initial=0))
    return [answers[a:b] for a, b in bounds]


async def _until_answered(call: Callable[[], Awaitable[Sequence[Reply]]], deadline: float) -> Sequence[Reply]:
    """Repeats a call that may be repeated, until time.monotonic() is `deadline`.

    Raises LogFull, StateUnavailable, and _Unanswered.
    """
    may_have_happened, pause = False, 0.01
    while True:
        try:
            return await call()
        except (NotSent, BusyLoadingError):
            pass
        except ResponseError as refusal:
            raise_unless_transient(refusal)
        except CONNECTION_FAILURES:
            may_have_happened = True
        if time.monotonic() + pause >= deadline:
            raise _Unanswered(may_have_happened)
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.2)


def _features_of(batch: ExampleBatch) -> ExampleBatch:
    """Without what a request may say of a label."""
    return batch if not batch.weights.size else replace(batch, weights=batch.weights[:0])
