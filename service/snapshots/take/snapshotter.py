"""The snapshots of a leading learner, which stops learning only while the state is copied."""

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
    """Takes the snapshots of one learner's model, one at a time. `poll` is called between commits,
    `save_at_end` when the learner ends, and `close` after that.
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
        self._channel = Channel(topology, shared="polls")
        self._schedule = Schedule(settings)
        self._requests = RequestQueue(topology)
        self._writer = Writer(model, settings, store, metrics, self._schedule, self._requests)
        self._lookup: asyncio.Task[None] | None = None
        self._lookup_channel = Channel(topology, shared="polls")
        self._earlier = ""  # the last snapshot that was there when this learner began to lead
        self._generation = 0
        self._polled = 0.0
        self.requested = 0
        """The requests that are in Redis, as was last seen."""

    @property
    def newest(self) -> str:
        """The id of the last snapshot that this learner has written, or else of the last that was there when
        it began to lead; '' where neither is known.
        """
        return max(self._writer.newest, self._earlier)

    def lead(self, replica: Replica) -> None:
        """Begin to lead. The schedule continues the previous learner's, once its newest snapshot is found."""
        self._schedule.begin(replica)
        self._earlier = ""
        self._generation = replica.generation
        self._metrics.start_snapshot_counters(self._model, FAILURES)
        if self._lookup is not None:  # of an earlier leadership, at another position
            self._lookup.cancel()
        lookup = self._find_earlier(ReplicaPosition.of(replica))
        self._lookup = begin(lookup, f"earlier snapshots of {self._model} are not known")

    async def poll(self, replica: Replica) -> None:
        """Start a snapshot if one is due or requested. The arrays must be those of the replica's commit, and
        must not change until this returns. Raises what Channel.call raises.
        """
        now = time.monotonic()
        if now - self._polled < REQUESTS_POLL_SECONDS:
            return
        self._polled = now
        if replica.generation != self._generation:
            self._generation = replica.generation
            self._metrics.restores.labels(self._model).inc()
        if self.requested or self._requests.any:
            await self._requests.refresh(self._channel, replica.keys)
        if self._writer.busy:
            return
        if reason := self._requests.reason:
            await self._start(replica, reason)
        elif (self._lookup is None or self._lookup.done()) and self._schedule.is_due(replica):
            await self._start(replica, SCHEDULE)

    async def save_at_end(self, replica: Replica) -> None:
        """Copy what has not been saved; `close` waits until it is written."""
        if self._lookup is not None:
            await self._writer.within_grace(self._lookup)
        if self._schedule.needs_last(replica):
            await self._writer.finish()
            await self._start(replica, SHUTDOWN)

    async def close(self) -> None:
        """Wait for the snapshot that is being written, for at most `shutdown_grace_seconds`."""
        await self._writer.finish()
        if self._lookup is not None:
            await cancel_all([self._lookup])
        await self._requests.close()
        await self._lookup_channel.close()
        await self._channel.close()

    async def _start(self, replica: Replica, reason: str) -> None:
        keys = replica.keys
        stored = await read_evaluation(self._channel, keys, replica.token)
        if stored is None:
            return  # the model has moved, which the learner is about to notice
        started = time.monotonic()
        self._schedule.started(replica.applied_number)
        asked = self._requests.take()  # not before, as reading the evaluation may fail
        (copied,) = await asyncio.gather(
            asyncio.to_thread(capture, replica, stored.fields), return_exceptions=True
        )
        if isinstance(copied, BaseException):
            await self._writer.fail(keys, asked, copied)
            return
        self._writer.start(copied, reason, asked, time.monotonic() - started)

    async def _find_earlier(self, position: ReplicaPosition) -> None:
        try:
            earlier = await earlier_snapshots(self._lookup_channel, self._store, position)
        except ServiceError as failure:
            log.warning("snapshots of %s cannot be listed: %s", self._model, failure.detail)
            return
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            log.warning("the base of %s cannot be read: %s", self._model, failure)
            return
        newest = earlier.newest
        since = earlier.unsaved_since if newest is None else newest.written
        if since is None or self._schedule.has_saved:
            return
        self._schedule.count_from((datetime.now(UTC) - since).total_seconds())
        if newest is not None:
            begins = position.revision.partition("-")[0]
            if newest.revision.startswith(f"{begins}-"):  # else it is of a model that was deleted
                self._earlier = newest.id
            self._metrics.newest_snapshot(self._model, newest.written)
        if earlier.saved:
            self._schedule.saved(position.token)
