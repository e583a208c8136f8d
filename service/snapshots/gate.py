"""A model that has become worse than its last good snapshot goes back to it by itself, once.

Both are judged on the same examples, by what they predicted before either had learned from them: the model as
it learned along, the snapshot as it was. The difference of their losses, example by example, leaves out what
all predictions have in common; figures of another hour would roll back every evening.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from model_core.examples import ExampleBatch
from model_core.learning import Learned, predict_batch
from model_core.numerics import log_losses
from model_core.state import ModelState
from service.errors import ServiceError, StateUnavailable
from service.metrics import Metrics
from service.model_config import ModelConfig
from service.redis_client import CONNECTION_FAILURES, Channel, note_rollback
from service.redis_keys import LogEntry
from service.replica import Replica
from service.settings import Settings
from service.snapshots.catalogue import GOOD
from service.snapshots.config import AutoRollback
from service.snapshots.fitting import config_of
from service.snapshots.restore_plan import RestorePlan
from service.snapshots.restoring import restore
from service.snapshots.store import SnapshotStore
from service.tasks import cancel_all

log = logging.getLogger(__name__)

STANDARD_ERRORS = 3.0
ROLLED_BACK = "rolled_back"  # a field of meta, set by note_rollback.lua


class Verdict(NamedTuple):
    """Mean log losses by weight, the mean of their difference and its standard error."""

    live: float
    good: float
    difference: float
    error: float

    def is_worse(self, gate: AutoRollback) -> bool:
        return self.difference > gate.margin and self.difference > STANDARD_ERRORS * self.error


@dataclass
class Window:
    """Examples in the order of the log, each with the margin that was predicted before it was learned."""

    first_number: int = 0
    examples: int = 0
    batches: list[ExampleBatch] = field(default_factory=list)
    margins: list[npt.NDArray[np.float64]] = field(default_factory=list)
    skipped: list[npt.NDArray[np.uint8]] = field(default_factory=list)

    def add(self, number: int, batch: ExampleBatch, learned: Learned) -> None:
        if not self.batches:
            self.first_number = number
        self.examples += len(batch)
        self.batches.append(batch)
        self.margins.append(learned.margins)
        self.skipped.append(learned.skipped)


class Good(NamedTuple):
    """The newest good snapshot that has learned none of a window."""

    id: str
    config: ModelConfig
    state: ModelState


class RollbackGate:
    """Of one learner's model. It compares and restores in the background, while learning goes on."""

    def __init__(
        self, client: Redis, model: str, settings: Settings, store: SnapshotStore, metrics: Metrics
    ) -> None:
        self._model = model
        self._settings = settings
        self._store = store
        self._metrics = metrics
        self._channel = Channel(client)
        self._window = Window()
        self._generation = 0
        self._good: Good | None = None
        self._judging: asyncio.Task[None] | None = None

    def add(self, replica: Replica, entry: LogEntry, batch: ExampleBatch, learned: Learned) -> None:
        if replica.config.snapshots.auto_rollback is not None:
            self._window.add(entry.first_number or 0, batch, learned)

    def forget(self) -> None:
        """What was added was not committed, or the state is another."""
        self._window = Window()

    def judge(self, replica: Replica) -> None:
        """To be called between commits: compares, when there are examples enough."""
        gate = replica.config.snapshots.auto_rollback
        if gate is None:
            return
        if replica.generation != self._generation:
            self._generation = replica.generation
            self.forget()
        if self._window.examples >= gate.examples and (self._judging is None or self._judging.done()):
            window, self._window = self._window, Window()
            self._judging = asyncio.create_task(self._judge(window, replica, gate))

    async def close(self) -> None:
        if self._judging is not None:
            await cancel_all([self._judging])
        await self._channel.close()

    async def _judge(self, window: Window, replica: Replica, gate: AutoRollback) -> None:
        try:
            good = await asyncio.to_thread(self._good_before, window, replica)
            if good is None:
                log.debug("no good snapshot of %s to compare with", self._model)
                return
            verdict = await asyncio.to_thread(compare, window, good)
            log.debug("%s against snapshot %s: %s", self._model, good.id, verdict)
            if verdict.is_worse(gate):
                await self._roll_back(window, replica, good, verdict)
        except (ServiceError, *CONNECTION_FAILURES, ResponseError) as failure:
            log.error("%s is not compared with its good snapshot: %s", self._model, failure)  # noqa: TRY400

    async def _roll_back(self, window: Window, replica: Replica, good: Good, verdict: Verdict) -> None:
        why = (
            f"over {window.examples} examples from number {window.first_number} on its log loss was"
            f" {verdict.live:.5f}, that of snapshot {good.id} {verdict.good:.5f}: worse by"
            f" {verdict.difference:.5f}, {_ratio(verdict):.1f} standard errors"
        )
        status = await note_rollback(
            self._channel, replica.keys.meta, replica.keys.incarnation, replica.generation, good.id
        )
        if status == b"MOVED":
            log.info("%s was restored or deleted while it was compared, and stays as it is", self._model)
            return
        if status == b"AGAIN":
            log.error("model %s is bad again and stays so, as it went back once: %s", self._model, why)
            return
        log.error("model %s is rolled back: %s", self._model, why)
        plan = RestorePlan(self._model, good.id, may_create=False)
        try:
            await restore(self._channel, self._settings, self._store, plan)
        except StateUnavailable:  # it may have happened, and happens once
            raise
        except ServiceError:
            await self._channel.call("HDEL", replica.keys.meta, ROLLED_BACK)
            raise
        self._metrics.rollbacks.labels(self._model).inc()

    def _good_before(self, window: Window, replica: Replica) -> Good | None:
        """Blocks."""
        catalogue = self._store.of(self._model)
        for entry in reversed(catalogue.entries()):
            if GOOD not in entry.tags:
                continue
            if self._good is not None and self._good.id == entry.id:
                return self._good
            header = catalogue.header(entry)
            same_log = header.incarnation == replica.keys.incarnation
            if same_log and header.applied_number <= window.first_number:
                state = catalogue.load(entry).state()
                self._good = Good(entry.id, config_of(header), state)
                return self._good
        return None


def compare(window: Window, good: Good) -> Verdict:
    """Of the examples that could be learned, by their weights."""
    batch = ExampleBatch.concatenate(window.batches)
    hashing, hyper = good.config.hashing, good.config.hyper
    margins = predict_batch(good.state, hyper, hashing.bias, hashing.prior_offset, batch)
    learned = np.concatenate(window.skipped) == 0
    weights = np.where(learned, batch.weights if batch.weights.size else 1.0, 0.0)
    live = log_losses(np.where(learned, np.concatenate(window.margins), 0.0), batch.labels)
    snapshot = log_losses(margins, batch.labels)
    total = float(weights.sum())
    if not total:
        return Verdict(math.nan, math.nan, 0.0, 0.0)
    difference = live - snapshot
    mean = float(weights @ difference) / total
    error = math.sqrt(float((weights**2) @ (difference - mean) ** 2)) / total
    return Verdict(float(weights @ live) / total, float(weights @ snapshot) / total, mean, error)


def _ratio(verdict: Verdict) -> float:
    return verdict.difference / verdict.error if verdict.error else math.inf
