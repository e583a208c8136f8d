"""Writing of captures to the snapshot store, one at a time, while learning goes on."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence

from service.errors import ServiceError
from service.runtime.tasks import begin, cancel_all, in_daemon_thread
from service.settings.groups import SnapshotSettings
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.take.capture import Capture, write_and_retain
from service.snapshots.take.requests import (
    STOPPED,
    RequestQueue,
    SnapshotRequest,
    detail_of,
    failed,
    reason_of,
)
from service.snapshots.take.schedule import Schedule
from service.storage.records import ModelKeys
from service.telemetry.metrics import Metrics, WrittenSnapshot

log = logging.getLogger(__name__)


class Writer:
    """Writes the snapshots of one model, and reports each outcome to its requests, the schedule and the
    metrics.
    """

    def __init__(
        self,
        model: str,
        settings: SnapshotSettings,
        store: SnapshotStore,
        metrics: Metrics,
        schedule: Schedule,
        requests: RequestQueue,
    ) -> None:
        self._model = model
        self._settings = settings
        self._store = store
        self._metrics = metrics
        self._schedule = schedule
        self._requests = requests
        self._writing: asyncio.Task[None] | None = None
        self._stop_by = math.inf
        self.newest = ""
        """The id of the last snapshot that was written."""

    @property
    def busy(self) -> bool:
        return self._writing is not None and not self._writing.done()

    def start(
        self, copied: Capture, reason: str, asked: Sequence[SnapshotRequest], copy_seconds: float
    ) -> None:
        writing = self._write(copied, reason, asked, copy_seconds)
        self._writing = begin(writing, f"the outcome of a snapshot of {self._model} was not reported")

    async def within_grace(self, task: asyncio.Task[None]) -> bool:
        """Wait for the task; all calls together last at most `shutdown_grace_seconds` from the first one.
        Return whether it has ended.
        """
        now = time.monotonic()
        self._stop_by = min(self._stop_by, now + self._settings.shutdown_grace_seconds)
        done, _ = await asyncio.wait([task], timeout=max(0.0, self._stop_by - now))
        return bool(done)

    async def finish(self) -> None:
        """Wait within the grace period; the requests of an abandoned snapshot stay for the next learner."""
        if self._writing is None:
            return
        if not await self.within_grace(self._writing):
            await cancel_all([self._writing])
            self._metrics.snapshot_failures.labels(self._model, STOPPED).inc()
            grace = self._settings.shutdown_grace_seconds
            log.error(
                "the snapshot of %s was abandoned %.0f s after its learner was stopped", self._model, grace
            )
        self._writing = None

    async def fail(self, keys: ModelKeys, asked: Sequence[SnapshotRequest], failure: BaseException) -> None:
        self._schedule.failed()
        self._metrics.snapshot_failures.labels(self._model, reason_of(failure)).inc()
        unexpected = None if isinstance(failure, ServiceError) else failure
        log.error("snapshot of %s failed: %s", self._model, detail_of(failure), exc_info=unexpected)
        await self._requests.answer(keys, asked, failed(failure))

    async def _write(
        self, copied: Capture, reason: str, asked: Sequence[SnapshotRequest], copy_seconds: float
    ) -> None:
        started = time.monotonic()
        tags = sorted({request.tag for request in asked if request.tag is not None})
        writing = in_daemon_thread(lambda: write_and_retain(self._store, copied, reason, tags))
        outcome = (await asyncio.gather(writing, return_exceptions=True))[0]
        if isinstance(outcome, BaseException):
            await self.fail(copied.keys, asked, outcome)
            return
        entry, description = outcome
        self._schedule.saved(copied.token)
        self.newest = entry.id
        seconds = time.monotonic() - started + copy_seconds
        self._metrics.snapshot_taken(
            self._model, WrittenSnapshot(copied.taken, entry.bytes, len(copied.slots), seconds, copy_seconds)
        )
        log.info(
            "snapshot %s of %s: %d slots, %d bytes, %.2f s (learning paused for %.0f ms)",
            *(entry.id, self._model, len(copied.slots), entry.bytes, seconds, 1000 * copy_seconds),
        )
        await self._requests.answer(copied.keys, asked, description)
