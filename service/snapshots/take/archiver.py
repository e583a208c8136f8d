"""Archiving of learned log entries by the leading learner, before a commit may trim them from the log."""

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
from service.snapshots.store.formats import NO_SEGMENT, LogArchive, RawEntry, Segment
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import LOG_START, LogEntry, LogId, ModelKeys
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

SEGMENT_BYTES = 8 * 1024 * 1024
SEGMENT_SECONDS = 30.0
RETRY_SECONDS = 10.0
ENTRIES_A_READ = 200
CLEANUP_SECONDS = 3600.0


class LogArchiver:
    """Archives the log of one learner's model; does nothing unless `log_archive_seconds` is set."""

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
        self._channel = Channel(topology, shared="learning")
        self._work: asyncio.Task[None] | None = None
        self._due = 0.0
        self._cleanup_due = 0.0
        self._segments: list[Segment] | None = None  # None until the store has listed them

    @property
    def through(self) -> LogId:
        """The last log entry in the archive; later ones must not be trimmed."""
        return self._segments[-1].last_entry if self._segments else LOG_START

    def lead(self) -> None:
        """List the segments again: another process may have led meanwhile and written some."""
        self._segments = None

    def start_if_due(self, replica: Replica) -> None:
        """Start to write a segment if one is due; to be called between commits."""
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
        """Count and log an unexpected failure as well; the next segment is another attempt."""
        if not work.cancelled() and (fault := work.exception()) is not None:
            self._metrics.archive_failures.labels(self._model).inc()
            log.error("the log of %s was not archived", self._model, exc_info=fault)

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
            await self._remove_expired(archive)
            await self._remove_deleted_models(archive)
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            log.debug("the log of %s was not archived, to be retried: %s", self._model, failure)
        except ServiceError as failure:
            self._due = time.monotonic() + RETRY_SECONDS
            self._metrics.archive_failures.labels(self._model).inc()
            log.error("the log of %s was not archived: %s", self._model, failure.detail)  # noqa: TRY400

    async def _write_segment(self, archive: LogArchive, keys: ModelKeys, applied: LogId) -> bool:
        """Write the next segment; return False if there is nothing left to archive."""
        assert self._segments is not None
        entries, numbers = await self._next_entries(keys, applied)
        if not entries:
            return False
        if self._segments and self._segments[-1].end > numbers[0]:
            # The server came back without some entries, and these numbers were assigned again.
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
        """Return the next learned entries without a gap, up to the size of a segment; and the number of the
        first example of each, followed by the number after the last.
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
                numbers.append(numbers[-1] + entry.examples)
                size += len(entry.records)
                after = entry.id
            if len(found) < ENTRIES_A_READ:
                break
        return entries, numbers

    async def _remove_expired(self, archive: LogArchive) -> None:
        assert self._segments is not None
        oldest = self.through.milliseconds - round(self._settings.log_archive_seconds * 1000)
        while len(self._segments) > 1 and self._segments[0].last_entry.milliseconds < oldest:
            await asyncio.to_thread(archive.remove, self._segments[0])
            self._segments.pop(0)

    async def _remove_deleted_models(self, archive: LogArchive) -> None:
        """Remove, once in a while, expired segments of deleted models of the same name."""
        if time.monotonic() < self._cleanup_due:
            return
        oldest = round((time.time() - self._settings.log_archive_seconds) * 1000)
        await asyncio.to_thread(archive.remove_others, oldest)
        self._cleanup_due = time.monotonic() + CLEANUP_SECONDS
