"""What this process does with predictions that wait: keeps them, says that they were shown, labels them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from redis.asyncio import Redis
from redis.exceptions import BusyLoadingError, ResponseError

from service.coalescing import Asked, Coalescer
from service.errors import LabelsUnavailable, StateUnavailable
from service.evaluation.slice_names import SliceName
from service.example_log import raise_unless_transient
from service.feedback.identity import packed_id
from service.feedback.keeping import keep_waiting
from service.feedback.waiting import Label, Labelled, Waiting, key_of
from service.metrics import Metrics
from service.models import OpenModel
from service.redis_client import CONNECTION_FAILURES, Channel, NotSent
from service.replica import ModelGone
from service.server_health import ServerHealth
from service.settings import Settings

log = logging.getLogger(__name__)

MOST_A_CALL = 1000
TELL_EVERY_SECONDS = 60.0
PART_BYTES = 33 + 8  # of a bytes object and its place in a list, beyond its own
Reply = TypeVar("Reply")


class Served(NamedTuple):
    """Predictions to be kept. `entries`: as entries_of makes them; `look`: whether some may have been kept
    before; `slice_names`: values of sliced features that are new here; `pending_bytes`: what they count
    while nobody waits for them.
    """

    entries: Sequence[bytes]
    look: bool
    slice_names: Mapping[int, SliceName] = MappingProxyType({})
    pending_bytes: int = 0

    @property
    def predictions(self) -> int:
        return len(self.entries) // 2

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        return sum(map(len, self.entries)) + PART_BYTES * len(self.entries)


class _Timed(NamedTuple):
    """Ids or labels, to be answered before the deadline (time.monotonic())."""

    items: Sequence[Any]
    deadline: float


class ModelFeedback:
    """Of one incarnation of a model: requests that come together share a call."""

    def __init__(
        self, client: Redis, model: OpenModel, settings: Settings, health: ServerHealth, metrics: Metrics
    ) -> None:
        self._model = model
        self._settings = settings
        self._health = health
        self._metrics = metrics
        metrics.unlogged(model.name, "away", 0)  # there at 0, or Prometheus would miss the first ones
        metrics.unlogged(model.name, "full", 0)
        self._pending_bytes = 0  # of predictions that nobody waits for
        self._silent_until = 0.0
        self._waiting = Waiting(model.mirror.replica.keys, model.config.feedback, settings)
        self._channels = [Channel(client) for _ in range(3)]
        self._logging, exposing, labelling = self._channels
        self._log = Coalescer[Served, str](
            self._keep_together, lambda served: served.predictions, MOST_A_CALL
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

    async def keep(self, served: Served) -> str:
        """A letter for each prediction as log_predictions.lua says it, "A" where Redis is away or full."""
        try:
            return await self._log.submit(served) if self._may_keep() else self._lost(served.predictions)
        except StateUnavailable:  # the service stops
            return self._lost(served.predictions)

    def keep_soon(self, served: Served) -> bool:
        """Keeps them while nobody waits for it; whether that may be hoped for."""
        size = served.size
        if not self._may_keep() or self._pending_bytes + size > self._settings.pending_log_bytes:
            self._lost(served.predictions)
            return False
        self._pending_bytes += size
        self._log.submit_soon(served._replace(pending_bytes=size))
        return True

    def _may_keep(self) -> bool:
        return self._health.up and not self._health.shedding

    def _lost(self, count: int) -> str:
        reason: Literal["full", "away"] = "full" if self._health.shedding else "away"
        self._metrics.unlogged(self._model.name, reason, count)
        return "A" * count

    async def _keep_together(self, together: list[Asked[Served, str]]) -> None:
        """Whoever predicts does not wait for a server that is away."""
        requests = [asked.request for asked in together]
        self._pending_bytes -= sum(served.pending_bytes for served in requests)
        letters = await self._kept(requests)
        start = 0
        for asked in together:
            stop = start + asked.request.predictions
            asked.answer(letters[start:stop])
            start = stop

    async def _kept(self, requests: list[Served]) -> str:
        entries = [part for served in requests for part in served.entries]
        names = {hashed: name for served in requests for hashed, name in served.slice_names.items()}
        if not self._may_keep():
            return self._lost(len(entries) // 2)
        try:
            look = any(served.look for served in requests)
            letters = await keep_waiting(self._waiting, self._logging, entries, names, look)
        except CONNECTION_FAILURES:
            self._health.doubt()
            return self._lost(len(entries) // 2)
        except (ResponseError, ModelGone) as refusal:
            self._tell(refusal)
            return self._lost(len(entries) // 2)
        self._model.slices.told(names)
        if refused := letters.count("F"):
            self._metrics.unlogged(self._model.name, "full", refused)
        return letters

    def _tell(self, refusal: Exception) -> None:
        """Why a server that answers keeps nothing: once a minute, however many are refused."""
        if time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + TELL_EVERY_SECONDS
            log.warning("predictions of %s are not kept: %s", self._model.name, refusal)

    async def close(self) -> None:
        await self._log.drain(self._settings.redis_timeout_seconds)
        for coalescer in (self._log, self.expose, self.label):
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

    async def expose(self, model: OpenModel, ids: Sequence[str]) -> list[str]:
        """A letter for each id as expose.lua says it. Raises LabelsUnavailable, StateUnavailable."""
        keys = [key_of(packed_id(text)) for text in ids]
        return await self._answers(model, self.of(model).expose, keys, ids)

    async def label(
        self, model: OpenModel, labels: Sequence[tuple[str, int, float]], deadline: float
    ) -> list[Labelled]:
        """What became of (id, label, weight). Raises LogFull, LabelsUnavailable, StateUnavailable."""
        asked = [Label(key_of(packed_id(text)), label, weight) for text, label, weight in labels]
        ids = [text for text, _, _ in labels]
        answers = await self._answers(model, self.of(model).label, asked, ids, deadline)
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

    def of(self, model: OpenModel) -> ModelFeedback:
        incarnation = model.mirror.replica.keys.incarnation
        feedback = self._open.get(incarnation)
        if feedback is None:
            feedback = ModelFeedback(self._client, model, self._settings, self._health, self._metrics)
            self._open[incarnation] = feedback
            model.belongings.push_async_callback(self._close, incarnation)
        return feedback

    async def _close(self, incarnation: str) -> None:
        feedback = self._open.pop(incarnation, None)
        if feedback is not None:
            await feedback.close()

    async def close(self) -> None:
        for incarnation in list(self._open):
            await self._close(incarnation)


class _Unanswered(Exception):
    def __init__(self, may_have_happened: bool) -> None:
        super().__init__()
        self.outcome = "unknown" if may_have_happened else "not_appended"


async def _together(
    together: list[Asked[_Timed, list[Reply]]], call: Callable[[list[Any]], Awaitable[Sequence[Reply]]]
) -> None:
    """Answers each request from one call for all. Raises what _until_answered raises."""
    items = [item for asked in together for item in asked.request.items]
    answers = iter(await _until_answered(lambda: call(items), together[0].request.deadline))
    for asked in together:
        asked.answer(list(islice(answers, len(asked.request.items))))


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
