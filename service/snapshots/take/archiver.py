"""The learner that leads archives what it has learned, before a commit may trim it from the log."""

from __future__ import annotations

import asyncio
import logging
import time

from redis.exceptions import ResponseError

from service.errors import ServiceError
from service.models.replica import Replica
from service.runtime.tasks import cancel_all
from service.settings.groups import SnapshotSettings
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.store.log_archive import NO_SEGMENT, LogArchive, RawEntry, Segment
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import LOG_START, LogEntry, LogId, ModelKeys
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

SEGMENT_BYTES = 8 * 1024 * 1024
SEGMENT_SECONDS = 30.0
TRY_AGAIN_SECONDS = 10.0
ENTRIES_A_READ = 200
OTHERS_SECONDS = 3600.0


class LogArchiver:
    """Of one learner's model; does nothing unless `log_archive_seconds` is set. `look` is called between
    commits.
    """

    def __init__(
        self,
        topology: Topology,
        model: str,
        settings: SnapshotSettings,
        store: SnapshotStore,
        metrics: Metrics,
    ) -> None:
        self.on = settings.log_archive_seconds > 0
        self._model = model
        self._settings = settings
        self._store = store
        self._metrics = metrics
        self._channel = Channel(topology)
        self._work: asyncio.Task[None] | None = None
        self._due = 0.0
        self._others_due = 0.0
        self._segments: list[Segment] | None = None  # None until the store has said which there are

    @property
    def through(self) -> LogId:
        """The last log entry that is in the archive: what comes after it may not be trimmed."""
        return self._segments[-1].last_entry if self._segments else LOG_START

    def lead(self) -> None:
        """Another process may have led meanwhile, and written segments."""
        self._segments = None

    def look(self, replica: Replica) -> None:
        """Starts to write a segment where one is due."""
        now = time.monotonic()
        busy = self._work is not None and not self._work.done()
        if not self.on or busy or now < self._due or replica.applied <= self.through:
            return
        self._due = now + SEGMENT_SECONDS
        self._work = asyncio.create_task(
            self._archive(replica.keys, replica.applied), name=f"archiving of {self._model}"
        )
        self._work.add_done_callback(self._ended)

    def _ended(self, work: asyncio.Task[None]) -> None:
        """A fault of this service is counted too; the next segment is another attempt."""
        if not work.cancelled() and (fault := work.exception()) is not None:
            self._metrics.archive_failures.labels(self._model).inc()
            log.error("the log of %s is not archived", self._model, exc_info=fault)

    async def close(self) -> None:
        if self._work is not None:
            await cancel_all([self._work])
        await self._channel.close()

    async def _archive(self, keys: ModelKeys, applied: LogId) -> None:
        try:
            archive = await asyncio.to_thread(self._store.log_archive, self._model, keys.incarnation)
            if self._segments is None:
                self._segments = await asyncio.to_thread(archive.segments)
            while await self._write_segment(archive, keys, applied):
                pass
            await self._forget_old(archive)
            await self._forget_others(archive)
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            log.debug("the log of %s is not archived for now: %s", self._model, failure)
        except ServiceError as failure:
            self._due = time.monotonic() + TRY_AGAIN_SECONDS
            self._metrics.archive_failures.labels(self._model).inc()
            log.error("the log of %s is not archived: %s", self._model, failure.detail)  # noqa: TRY400

    async def _write_segment(self, archive: LogArchive, keys: ModelKeys, applied: LogId) -> bool:
        """False where nothing is left."""
        assert self._segments is not None
        entries, numbers = await self._next_entries(keys, applied)
        if not entries:
            return False
        if self._segments and self._segments[-1].end > numbers[0]:
            # A server that came back with less has written these examples anew.
            await asyncio.to_thread(archive.remove, self._segments[-1])
            self._segments.pop()
            return True
        newest = self._segments[-1] if self._segments else NO_SEGMENT
        if newest.end < numbers[0]:
            log.warning(
                "examples %d to %d of %s left the log before they were archived",
                *(newest.end, numbers[0] - 1, self._model),
            )
        end = numbers[-1]
        self._segments.append(await asyncio.to_thread(archive.write, numbers[0], end, entries))
        return True

    async def _next_entries(self, keys: ModelKeys, applied: LogId) -> tuple[list[RawEntry], list[int]]:
        """Learned entries after the archived ones, without a gap among them, at most a segment's worth; and
        the number with which each begins, then the one after the last.
        """
        entries: list[RawEntry] = []
        numbers: list[int] = []
        after, size = self.through, 0
        while size < SEGMENT_BYTES:
            found = await self._channel.call(
                *("XRANGE", keys.log, f"({after}", str(applied), "COUNT", ENTRIES_A_READ)
            )
            for entry_id, fields in found:
                entry = LogEntry.parse(entry_id, fields)
                if entry.first_number is None:  # `ftrl log skip` is the way past it
                    continue
                if numbers and entry.first_number != numbers[-1]:
                    return entries, numbers
                numbers = numbers or [entry.first_number]
                entries.append(RawEntry(entry.id, fields))
                numbers.append(numbers[-1] + len(entry.records))
                size += sum(map(len, entry.records))
                after = entry.id
            if len(found) < ENTRIES_A_READ:
                break
        return entries, numbers

    async def _forget_old(self, archive: LogArchive) -> None:
        assert self._segments is not None
        oldest = self.through.milliseconds - round(self._settings.log_archive_seconds * 1000)
        while len(self._segments) > 1 and self._segments[0].last_entry.milliseconds < oldest:
            await asyncio.to_thread(archive.remove, self._segments[0])
            self._segments.pop(0)

    async def _forget_others(self, archive: LogArchive) -> None:
        """Now and then, what is left of models of that name that were deleted, when it is as old."""
        if time.monotonic() < self._others_due:
            return
        oldest = round((time.time() - self._settings.log_archive_seconds) * 1000)
        await asyncio.to_thread(archive.remove_others, oldest)
        self._others_due = time.monotonic() + OTHERS_SECONDS
