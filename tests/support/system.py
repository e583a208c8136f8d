"""The service without HTTP, in the test's own loop: models, updates and learners against a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from redis.asyncio import Redis

from model_core.examples.batch import ExampleBatch
from model_core.learning.state import ModelState
from model_core.warm_up import warm_up
from service.errors import LOST, UpdateUnavailable
from service.example_log.appender import (
    UpdateResults,
    Updates,
    UpdateStatus,
    is_in_log,
    results_of,
    until_learned,
)
from service.example_log.incoming import NewExample, NewExamples
from service.feedback.service import Feedback
from service.learning.learners import Learners
from service.models.config.model import ModelConfig
from service.models.evaluation.slices import unpack_names
from service.models.evaluation.state import Evaluations
from service.models.registry import Models, OpenModel
from service.models.replica import Replica, load_replica, read_meta
from service.runtime.tasks import cancel_all
from service.settings import Settings
from service.snapshots.restore.shortcut import shortcut_of
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import Channel
from service.storage.health import ServerHealth
from service.storage.records import LogEntry
from service.storage.scripts.commit import read_evaluation
from service.storage.topology import Topology, connect
from service.telemetry.metrics import Metrics
from tests.support.waiting import until


class Result(NamedTuple):
    """Of one example; None where nothing is known."""

    status: UpdateStatus
    probability: float | None
    loss: float | None
    revision: str | None
    event_id: str


class System:
    """One process's worth of parts; several of them on one server are several processes."""

    def __init__(self, settings: Settings) -> None:
        assert settings.redis_url is not None
        self.settings = settings
        self.topology = connect(settings, settings.redis_url)
        self.health = ServerHealth(self.topology, settings)
        self.metrics = Metrics()
        self.models = Models(self.topology, settings, shortcut_of(settings, SnapshotStore(settings)))
        self.updates = Updates(self.topology, settings, self.health, self.metrics)
        self.feedback = Feedback(self.topology, settings, self.health, self.metrics)
        self._tasks: list[asyncio.Task[None]] = []

    @cached_property
    def client(self) -> Redis:
        """A client of the test's own, for a single server."""
        client: Redis = Redis.from_url(str(self.settings.redis_url), protocol=2)
        return client

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(warm_up)
        await self.health.check()
        self._tasks.append(asyncio.create_task(self.health.watch()))
        return self

    async def __aexit__(self, *exception: object) -> None:
        await cancel_all(self._tasks)
        await self.feedback.close()
        await self.updates.close()
        await self.models.close()
        await self.health.close()
        await self.topology.close()
        if "client" in self.__dict__:
            await self.client.aclose()

    def learn(self) -> asyncio.Task[None]:
        """Starts learners for all models."""
        learners = Learners(self.topology, self.models, self.settings, self.health, self.metrics)
        self._tasks.append(asyncio.create_task(learners.run()))
        return self._tasks[-1]

    async def model(self, config: ModelConfig | None = None, name: str = "clicks") -> OpenModel:
        model, _ = await self.models.create(name, config or ModelConfig())
        return model

    async def submit(self, model: OpenModel, new: NewExamples, wait: bool) -> UpdateResults:
        deadline = time.monotonic() + self.settings.update_timeout_seconds
        placed = await self.updates.append(model, new, deadline)
        if wait:
            await until_learned(model, placed.places, deadline)
        if not await is_in_log(model, placed):
            raise UpdateUnavailable("unknown", placed.event_ids, LOST)
        return results_of(model, placed, new.batch.labels)

    async def update(
        self, model: OpenModel, count: int = 1, start: int = 0, wait: bool = True, event_ids: bool = False
    ) -> list[Result]:
        new = NewExamples.of(examples(model, count, start, event_ids))
        results = await self.submit(model, new, wait)
        known = [
            [None if np.isnan(value) else value for value in column.tolist()]
            for column in (results.probabilities, results.losses)
        ]
        columns = (results.statuses, *known, results.revisions, results.ids)
        return [Result(*row) for row in zip(*columns, strict=True)]


def examples(model: OpenModel, count: int, start: int = 0, event_ids: bool = False) -> list[NewExample]:
    """Examples that differ, with some features in common; example i is the same whenever it is made."""
    return [
        NewExample(
            model.encoder.encode({"user": f"u{i % 97}", "ad": f"a{i % 13}", "hour": i % 24, "n": f"x{i}"}),
            int(i % 7 == 0),
            1.0,
            f"event-{i}" if event_ids else None,
            None,
        )
        for i in range(start, start + count)
    ]


async def read_log(topology: Topology, replica: Replica) -> list[LogEntry]:
    async with _OneErrand(topology) as channel:
        found = await channel.call("XRANGE", replica.keys.log, "-", "+")
    return [LogEntry.parse(entry, fields) for entry, fields in found]


async def checkpointed(topology: Topology, model: str = "clicks") -> None:
    """Waits until the rows in Redis are those of the last commit."""
    async with _OneErrand(topology) as channel:

        async def is_complete() -> bool:
            meta = await read_meta(channel, model)
            return meta.checkpoint is None or meta.checkpoint.token == meta.token

        await until(is_complete)


async def stored(topology: Topology, model: str = "clicks") -> Replica:
    """The model as Redis holds it, loaded without a mirror."""
    async with _OneErrand(topology) as channel:
        return await load_replica(channel, model)


def stored_now(redis_url: str, model: str) -> Replica:
    """The stored model, for tests without a loop of their own."""

    async def read() -> Replica:
        topology = connect(Settings(redis_url=redis_url), redis_url)
        try:
            return await stored(topology, model)
        finally:
            await topology.close()

    return asyncio.run(read())


async def stored_evaluation(topology: Topology, replica: Replica) -> Evaluations:
    """The evaluation as Redis holds it, read without a learner."""
    async with _OneErrand(topology) as channel:
        found = await read_evaluation(channel, replica.keys, replica.token)
    assert found is not None
    evaluations = Evaluations.from_fields(replica.config.evaluation, found.fields)
    evaluations.know(unpack_names(found.slices.items()))
    return evaluations


def evaluation_of_a_pass(entries: Sequence[LogEntry], like: Evaluations, config: ModelConfig) -> Evaluations:
    """Of a single-threaded pass over the log, with the slices of `like` known from the start."""
    state, evaluations = config.empty_state(), Evaluations(config.evaluation)
    evaluations.know(like.names)
    for entry in entries:
        batch = ExampleBatch.from_bytes(entry.records)
        learned = config.learn(state, batch, entry.id.milliseconds)
        margins = np.where(learned.skipped, np.nan, learned.margins)
        evaluations.add(margins, batch, entry.id.milliseconds)
    return evaluations


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def pass_over(entries: Sequence[LogEntry], config: ModelConfig) -> ModelState:
    """A single-threaded pass of the numeric core over the log, in one batch."""
    state = config.empty_state()
    batches = [ExampleBatch.from_bytes(entry.records).dated(entry.id.milliseconds) for entry in entries]
    config.learn(state, ExampleBatch.concatenate(batches))
    return state


async def assert_state_is_a_pass_over_the_log(topology: Topology, model: str = "clicks") -> Replica:
    """Invariant 1, once everything in the log is learned; the evaluation is that of the pass too."""
    replica = await stored(topology, model)
    entries = await read_log(topology, replica)
    assert entries[0].first_number == 0, "the log was trimmed: this check needs all of it"
    await assert_state_is_a_pass_over(topology, replica, entries)
    return replica


async def assert_state_is_a_pass_over(
    topology: Topology, replica: Replica, entries: Sequence[LogEntry]
) -> None:
    """What is stored, over all entries that the log ever had. How a challenger compares with its champion
    depends on both, and is left out.
    """
    entries = [entry for entry in entries if entry.id <= replica.applied]
    state = pass_over(entries, replica.config)
    assert state.t == replica.state.t
    assert state.digest() == replica.state.digest()
    evaluation = await stored_evaluation(topology, replica)
    evaluation.comparison = None
    assert evaluation.fields() == evaluation_of_a_pass(entries, evaluation, replica.config).fields()


class _OneErrand:
    def __init__(self, topology: Topology) -> None:
        self._channel = Channel(topology)

    async def __aenter__(self) -> Channel:
        return self._channel

    async def __aexit__(self, *exception: object) -> None:
        await self._channel.close()
