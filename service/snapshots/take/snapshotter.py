"""Snapshots of the model that a learner leads, without standing still for more than a copy."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime

from redis.exceptions import ResponseError

from service.errors import ServiceError
from service.models.replica import Replica
from service.runtime.tasks import begin, cancel_all
from service.settings.groups import SnapshotSettings
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.take.capture import capture
from service.snapshots.take.origin import ReplicaPosition, earlier_snapshots
from service.snapshots.take.requests import FAILURES, RequestQueue
from service.snapshots.take.schedule import Schedule
from service.snapshots.take.writer import Writer
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.scripts.commit import read_evaluation
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

REQUESTS_POLL_SECONDS = 0.25
SCHEDULE, SHUTDOWN = "schedule", "shutdown"


class Snapshotter:
    """Of one learner's model. `look` is called between commits, `last_look` when the learner ends, and
    `close` after that. One snapshot is written at a time.
    """

    def __init__(
        self,
        topology: Topology,
        model: str,
        settings: SnapshotSettings,
        store: SnapshotStore,
        metrics: Metrics,
    ) -> None:
        self._model = model
        self._store = store
        self._metrics = metrics
        self._channel = Channel(topology)
        self._schedule = Schedule(settings)
        self._requests = RequestQueue(topology)
        self._writer = Writer(model, settings, store, metrics, self._schedule, self._requests)
        self._asking: asyncio.Task[None] | None = None
        self._asking_channel = Channel(topology)
        self._generation = 0
        self._looked = 0.0

    def lead(self, replica: Replica) -> None:
        """The schedule goes on where the learner before left it, as soon as the store says where that was."""
        self._schedule.begin(replica)
        self._generation = replica.generation
        self._metrics.start_snapshot_counters(self._model, FAILURES)
        if self._asking is not None:  # of an earlier time at the lead: what it finds is not of this place
            self._asking.cancel()
        asking = self._ask_for_earlier(ReplicaPosition.of(replica))
        self._asking = begin(asking, f"earlier snapshots of {self._model} are not known")

    async def look(self, replica: Replica) -> None:
        """Starts a snapshot where one is due or asked for. The arrays are those of the commit that the
        replica names, and nobody changes them before this returns. Raises what Channel.call raises.
        """
        now = time.monotonic()
        if now - self._looked < REQUESTS_POLL_SECONDS:
            return
        self._looked = now
        if replica.generation != self._generation:
            self._generation = replica.generation
            self._metrics.restores.labels(self._model).inc()
        await self._requests.look(self._channel, replica.keys)
        if self._writer.busy:
            return
        if reason := self._requests.reason:
            await self._start(replica, reason)
        elif self._schedule.is_due(replica):
            await self._start(replica, SCHEDULE)

    async def last_look(self, replica: Replica) -> None:
        """Copies what has not been saved; `close` waits until it is written."""
        if self._asking is not None:
            await self._writer.within_grace(self._asking)
        if self._schedule.is_missing(replica):
            await self._writer.finish()
            await self._start(replica, SHUTDOWN)

    async def close(self) -> None:
        """Waits no longer for what is being written than `shutdown_grace_seconds`."""
        await self._writer.finish()
        if self._asking is not None:
            await cancel_all([self._asking])
        await self._requests.close()
        await self._asking_channel.close()
        await self._channel.close()

    async def _start(self, replica: Replica, reason: str) -> None:
        keys = replica.keys
        stored = await read_evaluation(self._channel, keys, replica.token)
        if stored is None:
            return  # somebody else moved the model: the learner is about to notice
        started = time.monotonic()
        self._schedule.started(replica.applied_number)
        asked = self._requests.take()  # only now, as the above may fail
        (copied,) = await asyncio.gather(
            asyncio.to_thread(capture, replica, stored.fields), return_exceptions=True
        )
        if isinstance(copied, BaseException):
            await self._writer.fail(keys, asked, copied)
            return
        self._writer.start(copied, reason, asked, time.monotonic() - started)

    async def _ask_for_earlier(self, place: ReplicaPosition) -> None:
        try:
            earlier = await earlier_snapshots(self._asking_channel, self._store, place)
        except ServiceError as failure:
            log.warning("snapshots of %s cannot be listed: %s", self._model, failure.detail)
            return
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            log.warning("it is not known with what %s began: %s", self._model, failure)
            return
        if earlier.written is None or self._schedule.knows_a_snapshot:
            return
        self._metrics.newest_snapshot(self._model, earlier.written)
        self._schedule.goes_on_from((datetime.now(UTC) - earlier.written).total_seconds())
        if earlier.saved:
            self._schedule.saved(place.token)
