"""The learner of one model: a standby until it holds the lease, then the process that learns the log.

The lease only avoids duplicate work: if two learners believe that they lead, the compare-and-set of a commit
decides between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from redis.exceptions import ResponseError

from service.errors import ContractMismatch, ServiceError, UnknownSnapshot
from service.example_log.lag import LogLag, watch_log
from service.example_log.stream import LogBlocked
from service.feedback.store import PendingStore, Swept
from service.feedback.sweeper import sweep_pending
from service.learning.auto_promotion import AutoPromotion
from service.learning.champions_log import ChampionsLog, WasPromoted
from service.learning.commit import Committer
from service.learning.followed_log import StartAgain
from service.learning.history import HistoryWriter
from service.learning.lease import Lease
from service.learning.live_evaluation import (
    CHALLENGER_REPORT_SECONDS,
    REPORT_EVERY_SECONDS,
    LiveEvaluation,
)
from service.learning.loop import LearningLoop, OwnLog
from service.models.mirror import Mirror
from service.models.promotions import Promotion
from service.models.replica import ModelGone, Replica, load_replica
from service.runtime.tasks import cancel_all, first_to_end
from service.settings.groups import LearningSettings
from service.snapshots.restore.beginning import start_again
from service.snapshots.restore.promotion import exchange
from service.snapshots.restore.shortcut import shortcut_of
from service.snapshots.rollback.gate import RollbackGate
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.take.archiver import LogArchiver
from service.snapshots.take.snapshotter import Snapshotter
from service.storage.errors import CONNECTION_FAILURES, Backoff
from service.storage.health import ServerHealth
from service.storage.records import lease_key
from service.storage.scripts.log import Lag
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

START_AGAIN_RETRY_SECONDS = 5.0


class Learner:
    """Learns into the arrays of its own mirror, ahead of each commit."""

    def __init__(
        self,
        topology: Topology,
        mirror: Mirror,
        settings: LearningSettings,
        health: ServerHealth,
        metrics: Metrics,
        store: SnapshotStore,
        holder: str,
    ) -> None:
        self.model = model = mirror.model
        self._topology = topology
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._lease = Lease(topology, lease_key(model), settings.lease_seconds, holder)
        self._mirror = mirror
        self._snapshots = Snapshotter(topology, model, settings, store, metrics)
        self._archiver = LogArchiver(topology, model, settings, store, metrics)
        self._store = store
        self._gate = RollbackGate(topology, model, store, metrics)
        self._history = HistoryWriter(model, lambda: self._snapshots.newest)
        self._follows = mirror.replica.follows
        seconds = CHALLENGER_REPORT_SECONDS if self._follows else REPORT_EVERY_SECONDS
        self._evaluation = LiveEvaluation(model, metrics, self._history, seconds)
        self._champion = ChampionsLog(topology, mirror, self._follows) if self._follows else None
        self._promotion = AutoPromotion(topology, mirror, store, self._evaluation) if self._follows else None
        self._archiver.on = self._archiver.on and self._follows is None
        self._source = self._champion or OwnLog(topology, mirror, settings, health)
        self._learning = LearningLoop(
            self._mirror,
            self._source,
            self._holds_lease,
            settings,
            health,
            metrics,
            self._evaluation,
            self._gate,
        )
        self._logged = asyncio.Event()  # set if the model has logged predictions
        self._committer: Committer | None = None  # while leading
        self._blocked: LogBlocked | None = None
        self._shown: tuple[bool, bool] | None = None  # leading and blocked, in the metrics
        self._shown_generation = -1  # of the state that the metrics describe

    @property
    def replica(self) -> Replica:
        return self._mirror.replica

    @property
    def leading(self) -> bool:
        return self._committer is not None and self._holds_lease()

    def _holds_lease(self) -> bool:
        return time.monotonic() < self._lease.held_until

    @classmethod
    async def open(
        cls,
        topology: Topology,
        model: str,
        settings: LearningSettings,
        health: ServerHealth,
        metrics: Metrics,
        store: SnapshotStore,
        holder: str,
    ) -> Learner:
        """Load the model as soon as Redis answers. `holder`: of its lease. Raises ModelGone,
        ContractMismatch.
        """
        backoff = Backoff()
        while True:
            try:
                mirror = await Mirror.open(topology, model, shortcut_of(settings, store))
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                _log_wait(model, failure)
                await backoff.pause()
            else:
                return cls(topology, mirror, settings, health, metrics, store, holder)

    async def run(self) -> None:
        """Learn until cancelled. Raises ModelGone, ContractMismatch."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._snapshots.close)
            stack.push_async_callback(self._archiver.close)
            stack.push_async_callback(self._gate.close)
            if self._promotion:
                stack.push_async_callback(self._promotion.close)
            stack.push_async_callback(self._source.close)
            stack.push_async_callback(self._mirror.close)
            stack.push_async_callback(self._lease.release)
            maintaining = asyncio.create_task(self._lease.maintain(), name=f"lease of {self.model}")
            watching = asyncio.create_task(
                watch_log(self._topology, self.model, self._show_work), name=f"lag of {self.model}"
            )
            companions = [maintaining, watching]
            if self._follows is None:
                sweeping = sweep_pending(
                    self._topology, self.model, self._settings, self._show_pending, self._logged
                )
                companions.append(asyncio.create_task(sweeping, name=f"sweeper of {self.model}"))
            stack.push_async_callback(cancel_all, companions)
            stack.callback(self._metrics.learner_state, self.model, leading=False, blocked=False)
            stack.push_async_callback(self._save)
            try:
                await first_to_end(self._work(), *companions)
            except ModelGone:
                self._committer = None
                raise

    async def _work(self) -> None:
        """Until it follows another log than at the start."""
        backoff = Backoff()
        while self._mirror.replica.follows == self._follows:
            try:
                await self._step()
                backoff.reset()
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                _log_wait(self.model, failure)
                await backoff.pause()

    async def _step(self) -> None:
        if not self._holds_lease():
            self._committer = self._blocked = None
            self._evaluation.moved_to(None)
            await self._mirror.advance(self._mirror.idle_seconds)
        elif self._committer is None:
            await self._take_over()
        else:
            await self._lead(self._committer)
        self._show_state()

    def _show_state(self) -> None:
        """A standby repeats it: what a leader began may still show gauges after the lease is lost."""
        shown = self.leading, self._blocked is not None
        if shown != self._shown or not self.leading:
            self._shown = shown
            self._metrics.learner_state(self.model, leading=shown[0], blocked=shown[1])

    async def _lead(self, committer: Committer) -> None:
        if self._learning.settled:
            if self._mirror.replica.generation != self._shown_generation:
                self._show_model()
            await self._mirror.refresh()  # so that snapshots have the feedback settings in force
            await self._snapshots.poll(self._mirror.replica)
            if self._archiver.on:
                self._archiver.start_if_due(self._mirror.replica)
            if self._mirror.replica.config.snapshots.auto_rollback is not None:
                self._gate.judge(self._mirror.replica)
            if self._promotion:
                self._promotion.judge()
        if self._blocked:
            await self._await_change()
        else:
            try:
                await self._learning.step(committer)
            except LogBlocked as blocked:
                await self._block(blocked)
            except StartAgain as again:
                await self._start_again(again)
            except WasPromoted as promoted:
                await self._exchange(promoted.promotion)

    async def _start_again(self, again: StartAgain) -> None:
        """Raises what Channel.call raises."""
        champion = self._mirror.replica.log_keys.model
        log.error("challenger %s of %s starts again (%s): %s", self.model, champion, again.reason, again)
        try:
            await start_again(self._mirror.channel, self._store, self._mirror.replica)
            self._metrics.challenger_restarts.labels(self.model, again.reason).inc()
        except ServiceError as failure:
            log.error("%s could not start again and tries it soon: %s", self.model, failure.detail)  # noqa: TRY400
            await asyncio.sleep(START_AGAIN_RETRY_SECONDS)
        self._committer = None  # the state is another one

    async def _exchange(self, promotion: Promotion) -> None:
        """Raises what Channel.call raises."""
        try:
            await exchange(self._mirror.channel, self._store, self._mirror.replica, promotion)
            self._metrics.promotions.labels(self._mirror.replica.log_keys.model).inc()
        except UnknownSnapshot as gone:
            log.error("%s cannot go on as the former champion: %s", self.model, gone.detail)  # noqa: TRY400
            await self._start_again(StartAgain("lost", gone.detail))
        except ServiceError as failure:
            log.warning("%s is not the former champion yet: %s", self.model, failure.detail)
            await asyncio.sleep(START_AGAIN_RETRY_SECONDS)
        self._committer = None  # the state is another one

    async def _save(self) -> None:
        """Take a last snapshot, if this learner leads, of what was learned since the previous one."""
        if self._committer is None:
            return
        try:
            mirror = self._mirror
            replica = (
                mirror.replica if self._learning.settled else await load_replica(mirror.channel, self.model)
            )
            await self._snapshots.save_at_end(replica)
        except (*CONNECTION_FAILURES, ResponseError, ModelGone, ContractMismatch) as failure:
            log.warning("the last snapshot of %s was not taken: %s", self.model, failure)

    async def _take_over(self) -> None:
        await self._mirror.catch_up()
        self._archiver.lead()
        self._committer = await Committer.start(
            self._mirror, self._settings, self._health, self._evaluation, self._archiver
        )
        self._show_model()
        replica = self._mirror.replica
        if self._champion:
            self._metrics.start_restart_counters(self.model, StartAgain.REASONS)
        self._snapshots.lead(replica)
        self._gate.reset()
        self._history.lead()
        self._learning.settled = True
        log.info("learning %s from log entry %s on", self.model, self._mirror.replica.applied)

    def _show_model(self) -> None:
        replica = self._mirror.replica
        hashing, family = replica.config.hashing, replica.config.hyper.family
        self._metrics.leading(self.model, fingerprint=hashing.fingerprint, family=family, bits=hashing.bits)
        self._metrics.model_size(self.model, replica.state.t, replica.state.features_seen)
        self._shown_generation = replica.generation

    async def _block(self, blocked: LogBlocked) -> None:
        """Stop learning, unless the server has moved: after losing data it may be behind this learner."""
        if not await self._moved():
            self._blocked = blocked
            log.error("learner of %s stopped at %s; see `ftrl log skip`", self.model, blocked)

    def _show_work(self, found: Lag) -> None:
        self._snapshots.requested = found.snapshot_requests
        if self._committer is not None:
            self._committer.followers = found.followers
        if found.feedback:
            self._logged.set()
        else:
            self._logged.clear()
        self._history.lag = lag = self._champion.lag() if self._champion else LogLag.of(found)
        if self.leading:
            self._metrics.lag(self.model, lag)

    def _show_pending(self, swept: Swept, store: PendingStore) -> None:
        if self.leading:
            self._metrics.show_pending(self.model, swept, store.config.max_bytes)
        else:
            self._metrics.pending_shown_elsewhere(self.model, swept)

    async def _await_change(self) -> None:
        """Read the log again once anything has moved the model: a skip, a restore or another learner."""
        if await self._moved(self._mirror.idle_seconds):
            self._blocked = None

    async def _moved(self, seconds: float = 0.0) -> bool:
        before = self._mirror.replica.token
        await self._mirror.advance(seconds)
        return self._mirror.replica.token != before


def _log_wait(model: str, failure: Exception) -> None:
    level = logging.WARNING if isinstance(failure, ResponseError) else logging.DEBUG
    log.log(level, "learner of %s retries, as Redis failed: %s", model, failure)


async def learn_model(
    topology: Topology,
    model: str,
    settings: LearningSettings,
    health: ServerHealth,
    metrics: Metrics,
    store: SnapshotStore,
    holder: str,
) -> Replica | None:
    """Learn a model until it no longer exists; return the copy of it. `holder`: of its lease. Raises
    ContractMismatch.
    """
    metrics.learner_state(model, leading=False, blocked=False)  # also of a model that cannot be loaded
    learner: Learner | None = None
    try:
        learner = await Learner.open(topology, model, settings, health, metrics, store, holder)
        await learner.run()
    except ModelGone:
        metrics.model_deleted(model)
        log.info("learner of %s ends: the model no longer exists", model)
    return learner.replica if learner is not None else None
