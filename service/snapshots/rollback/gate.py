"""Automatic rollback, once, of a model that has become worse than its last good snapshot.

Both are compared on the same, most recent examples, by what they predicted before learning from them: the
model while it learned, the snapshot as it was. The difference of their losses, example by example, cancels
what all predictions have in common; figures of different hours would cause a rollback every evening.

The labels that arrive decide. While wrong labels arrive, a model that learns them predicts them better than
one that does not, so the harm shows only once right labels arrive again. A model that is worse on what it
learns is noticed at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from redis.exceptions import ResponseError

from model_core.examples.batch import ExampleBatch
from model_core.learning.rounds import Learned
from service.errors import ServiceError
from service.models.config.sections import AutoRollback
from service.models.replica import Replica
from service.runtime.tasks import begin, cancel_all
from service.snapshots.restore.restore import RestorePlan, restore
from service.snapshots.rollback.paired_losses import GoodModel, PairedLosses, Verdict
from service.snapshots.store.catalogue import GOOD, SnapshotStore
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import LogEntry
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_META_FIELDS = ("incarnation", "generation", "rolled_back")
"""The last is the snapshot of the latest automatic rollback, set by restore.lua."""
CHECKS_PER_WINDOW = 10
MAX_PENDING = 50_000
STORE_POLL_SECONDS = 0.2  # polling the store for a newer good snapshot costs money


class Seen(NamedTuple):
    """A log entry that was learned; `number` is that of its first example."""

    number: int
    batch: ExampleBatch
    learned: Learned


class RollbackGate:
    """Compares one learner's model with its good snapshot, and rolls it back, while learning goes on.

    Holds the losses of one window of examples, the weights of the good snapshot, and the newest examples that
    are not yet compared, at most MAX_PENDING or a window: older ones are dropped if the store is slow.
    """

    def __init__(
        self,
        topology: Topology,
        model: str,
        store: SnapshotStore,
        metrics: Metrics,
    ) -> None:
        self._model = model
        self._store = store
        self._metrics = metrics
        self._channel = Channel(topology)
        self._seen: deque[Seen] = deque()
        self._pending = 0  # examples in `_seen`
        self._losses: PairedLosses | None = None
        self._resets = 0
        self._polled = 0.0
        self._generation = 0
        self._judging: asyncio.Task[None] | None = None

    def add(self, replica: Replica, entry: LogEntry, batch: ExampleBatch, learned: Learned) -> None:
        gate = replica.config.snapshots.auto_rollback
        if gate is None:
            return
        self._seen.append(Seen(entry.first_number or 0, batch, learned))
        self._pending += len(batch)
        while self._pending - len(self._seen[0].batch) >= max(gate.examples, MAX_PENDING):
            self._pending -= len(self._seen.popleft().batch)

    def reset(self) -> None:
        """Drop all that was added: it was not committed, or the state or the learner is another one."""
        self._seen, self._pending = deque(), 0
        self._losses = None
        self._resets += 1

    def judge(self, replica: Replica) -> None:
        """Start a comparison if there are enough examples; to be called between commits."""
        gate = replica.config.snapshots.auto_rollback
        if gate is None:
            return
        if replica.generation != self._generation:
            self._generation = replica.generation
            self.reset()
        ready = self._pending >= _examples_per_check(gate)
        if ready and (self._judging is None or self._judging.done()):
            seen, self._seen, self._pending = self._seen, deque(), 0
            judging = self._judge(seen, replica, gate)
            self._judging = begin(judging, f"{self._model} was not compared with its good snapshot")

    async def close(self) -> None:
        if self._judging is not None:
            await cancel_all([self._judging])
        await self._channel.close()

    async def _judge(self, seen: Sequence[Seen], replica: Replica, gate: AutoRollback) -> None:
        resets = self._resets
        try:
            losses, verdict = await asyncio.to_thread(self._compare, self._losses, seen, replica, gate)
            if self._resets != resets:
                return
            self._losses = losses if verdict is None else None
            if losses is not None and verdict is not None:
                await self._roll_back(replica, losses, verdict)
        except (ServiceError, *CONNECTION_FAILURES, ResponseError) as failure:
            log.error("%s was not compared with its good snapshot: %s", self._model, failure)  # noqa: TRY400

    async def _roll_back(self, replica: Replica, losses: PairedLosses, verdict: Verdict) -> None:
        good = losses.good
        why = (
            f"over the {len(losses)} examples before number {losses.end} its log loss was {verdict.live:.5f},"
            f" that of snapshot {good.id} {verdict.good:.5f}: worse by {verdict.difference:.5f},"
            f" {verdict.standard_errors:.1f} standard errors"
        )
        generation = (replica.keys.incarnation, replica.generation)
        *there, rolled_back = await self._channel.call("HMGET", replica.keys.meta, *_META_FIELDS)
        if there != [str(part).encode() for part in generation]:
            log.info("%s was restored or deleted while it was compared, and stays as it is", self._model)
            return
        if rolled_back == good.id.encode():
            log.error(
                "model %s is worse again and was already rolled back once: %s",
                self._model,
                why,
            )
            return
        log.error("model %s is rolled back: %s", self._model, why)
        plan = RestorePlan(self._model, good.id, may_create=False, instead_of=generation)
        await restore(self._channel, self._store, plan)
        self._metrics.rollbacks.labels(self._model).inc()

    def _compare(
        self, losses: PairedLosses | None, seen: Sequence[Seen], replica: Replica, gate: AutoRollback
    ) -> tuple[PairedLosses | None, Verdict | None]:
        """Add the losses of `seen`, up to where the last `gate.examples` show that the model is worse; return
        the losses and that verdict. Another good snapshot restarts the losses; None if there is none. Blocks.
        """
        good = self._good_before(seen[0].number, replica, losses.good if losses is not None else None)
        if good is None:
            log.debug("no good snapshot of %s to compare with", self._model)
            return None, None
        if losses is None or losses.good is not good:
            losses = PairedLosses(good, gate.examples)
        for one in _split_by_check(seen, gate):
            losses.add(*one)
            if len(losses) == gate.examples and (verdict := losses.verdict()).is_worse(gate):
                return losses, verdict
        return losses, None

    def _good_before(self, number: int, replica: Replica, known: GoodModel | None) -> GoodModel | None:
        """Return the newest good snapshot that has learned none of the examples from this one on."""
        now = time.monotonic()
        if now - self._polled < STORE_POLL_SECONDS:
            return known
        self._polled = now
        catalogue = self._store.of(self._model)
        for entry in reversed(catalogue.entries()):
            if GOOD not in entry.tags:
                continue
            if known is not None and known.id == entry.id:
                return known
            header = catalogue.header(entry)
            same_log = header.incarnation == replica.keys.incarnation
            if same_log and header.applied_number <= number:
                return GoodModel.of(entry.id, catalogue.load(entry))
        return None


def _examples_per_check(gate: AutoRollback) -> int:
    return -(-gate.examples // CHECKS_PER_WINDOW)


def _split_by_check(seen: Sequence[Seen], gate: AutoRollback) -> Iterator[Seen]:
    """Split the examples so that the losses are checked at fixed intervals, however the log was read."""
    number, batch = seen[0].number, ExampleBatch.concatenate([one.batch for one in seen])
    margins = np.concatenate([one.learned.margins for one in seen])
    skipped = np.concatenate([one.learned.skipped for one in seen])
    for start in range(0, len(batch), _examples_per_check(gate)):
        stop = start + _examples_per_check(gate)
        learned = Learned(margins[start:stop], skipped[start:stop])
        yield Seen(number + start, batch.slice(start, stop), learned)
