"""Snapshots of the model that a learner leads: when, and how without standing still for more than a copy."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from service.errors import ServiceError
from service.metrics import Metrics, WrittenSnapshot
from service.redis_client import CONNECTION_FAILURES, Channel, read_evaluation
from service.redis_keys import ModelKeys, mapping_of
from service.replica import Replica
from service.settings import Settings
from service.snapshots.capture import Capture, capture
from service.snapshots.catalogue import Entry
from service.snapshots.requests import SnapshotRequest, answer, failed, waiting_requests
from service.snapshots.store import SnapshotStore
from service.snapshots.writing import FAILURES, STOPPED, detail_of, reason_of, write_and_retain
from service.tasks import cancel_all, in_daemon_thread

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.25
TRY_AGAIN_SECONDS = 60.0
SCHEDULE, SHUTDOWN = "schedule", "shutdown"


class Snapshots:
    """Of one learner's model. `look` is called between commits, `last_look` when the learner ends, and
    `close` after that. One snapshot is written at a time.
    """

    def __init__(
        self, client: Redis, model: str, settings: Settings, store: SnapshotStore, metrics: Metrics
    ) -> None:
        self._model = model
        self._settings = settings
        self._store = store
        self._metrics = metrics
        self._requests = Channel(client)
        self._replies = Channel(client)
        self._writing: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._waiting: list[SnapshotRequest] = []
        self._in_hand: set[str] = set()  # ids of requests that are being answered, or were
        self._last: tuple[int, int] | None = None  # generation and commit of the newest snapshot
        self._last_number = 0
        self._generation = 0
        self._due = 0.0
        self._looked = 0.0
        self._stop_by = math.inf

    def lead(self, replica: Replica) -> None:
        """The schedule goes on where the learner before left it, as soon as the store says where that was."""
        self._due = time.monotonic() + self._settings.snapshot_seconds
        self._last, self._last_number = None, replica.applied_number
        self._generation = replica.generation
        self._metrics.counts_snapshots(self._model, FAILURES)
        self._asking = asyncio.create_task(self._ask_for_newest(replica.revision))

    async def look(self, replica: Replica) -> None:
        """Starts a snapshot where one is due or asked for. The arrays are those of the commit that the
        replica names, and nobody changes them before this returns. Raises what Channel.call raises.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY_SECONDS:
            return
        self._looked = now
        if replica.generation != self._generation:
            self._generation = replica.generation
            self._metrics.restores.labels(self._model).inc()
        await self._read_requests(replica.keys)
        if self._writing is not None and not self._writing.done():
            return
        if self._waiting:
            await self._start(replica, ", ".join(sorted({one.reason for one in self._waiting})))
        elif self._is_due(replica, now):
            await self._start(replica, SCHEDULE)

    async def last_look(self, replica: Replica) -> None:
        """Copies what has not been saved; `close` waits until it is written."""
        if self._scheduled and not self._is_saved(replica):
            await self._wait_for_writing()
            await self._start(replica, SHUTDOWN)

    async def close(self) -> None:
        """Waits no longer for what is being written than `shutdown_grace_seconds`."""
        await self._wait_for_writing()
        await cancel_all([task for task in (self._writing, self._asking) if task is not None])
        await self._requests.close()
        await self._replies.close()

    async def _wait_for_writing(self) -> None:
        """Who asked for one that is given up stays in the list of those who ask, for the next learner."""
        if self._writing is None:
            return
        now, grace = time.monotonic(), self._settings.shutdown_grace_seconds
        self._stop_by = min(self._stop_by, now + grace)
        _, unfinished = await asyncio.wait([self._writing], timeout=max(0.0, self._stop_by - now))
        if unfinished:
            await cancel_all(unfinished)
            self._metrics.snapshot_failures.labels(self._model, STOPPED).inc()
            log.error("snapshot of %s is given up, %.0f s after its learner was stopped", self._model, grace)
        self._writing = None

    async def _read_requests(self, keys: ModelKeys) -> None:
        """They stay in the list until they are answered: a learner that dies leaves them to the next."""
        asking = await waiting_requests(self._requests, keys)
        self._in_hand &= {request.id for request in asking}
        self._waiting = [request for request in asking if request.id not in self._in_hand]

    @property
    def _scheduled(self) -> bool:
        return self._settings.snapshot_seconds > 0 or self._settings.snapshot_examples > 0

    def _is_saved(self, replica: Replica) -> bool:
        return replica.state.t == 0 or self._last == (replica.generation, replica.commit)

    def _is_due(self, replica: Replica, now: float) -> bool:
        examples = self._settings.snapshot_examples
        by_time = self._settings.snapshot_seconds > 0 and now >= self._due
        by_count = examples > 0 and replica.applied_number - self._last_number >= examples
        return (by_time or by_count) and not self._is_saved(replica)

    async def _start(self, replica: Replica, reason: str) -> None:
        keys = replica.keys
        found = await read_evaluation(
            self._requests, *(keys.meta, keys.evaluation, keys.slices, keys.incarnation, replica.token)
        )
        if not found:
            return  # somebody else moved the model: the learner is about to notice
        fields = mapping_of(found[0])
        started = time.monotonic()
        self._due = started + self._settings.snapshot_seconds
        self._last_number = replica.applied_number
        asked, self._waiting = self._waiting, []  # only now, as the above may fail
        self._in_hand.update(request.id for request in asked)
        (copied,) = await asyncio.gather(asyncio.to_thread(capture, replica, fields), return_exceptions=True)
        if isinstance(copied, BaseException):
            await self._fail(replica.keys, asked, copied)
            return
        seconds = time.monotonic() - started
        self._writing = asyncio.create_task(self._write(copied, reason, asked, seconds))

    async def _write(
        self, copied: Capture, reason: str, asked: Sequence[SnapshotRequest], copy_seconds: float
    ) -> None:
        started = time.monotonic()
        writing = in_daemon_thread(
            lambda: write_and_retain(self._store, self._settings, copied, reason, _tags(asked))
        )
        outcome = (await asyncio.gather(writing, return_exceptions=True))[0]
        if isinstance(outcome, BaseException):
            await self._fail(copied.keys, asked, outcome)
            return
        entry, description = outcome
        self._last = (copied.generation, copied.commit)
        seconds = time.monotonic() - started + copy_seconds
        self._metrics.snapshot_taken(
            self._model, WrittenSnapshot(copied.taken, entry.bytes, len(copied.slots), seconds, copy_seconds)
        )
        log.info(
            "snapshot %s of %s: %d slots, %d bytes, %.2f s (learning stood still for %.0f ms)",
            *(entry.id, self._model, len(copied.slots), entry.bytes, seconds, 1000 * copy_seconds),
        )
        await self._answer(copied.keys, asked, description)

    async def _fail(self, keys: ModelKeys, asked: Sequence[SnapshotRequest], failure: BaseException) -> None:
        self._due = min(self._due, time.monotonic() + TRY_AGAIN_SECONDS)
        self._metrics.snapshot_failures.labels(self._model, reason_of(failure)).inc()
        unforeseen = None if isinstance(failure, ServiceError) else failure
        log.error("snapshot of %s failed: %s", self._model, detail_of(failure), exc_info=unforeseen)
        await self._answer(keys, asked, failed(failure))

    async def _answer(self, keys: ModelKeys, asked: Sequence[SnapshotRequest], reply: dict[str, Any]) -> None:
        for request in asked:
            try:
                await answer(self._replies, keys, request, reply)
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                self._in_hand.discard(request.id)
                log.warning("who asked for a snapshot of %s is not told yet: %s", self._model, failure)

    async def _ask_for_newest(self, revision: str) -> None:
        try:
            newest = await asyncio.to_thread(self._newest)
        except ServiceError as failure:
            log.warning("snapshots of %s cannot be listed: %s", self._model, failure.detail)
            return
        if newest is None or self._last is not None:
            return
        self._metrics.newest_snapshot(self._model, newest.written)
        age = (datetime.now(UTC) - newest.written).total_seconds()
        self._due -= min(max(age, 0.0), self._settings.snapshot_seconds)
        if newest.id.endswith(f"-{revision}"):
            generation, commit = revision.split("-")[1:]
            self._last = (int(generation), int(commit))

    def _newest(self) -> Entry | None:
        entries = self._store.of(self._model).entries()
        return entries[-1] if entries else None


def _tags(asked: Sequence[SnapshotRequest]) -> list[str]:
    return sorted({request.tag for request in asked if request.tag is not None})
