"""The learner of one model: reads the log in order, learns, commits. A standby until it holds the lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from service.committing import Committer, Work
from service.errors import ContractMismatch
from service.feedback.sweeping import sweep_waiting
from service.feedback.waiting import Swept
from service.lease import Lease
from service.live_evaluation import LiveEvaluation
from service.log_reading import LogBlocked, decode
from service.log_watch import LogLag, watch_log
from service.metrics import Metrics
from service.mirror import Mirror
from service.model_config import ModelConfig
from service.redis_client import CONNECTION_FAILURES, Channel
from service.redis_keys import LogEntry, lease_key
from service.replica import ModelGone, Replica, load_replica, stream_entries
from service.server_health import ServerHealth
from service.settings import Settings
from service.snapshots.archiving import Archiving
from service.snapshots.gate import RollbackGate
from service.snapshots.store import SnapshotStore
from service.snapshots.taking import Snapshots
from service.tasks import cancel_all, first_to_end

log = logging.getLogger(__name__)

ENTRIES_A_READ = 128
TRIM_EVERY_SECONDS = 1.0


class Learner:
    """Its arrays are a mirror's; it changes them ahead of the commit and loads again where the commit is
    refused.
    """

    def __init__(
        self,
        client: Redis,
        model: str,
        settings: Settings,
        health: ServerHealth,
        metrics: Metrics,
        store: SnapshotStore,
    ) -> None:
        self.model = model
        self._client = client
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._log_channel = Channel(client)
        self._lease = Lease(client, lease_key(model), settings.lease_seconds)
        self._mirror = Mirror(client, model, settings)
        self._snapshots = Snapshots(client, model, settings, store, metrics)
        self._archiving = Archiving(client, model, settings, store, metrics)
        self._gate = RollbackGate(client, model, settings, store, metrics)
        self._settled = False  # whether the arrays are exactly those of the replica's commit
        self._evaluation = LiveEvaluation(model, metrics)
        self._committer: Committer | None = None  # while leading
        self._blocked: LogBlocked | None = None
        self._trimmed = 0.0

    @property
    def leading(self) -> bool:
        return self._committer is not None and self._lease.held

    async def run(self) -> None:
        """Learns until the model is gone. Raises ContractMismatch."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._snapshots.close)
            stack.push_async_callback(self._archiving.close)
            stack.push_async_callback(self._gate.close)
            stack.push_async_callback(self._log_channel.close)
            stack.push_async_callback(self._mirror.close)
            stack.push_async_callback(self._lease.release)
            keeping = asyncio.create_task(self._lease.keep())
            watching = asyncio.create_task(watch_log(self._client, self.model, self._show_lag))
            sweeping = asyncio.create_task(
                sweep_waiting(self._client, self.model, self._settings, self._show_waiting)
            )
            stack.push_async_callback(cancel_all, [keeping, watching, sweeping])
            stack.callback(self._metrics.learner_ended, self.model)
            stack.push_async_callback(self._save)
            try:
                await first_to_end(self._work(), keeping, watching, sweeping)
            except ModelGone:
                self._committer = None
                self._metrics.model_deleted(self.model)
                log.info("learner of %s ends: the model was deleted", self.model)

    async def _work(self) -> None:
        pause = 0.05
        while True:
            try:
                await self._step()
                pause = 0.05
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                level = logging.WARNING if isinstance(failure, ResponseError) else logging.DEBUG
                log.log(level, "learner of %s waits for Redis: %s", self.model, failure)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 1.0)

    async def _step(self) -> None:
        if not self._mirror.loads:
            await self._mirror.load()
        if not self._lease.held:
            self._committer = None
            self._evaluation.moved_to(None)
            await self._mirror.advance(self._mirror.block_ms)
        elif self._committer is None:
            await self._take_over()
        else:
            await self._lead(self._committer)
        self._metrics.learner_state(self.model, leading=self.leading, blocked=self._blocked is not None)

    async def _lead(self, committer: Committer) -> None:
        if self._settled:
            await self._snapshots.look(self._mirror.replica)
            self._archiving.look(self._mirror.replica)
            self._gate.judge(self._mirror.replica)
        if self._blocked:
            await self._wait_for_operator()
        else:
            await self._learn(committer)

    async def _save(self) -> None:
        """At the end of a learner that leads: a snapshot of what it learned since the last one."""
        if self._committer is None:
            return
        try:
            mirror = self._mirror
            replica = mirror.replica if self._settled else await load_replica(mirror.channel, self.model)
            await self._snapshots.last_look(replica)
        except (*CONNECTION_FAILURES, ResponseError, ModelGone, ContractMismatch) as failure:
            log.warning("no last snapshot of %s: %s", self.model, failure)

    async def _take_over(self) -> None:
        await self._mirror.catch_up()
        self._archiving.lead()
        self._committer = await Committer.start(
            self._mirror, self._settings, self._health, self._evaluation, self._archiving
        )
        replica = self._mirror.replica
        hashing, family = replica.config.hashing, replica.config.hyper.family
        self._metrics.leads(self.model, fingerprint=hashing.fingerprint, family=family, bits=hashing.bits)
        self._metrics.model_size(self.model, replica.state.t, replica.state.features_seen)
        self._snapshots.lead(replica)
        self._gate.forget()
        self._settled = True
        log.info("learning %s from log entry %s on", self.model, self._mirror.replica.applied)

    async def _learn(self, committer: Committer) -> None:
        await self._settle()
        entries = await self._read_log()
        if not entries:
            await self._idle(committer)
            await self._evaluation.tell(self._mirror)
        await self._evaluation.learn_names(entries, self._mirror.channel, self._mirror.replica.keys)
        while entries and self._lease.held:
            try:
                self._settled = False
                work = self._work_on(entries)
            except LogBlocked as blocked:  # it has learned nothing
                self._settled = True
                await self._block(blocked)
                return
            started = time.monotonic()
            committed = await committer.commit(work)
            self._settled = True
            if not committed:
                self._gate.forget()
                return  # loaded again: what was read follows from another state
            seconds, state = time.monotonic() - started, self._mirror.replica.state
            self._metrics.committed(self.model, work, seconds, state.t, state.features_seen)
            await self._evaluation.tell(self._mirror)

    async def _settle(self) -> None:
        """Also where a commit was refused and the loading after it failed, until now."""
        await self._evaluation.follow(self._mirror)
        if not self._settled:
            self._gate.forget()
            self._settled = True

    async def _read_log(self) -> deque[LogEntry]:
        replica = self._mirror.replica
        streams = await self._log_channel.call(
            *("XREAD", "COUNT", ENTRIES_A_READ, "BLOCK", self._patience_ms()),
            *("STREAMS", replica.keys.log, str(replica.applied)),
        )
        return deque(LogEntry.parse(entry, fields) for entry, fields in stream_entries(streams))

    def _patience_ms(self) -> int:
        """There may be more to tell before something comes; 0 would be for ever."""
        return max(1, min(self._mirror.block_ms, math.ceil(1000 * self._evaluation.waits_for())))

    async def _idle(self, committer: Committer) -> None:
        await self._mirror.advance()
        if self._health.shedding and time.monotonic() - self._trimmed > TRIM_EVERY_SECONDS:
            await committer.commit(Work())  # nothing learned, but only commits trim
            self._trimmed = time.monotonic()

    def _work_on(self, entries: deque[LogEntry]) -> Work:
        """Learns from the front of `entries`, as much as one commit may hold. Raises LogBlocked where that is
        nothing.
        """
        replica = self._mirror.replica
        work = Work()
        number = replica.applied_number
        while entries and not self._enough(work, replica, entries[0]):
            try:
                batch = decode(entries[0], number)
            except LogBlocked:
                if work.entries:
                    break
                raise
            entry = entries.popleft()
            learned = replica.config.learn(replica.state, batch)
            if entry.id > replica.evaluated:
                self._evaluation.add(entry, batch, learned)
                self._gate.add(replica, entry, batch, learned)
            work.add(entry, batch, learned)
            number += len(batch)
        return work

    def _enough(self, work: Work, replica: Replica, following: LogEntry) -> bool:
        """Whether the next entry is left to the next commit. An example of it changes hardly more slots than
        those before it did: fewer and fewer are new.
        """
        if not work.examples:
            return False
        slots = replica.state.changes
        with_it = slots + slots / work.examples * len(following.records)
        settings = self._settings
        return work.examples >= settings.learner_read_examples or with_it > settings.commit_slots

    async def _block(self, blocked: LogBlocked) -> None:
        """Unless the server is not where this learner is: it may have come back with less."""
        if not await self._moved(None):
            self._blocked = blocked
            log.error("learner of %s stopped at %s; see `ftrl log skip`", self.model, blocked)

    def _show_lag(self, lag: LogLag) -> None:
        if self.leading:
            self._metrics.lags(self.model, lag)

    def _show_waiting(self, swept: Swept, config: ModelConfig) -> None:
        if self.leading:
            self._metrics.waits(self.model, swept, config.feedback.max_bytes)
        else:
            self._metrics.waits_elsewhere(self.model, swept)

    async def _wait_for_operator(self) -> None:
        """Whatever moves the model (a skip, a restore, another learner) is worth another look at the log."""
        if await self._moved(self._mirror.block_ms):
            self._blocked = None

    async def _moved(self, block_ms: int | None) -> bool:
        before = self._mirror.replica.token
        await self._mirror.advance(block_ms)
        return self._mirror.replica.token != before
