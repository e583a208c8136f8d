"""What /update does: put examples into the log, wait until this process's mirror has learned them, tell the
result.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Literal, NamedTuple

from redis.asyncio import Redis

from model_core.examples import ExampleBatch
from model_core.hashing import Encoded
from model_core.numerics import log_loss, sigmoid
from service.errors import LogFull, StateUnavailable, UpdateUnavailable
from service.example_log import ExampleLog, MicroBatch, Place
from service.metrics import Metrics
from service.models import OpenModel
from service.replica import ModelGone
from service.server_health import ServerHealth
from service.settings import Settings

MOST_EXAMPLES_AN_APPEND = 4096


class NewExample(NamedTuple):
    """One example of a request; `weight` is its weight over its sample rate."""

    encoded: Encoded
    label: int
    weight: float
    event_id: str | None
    event_time_ms: int | None


class UpdateResult(NamedTuple):
    """`probability` and `loss` are progressive: of the state just before the example was learned."""

    status: Literal["learned", "appended", "duplicate", "skipped"]
    probability: float | None
    loss: float | None
    event_id: str
    revision: str | None


class _Request(NamedTuple):
    examples: list[NewExample]
    deadline: float
    placed: asyncio.Future[list[tuple[Place, str]]]  # with each one's event id


class Appender:
    """Requests that arrive while an append is under way share the next one."""

    def __init__(self, client: Redis, model: OpenModel, settings: Settings, metrics: Metrics) -> None:
        self._log = ExampleLog(client, model.mirror.replica.keys, settings)
        self._model = model.name
        self._metrics = metrics
        self._requests: deque[_Request] = deque()
        self._appending: asyncio.Task[None] | None = None

    async def append(self, examples: list[NewExample], deadline: float) -> list[tuple[Place, str]]:
        """Raises what ExampleLog.append raises."""
        request = _Request(examples, deadline, asyncio.get_running_loop().create_future())
        self._requests.append(request)
        if self._appending is None:
            self._appending = asyncio.create_task(self._append_all())
        return await request.placed

    async def _append_all(self) -> None:
        try:
            while self._requests:
                await self._append_together(self._next_requests())
        finally:
            self._appending = None

    def _next_requests(self) -> list[_Request]:
        together = [self._requests.popleft()]
        count = len(together[0].examples)
        while self._requests and count + len(self._requests[0].examples) <= MOST_EXAMPLES_AN_APPEND:
            together.append(self._requests.popleft())
            count += len(together[-1].examples)
        return together

    async def _append_together(self, requests: list[_Request]) -> None:
        batch = MicroBatch()
        examples = [example for request in requests for example in request.examples]
        for example in examples:
            batch.add(example.event_id)
        started = time.monotonic()
        append = asyncio.create_task(self._log.append(batch, _records(examples, batch), requests[0].deadline))
        await asyncio.wait([append])
        if (failure := append.exception()) is not None:
            self._fail(requests, batch, failure)
            return
        self._metrics.appended_examples(self._model, len(examples), time.monotonic() - started)
        placed = zip(append.result(), batch.event_ids, strict=True)
        for request in requests:
            answer = [next(placed) for _ in request.examples]
            if not request.placed.cancelled():
                request.placed.set_result(answer)

    def _fail(self, requests: list[_Request], batch: MicroBatch, failure: BaseException) -> None:
        """Every request of the append fails alike, each told its own event ids."""
        ids = iter(batch.event_ids)
        for request in requests:
            own = [next(ids) for _ in request.examples]
            if not request.placed.cancelled():
                request.placed.set_exception(
                    UpdateUnavailable(failure.outcome, own)
                    if isinstance(failure, UpdateUnavailable)
                    else failure
                )

    async def close(self) -> None:
        await self._log.close()


class Updates:
    def __init__(self, client: Redis, settings: Settings, health: ServerHealth, metrics: Metrics) -> None:
        self._client = client
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._appenders: dict[str, Appender] = {}  # by incarnation

    async def submit(self, model: OpenModel, examples: list[NewExample], wait: bool) -> list[UpdateResult]:
        """Durable when it returns, and learned unless a status says "appended".

        Raises LogFull, UpdateUnavailable, StateUnavailable (the model was deleted meanwhile).
        """
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
        if wait:
            for entry in {place.entry for place, _ in placed if place.entry is not None}:
                await model.outcomes.learned(entry, deadline)
        return [
            self._result(model, place, event_id, e.label)
            for (place, event_id), e in zip(placed, examples, strict=True)
        ]

    def _appender(self, model: OpenModel) -> Appender:
        incarnation = model.mirror.replica.keys.incarnation
        appender = self._appenders.get(incarnation)
        if appender is None:
            appender = Appender(self._client, model, self._settings, self._metrics)
            self._appenders[incarnation] = appender
        return appender

    def _result(self, model: OpenModel, place: Place, event_id: str, label: int) -> UpdateResult:
        outcome = model.outcomes.held(place.entry) if place.entry is not None else None
        if outcome is None:
            learned = place.entry is not None and model.outcomes.knows(place.entry)
            status: Literal["learned", "appended", "duplicate"] = "learned" if learned else "appended"
            return UpdateResult("duplicate" if place.duplicate else status, None, None, event_id, None)
        margin = float(outcome.margins[place.offset])
        done: Literal["learned", "skipped"] = "skipped" if outcome.skipped[place.offset] else "learned"
        return UpdateResult(
            "duplicate" if place.duplicate else done,
            sigmoid(margin),
            log_loss(margin, label),
            event_id,
            outcome.revision,
        )

    async def close(self) -> None:
        for appender in self._appenders.values():
            await appender.close()


def _records(examples: list[NewExample], batch: MicroBatch) -> list[bytes]:
    return ExampleBatch.from_encoded(
        [example.encoded for example in examples],
        [example.label for example in examples],
        [example.weight for example in examples],
        [example.event_time_ms for example in examples],
        batch.digests(),
    ).to_records()
