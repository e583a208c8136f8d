"""A model that has become worse than its last good snapshot goes back to it by itself, once.

Both are judged on the same examples, the last ones, by what they predicted before either had learned from
them: the model as it learned along, the snapshot as it was. The difference of their losses, example by
example, leaves out what all predictions have in common: figures of another hour would roll back every
evening.

The labels that come are the judge. While wrong ones come, who learns them predicts them better than who does
not: the harm shows when right ones come again. A model that is worse on what it learns shows at once.
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

_WHERE_IT_IS = ("incarnation", "generation", "rolled_back")
"""Fields of meta; the last is the snapshot to which it went back by itself, set by restore.lua."""
LOOKS_A_WINDOW = 10
MAX_PENDING = 50_000
STORE_SECONDS = 0.2  # to ask the store for a newer good snapshot more often costs money


class Seen(NamedTuple):
    """A log entry that was learned; `number` is that of its first example."""

    number: int
    batch: ExampleBatch
    learned: Learned


class RollbackGate:
    """Of one learner's model. It compares and restores in the background, while learning goes on.

    It holds the losses of one window of examples, the weights of the good snapshot, and the newest examples
    that were not compared yet, at most MAX_PENDING or a window: what a slow store delays longer is left out.
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
        self._waiting = 0  # examples in `_seen`
        self._losses: PairedLosses | None = None
        self._forgotten = 0  # how often
        self._looked = 0.0
        self._generation = 0
        self._judging: asyncio.Task[None] | None = None

    def add(self, replica: Replica, entry: LogEntry, batch: ExampleBatch, learned: Learned) -> None:
        gate = replica.config.snapshots.auto_rollback
        if gate is None:
            return
        self._seen.append(Seen(entry.first_number or 0, batch, learned))
        self._waiting += len(batch)
        while self._waiting - len(self._seen[0].batch) >= max(gate.examples, MAX_PENDING):
            self._waiting -= len(self._seen.popleft().batch)

    def forget(self) -> None:
        """What was added was not committed, the state is another, or who learns it."""
        self._seen, self._waiting = deque(), 0
        self._losses = None
        self._forgotten += 1

    def judge(self, replica: Replica) -> None:
        """To be called between commits: compares, when there are examples enough."""
        gate = replica.config.snapshots.auto_rollback
        if gate is None:
            return
        if replica.generation != self._generation:
            self._generation = replica.generation
            self.forget()
        ready = self._waiting >= _examples_a_look(gate)
        if ready and (self._judging is None or self._judging.done()):
            seen, self._seen, self._waiting = self._seen, deque(), 0
            judging = self._judge(seen, replica, gate)
            self._judging = begin(judging, f"{self._model} is not compared with its good snapshot")

    async def close(self) -> None:
        if self._judging is not None:
            await cancel_all([self._judging])
        await self._channel.close()

    async def _judge(self, seen: Sequence[Seen], replica: Replica, gate: AutoRollback) -> None:
        forgotten = self._forgotten
        try:
            losses, verdict = await asyncio.to_thread(self._compare, self._losses, seen, replica, gate)
            if self._forgotten != forgotten:
                return
            self._losses = losses if verdict is None else None
            if losses is not None and verdict is not None:
                await self._roll_back(replica, losses, verdict)
        except (ServiceError, *CONNECTION_FAILURES, ResponseError) as failure:
            log.error("%s is not compared with its good snapshot: %s", self._model, failure)  # noqa: TRY400

    async def _roll_back(self, replica: Replica, losses: PairedLosses, verdict: Verdict) -> None:
        good = losses.good
        why = (
            f"over the {len(losses)} examples before number {losses.end} its log loss was {verdict.live:.5f},"
            f" that of snapshot {good.id} {verdict.good:.5f}: worse by {verdict.difference:.5f},"
            f" {verdict.standard_errors:.1f} standard errors"
        )
        generation = (replica.keys.incarnation, replica.generation)
        *there, rolled_back = await self._channel.call("HMGET", replica.keys.meta, *_WHERE_IT_IS)
        if there != [str(part).encode() for part in generation]:
            log.info("%s was restored or deleted while it was compared, and stays as it is", self._model)
            return
        if rolled_back == good.id.encode():
            log.error("model %s is bad again and stays so, as it went back once: %s", self._model, why)
            return
        log.error("model %s is rolled back: %s", self._model, why)
        plan = RestorePlan(self._model, good.id, may_create=False, instead_of=generation)
        await restore(self._channel, self._store, plan)
        self._metrics.rollbacks.labels(self._model).inc()

    def _compare(
        self, losses: PairedLosses | None, seen: Sequence[Seen], replica: Replica, gate: AutoRollback
    ) -> tuple[PairedLosses | None, Verdict | None]:
        """The losses with those of `seen`, up to where the last `gate.examples` say that the model is worse,
        and that verdict. They begin anew with another good snapshot; None where there is none. Blocks.
        """
        good = self._good_before(seen[0].number, replica, losses.good if losses is not None else None)
        if good is None:
            log.debug("no good snapshot of %s to compare with", self._model)
            return None, None
        if losses is None or losses.good is not good:
            losses = PairedLosses(good, gate.examples)
        for one in _in_looks(seen, gate):
            losses.add(*one)
            if len(losses) == gate.examples and (verdict := losses.verdict()).is_worse(gate):
                return losses, verdict
        return losses, None

    def _good_before(self, number: int, replica: Replica, known: GoodModel | None) -> GoodModel | None:
        """The newest good snapshot that has learned none of the examples from this one on."""
        now = time.monotonic()
        if now - self._looked < STORE_SECONDS:
            return known
        self._looked = now
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


def _examples_a_look(gate: AutoRollback) -> int:
    return -(-gate.examples // LOOKS_A_WINDOW)


def _in_looks(seen: Sequence[Seen], gate: AutoRollback) -> Iterator[Seen]:
    """However the log was read and committed, there is a look at the losses every so many examples."""
    number, batch = seen[0].number, ExampleBatch.concatenate([one.batch for one in seen])
    margins = np.concatenate([one.learned.margins for one in seen])
    skipped = np.concatenate([one.learned.skipped for one in seen])
    for start in range(0, len(batch), _examples_a_look(gate)):
        stop = start + _examples_a_look(gate)
        learned = Learned(margins[start:stop], skipped[start:stop])
        yield Seen(number + start, batch.slice(start, stop), learned)
