"""Logging, exposing and labelling predictions from this process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from redis.exceptions import ResponseError

from service.errors import LabelsUnavailable, ModelDeleted
from service.example_log.appender import CLOSE_DEADLINES_SECONDS
from service.example_log.ids import packed_id
from service.example_log.stream import AcknowledgedEntries, Appended
from service.feedback.recorder import MAX_PER_CALL, Recorder
from service.feedback.store import Label, PendingStore, key_of
from service.models.registry import OpenModel
from service.models.replica import ModelGone
from service.runtime.coalescer import Asked, Coalescer
from service.settings.groups import FeedbackSettings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, Attempts, Unanswered
from service.storage.health import ServerHealth
from service.storage.scripts.feedback import Exposure, Labelled, LabelOutcome
from service.storage.scripts.log import LoggedExample
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics

Reply = TypeVar("Reply")


class _Timed(NamedTuple):
    """Ids or labels, to be answered before the deadline (time.monotonic())."""

    items: Sequence[Any]
    deadline: float


_NEW = (LabelOutcome.JOINED, LabelOutcome.JOINED_LATE)
"""The label has put an example into the log."""
_FIRST = (*_NEW, LabelOutcome.SAMPLED_OUT, LabelOutcome.PENDING, LabelOutcome.LATE)
"""No label of this prediction came before."""


class ModelFeedback:
    """The feedback of one incarnation of a model: concurrent requests share a call."""

    def __init__(
        self,
        topology: Topology,
        model: OpenModel,
        settings: FeedbackSettings,
        health: ServerHealth,
        metrics: Metrics,
    ) -> None:
        replica = model.mirror.replica
        self._pending = pending = PendingStore(
            replica.keys, model.config.feedback, settings, replica.feedback
        )
        self._channels = [Channel(topology, shared="requests") for _ in range(2)]
        exposing, self._labelling = self._channels
        self._acknowledged = AcknowledgedEntries(replica.keys, partial(metrics.lost_examples, model.name))
        metrics.lost_examples(model.name, 0)  # from 0, or Prometheus would miss the first increase
        self.predictions = Recorder(
            pending, Channel(topology, shared="requests"), model, settings, health, metrics
        )
        self.expose = Coalescer[_Timed, list[Exposure]](
            lambda requests: _together(requests, lambda keys: pending.expose(exposing, keys)), MAX_PER_CALL
        )
        self.label = Coalescer[_Timed, list[Labelled]](
            lambda requests: _together(requests, self._label), MAX_PER_CALL
        )

    async def _label(self, labels: list[Label]) -> list[Labelled]:
        answers = await self._pending.label(self._labelling, labels)
        with contextlib.suppress(*CONNECTION_FAILURES, ResponseError):  # then after the next labels
            await self._acknowledged.check(self._labelling)
        new = [
            LoggedExample(answer.place[0], label.key)
            for label, answer in zip(labels, answers, strict=True)
            if answer.place and answer.outcome in _NEW
        ]
        counts = Counter(example.entry for example in new)
        one_of_each = {example.entry: example for example in new}
        self._acknowledged.add(Appended(one_of_each[entry], count) for entry, count in counts.items())
        return answers

    async def close(self) -> None:
        await self.predictions.close()
        for coalescer in (self.expose, self.label):
            await coalescer.close()
        for channel in self._channels:
            await channel.close()


class Feedback:
    def __init__(
        self, topology: Topology, settings: FeedbackSettings, health: ServerHealth, metrics: Metrics
    ) -> None:
        self._topology = topology
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._open: dict[str, ModelFeedback] = {}  # by incarnation

    async def expose(self, model: OpenModel, ids: Sequence[str]) -> list[Exposure]:
        """Reports predictions as shown. Raises LabelsUnavailable, StateUnavailable."""
        keys = [key_of(packed_id(text)) for text in ids]
        return await self._answers(model, self.of(model).expose, keys, ids)

    def soon(self) -> float:
        """The time (time.monotonic()) by which a healthy server answers a single call."""
        return time.monotonic() + self._settings.redis_timeout_seconds

    async def label(
        self, model: OpenModel, labels: Sequence[tuple[str, float, float]], deadline: float
    ) -> list[Labelled]:
        """Labels predictions by (id, label, weight). Raises LogFull, LabelsUnavailable, StateUnavailable."""
        asked = [Label(key_of(packed_id(text)), label, weight) for text, label, weight in labels]
        ids = [text for text, _, _ in labels]
        answers = await self._answers(model, self.of(model).label, asked, ids, deadline)
        for answer in answers:
            if answer.delay is not None and answer.outcome in _FIRST:
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
            for start in range(0, len(items), MAX_PER_CALL):
                part = items[start : start + MAX_PER_CALL]
                answers += await coalescer.submit(_Timed(part, until), len(part))
        except ModelGone:
            raise ModelDeleted(model.name) from None
        except _Unanswered as failure:
            may_have_happened = bool(answers) or failure.may_have_happened
            outcome = "unknown" if may_have_happened else "not_appended"
            self._health.doubt_writes(model.name)
            raise LabelsUnavailable(outcome, ids, failure.why) from None
        return answers

    def of(self, model: OpenModel) -> ModelFeedback:
        """Raises ModelDeleted if the model is no longer followed."""
        incarnation = model.mirror.replica.keys.incarnation
        feedback = self._open.get(incarnation)
        if feedback is None:
            model.belongs(self._close, incarnation)
            feedback = ModelFeedback(self._topology, model, self._settings, self._health, self._metrics)
            self._open[incarnation] = feedback
        return feedback

    async def _close(self, incarnation: str) -> None:
        feedback = self._open.pop(incarnation, None)
        if feedback is not None:
            await feedback.close()

    async def close(self) -> None:
        """Closes all concurrently: each may wait for a server that is down."""
        await asyncio.gather(*map(self._close, list(self._open)))


class _Unanswered(Exception):
    def __init__(self, attempts: Attempts) -> None:
        super().__init__(attempts.why)
        self.may_have_happened = attempts.may_have_happened
        self.why = attempts.why


async def _together(
    together: list[Asked[_Timed, list[Reply]]], call: Callable[[list[Any]], Awaitable[Sequence[Reply]]]
) -> None:
    """Answers each request from one call for all; each fails at its own deadline only.

    Raises LogFull, StateUnavailable.
    """
    attempts = Attempts()
    while together:
        items = [item for asked in together for item in asked.request.items]
        deadline = min(asked.request.deadline for asked in together)
        try:
            answers = iter(await attempts.until_answered(partial(call, items), deadline))
        except Unanswered:
            for asked in together:
                if asked.request.deadline <= deadline + CLOSE_DEADLINES_SECONDS:
                    asked.refuse(_Unanswered(attempts))
            together = [asked for asked in together if asked.waits]
        else:
            for asked in together:
                asked.answer(list(islice(answers, asked.size)))
            return
