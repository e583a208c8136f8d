"""New examples on their way into the log: requests that arrive together share an append."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import NamedTuple

from redis.asyncio import Redis

from model_core.examples import ExampleBatch
from model_core.hashing import Encoded
from service.errors import NO_ANSWER, AppendOutcome, StateUnavailable, UpdateUnavailable
from service.evaluation.slice_names import SliceName
from service.example_log import ExampleLog, MicroBatch, Place, share_out
from service.metrics import Metrics
from service.redis_keys import ModelKeys
from service.settings import Settings
from service.tasks import cancel_all

MOST_EXAMPLES_AN_APPEND = 4096
STOPPING = "The service is stopping."
A_MOMENT_SECONDS = 0.1
"""Requests whose deadlines are so close fail together, a little early: what is left is then built anew."""


class NewExample(NamedTuple):
    """One example of a request; `weight` is its weight over its sample rate."""

    encoded: Encoded
    label: int
    weight: float
    event_id: str | None
    event_time_ms: int | None


class NewExamples(NamedTuple):
    """The examples of a request, in order, the event ids that the caller gave, and the values of sliced
    features that are new here.
    """

    batch: ExampleBatch
    event_ids: Sequence[str | None] | None = None
    slice_names: Mapping[int, SliceName] = MappingProxyType({})

    @classmethod
    def of(cls, examples: Sequence[NewExample]) -> NewExamples:
        batch = ExampleBatch.from_encoded(
            [example.encoded for example in examples],
            [example.label for example in examples],
            [example.weight for example in examples],
            [example.event_time_ms for example in examples],
        )
        return cls(batch, [example.event_id for example in examples])


class Placed(NamedTuple):
    """Where the examples of a request stand in the log, and the event ids under which a retry finds them."""

    places: list[Place]
    event_ids: list[str]


class _Request(NamedTuple):
    examples: NewExamples
    deadline: float
    placed: asyncio.Future[Placed]


class Appender:
    """Requests that arrive while an append is under way share the next one."""

    def __init__(self, client: Redis, keys: ModelKeys, settings: Settings, metrics: Metrics) -> None:
        self._log = ExampleLog(client, keys, settings, partial(metrics.lost_examples, keys.model))
        self._model = keys.model
        self._metrics = metrics
        self._requests: deque[_Request] = deque()
        self._appending: asyncio.Task[None] | None = None

    async def append(self, examples: NewExamples, deadline: float) -> Placed:
        """Raises what ExampleLog.append raises."""
        request = _Request(examples, deadline, asyncio.get_running_loop().create_future())
        self._requests.append(request)
        if self._appending is None:
            self._appending = asyncio.create_task(self._append_all())
        return await request.placed

    async def _append_all(self) -> None:
        try:
            while self._requests:
                requests = self._next_requests()
                together = asyncio.create_task(self._append_together(requests))
                try:
                    await asyncio.wait([together])
                finally:  # also where this is called off: nobody may be left without an answer
                    await cancel_all([together])
                    if (failure := _failure_of(together)) is not None:
                        _answer_all(requests, failure)
        finally:
            self._appending = None

    def _next_requests(self) -> list[_Request]:
        together = [self._requests.popleft()]
        count = len(together[0].examples.batch)
        while self._requests and count + len(self._requests[0].examples.batch) <= MOST_EXAMPLES_AN_APPEND:
            together.append(self._requests.popleft())
            count += len(together[-1].examples.batch)
        return together

    async def _append_together(self, requests: list[_Request]) -> None:
        """Each fails at its own deadline only, whatever it shares an append with."""
        while requests:
            micro_batch = MicroBatch()
            for request in requests:
                micro_batch.extend(request.examples.event_ids or [None] * len(request.examples.batch))
                micro_batch.slice_names.update(request.examples.slice_names)
            examples = ExampleBatch.concatenate([request.examples.batch for request in requests])
            records = replace(examples, event_ids=micro_batch.digests).to_records()
            try:
                requests = await self._append(requests, micro_batch, records)
            except asyncio.CancelledError:  # the service stops while the server may be appending
                _refuse(requests, micro_batch, "unknown", why=STOPPING)
                raise

    async def _append(
        self, requests: list[_Request], micro_batch: MicroBatch, records: list[bytes]
    ) -> list[_Request]:
        """Returns those that certainly are not in the log and still have time. Where it is not known, the
        micro-batch is tried again as it is.
        """
        started = time.monotonic()
        while pending := [request for request in requests if not request.placed.done()]:
            deadline = pending[0].deadline
            try:
                places = await self._log.append(micro_batch, records, deadline)
            except UpdateUnavailable as failure:
                _refuse(requests, micro_batch, failure.outcome, deadline + A_MOMENT_SECONDS)
                if failure.outcome == "not_appended":
                    return [request for request in pending if not request.placed.done()]
            else:
                self._metrics.appended_examples(self._model, len(records), time.monotonic() - started)
                _answer(requests, places, micro_batch)
                break
        return []

    async def close(self) -> None:
        if self._appending is not None:
            await cancel_all([self._appending])
        _answer_all(self._requests, UpdateUnavailable("not_appended", [], STOPPING))
        await self._log.close()


def _bounds(requests: list[_Request]) -> Iterable[tuple[int, int]]:
    """Which examples of the append are those of each request."""
    return pairwise(accumulate((len(request.examples.batch) for request in requests), initial=0))


def _answer(requests: list[_Request], places: list[Place], micro_batch: MicroBatch) -> None:
    shares = share_out(places, (len(request.examples.batch) for request in requests))
    for request, share, (start, stop) in zip(requests, shares, _bounds(requests), strict=True):
        if not request.placed.done():
            request.placed.set_result(Placed(share, micro_batch.event_ids[start:stop]))


def _refuse(
    requests: list[_Request],
    micro_batch: MicroBatch,
    outcome: AppendOutcome,
    latest: float = math.inf,
    why: str = NO_ANSWER,
) -> None:
    """Those whose deadline is not after `latest`, each told its own event ids."""
    for request, (start, stop) in zip(requests, _bounds(requests), strict=True):
        if request.deadline <= latest:
            _answer_all([request], UpdateUnavailable(outcome, micro_batch.event_ids[start:stop], why))


def _answer_all(requests: Iterable[_Request], failure: BaseException) -> None:
    for request in requests:
        if not request.placed.done():
            request.placed.set_exception(failure)


def _failure_of(task: asyncio.Task[None]) -> BaseException | None:
    if task.cancelled():
        return StateUnavailable(STOPPING)
    return task.exception()
