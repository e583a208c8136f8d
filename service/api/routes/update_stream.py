"""`POST /update` with lines instead of JSON: learned while they arrive, and answered while more arrive.

Three tasks work on a stream: one reads groups of lines, one appends them to the log in their order, one
answers those that are learned. Each is at most a few groups ahead of the next. If the log is full, the
appending one waits; then nothing more is read, and the client cannot send.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

from starlette.types import Receive, Scope, Send

from model_core.errors import InvalidInput
from service.api.problems import problem_of
from service.api.routes.stream_replies import (
    End,
    GroupReply,
    answered_group,
    each_line,
    end_line,
    failed_group,
    waiting_line,
)
from service.api.routes.stream_requests import StreamQuery, format_of, query_of
from service.api.routes.update import Update, refuse_lost
from service.api.server.connections import STREAMING
from service.api.server.front_door import ClientLeft, send_problem
from service.api.server.streamed_bodies import BodyStopped, StreamedBody, stream_unpacker_of
from service.api.services import Services
from service.errors import (
    LabelsUnavailable,
    LogFull,
    ServiceError,
    SlowBody,
    StateUnavailable,
    StreamRefused,
    UpdateUnavailable,
)
from service.example_log.appender import Placed, results_of, until_learned
from service.feedback.labels import TakenLabels, results_of_labels
from service.models.registry import OpenModel
from service.parsing.streams.groups import Group, StreamFormat
from service.runtime.tasks import cancel_all
from service.settings import Settings
from service.storage.errors import Backoff
from service.telemetry.metrics import Metrics

GROUPS_AHEAD = 4
"""Groups that are appended and not yet answered."""
DROP_SECONDS = 2.0
"""How long a client that is sent the last line may go on sending, before the connection is closed."""
FIRST_WAITING_SECONDS, WAITING_SECONDS = 1.0, 5.0
"""After how long, and then how often, a client is told that its lines wait because the log is full."""
HEADERS = [
    (b"content-type", b"application/x-ndjson"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # otherwise nginx would buffer it
]


class OpenStreams:
    """The streams of one process."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: set[StreamedBody] = set()
        self.stopping = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def open(self, make: Callable[[], StreamedBody]) -> Iterator[StreamedBody]:
        """Raises StreamRefused."""
        if self.stopping.is_set():
            raise StreamRefused("This process is being stopped.", retry_after_seconds=1)
        if len(self._open) >= self._limit:
            raise StreamRefused(
                f"{self._limit} updates are being streamed to this process (FTRL_MAX_UPDATE_STREAMS)."
            )
        body = make()
        self._open.add(body)
        try:
            yield body
        finally:
            self._open.discard(body)

    def stop(self) -> None:
        """End all streams after the lines that were read, and open no more."""
        self.stopping.set()
        for body in self._open:
            body.stop()


class _Sent(NamedTuple):
    """A group that was sent to the log, or why it was not."""

    group: Group
    placed: Placed
    taken: Sequence[TakenLabels]
    deadline: float
    failure: ServiceError | None = None


class StreamUpdate:
    """The handler of both routes of `/update` for bodies that are no JSON."""

    def __init__(
        self, services: Services, update: Update, metrics: Metrics, settings: Settings, streams: OpenStreams
    ) -> None:
        self._services = services
        self._update = update
        self._metrics = metrics
        self._settings = settings
        self._streams = streams
        metrics.refresh_with(lambda: metrics.update_streams.set(len(streams)))

    async def __call__(self, name: str, scope: Scope, receive: Receive, send: Send) -> int:
        """Return the status: a problem if the stream cannot begin, else 200."""
        idle = self._settings.stream_idle_seconds
        try:
            file_format = format_of(scope)
            unpacker = stream_unpacker_of(scope)
            query = query_of(scope["query_string"], self._settings)
            await self._update.model(name)
            with self._streams.open(lambda: StreamedBody(receive, unpacker, idle)) as body:
                scope[STREAMING] = perf_counter()
                try:
                    stream = _Stream(
                        name, query, body, send, self._services, self._update, self._metrics, self._settings
                    )
                    await stream.run(file_format, self._streams.stopping)
                finally:
                    await body.close()
        except Exception as error:  # noqa: BLE001  the edge: every exception becomes a reply
            return await send_problem(error, scope, send)
        return 200


class _Stream:
    """One stream, to the model of that name or alias."""

    def __init__(
        self,
        name: str,
        query: StreamQuery,
        body: StreamedBody,
        send: Send,
        services: Services,
        update: Update,
        metrics: Metrics,
        settings: Settings,
    ) -> None:
        self._name = name
        self._query = query
        self._body = body
        self._send = send
        self._services = services
        self._update = update
        self._metrics = metrics
        self._timeout_seconds = settings.update_timeout_seconds
        self._totals = Counter[str]()
        self._through = 0

    async def run(self, file_format: StreamFormat, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        await self._begin()
        read: asyncio.Queue[Group | End] = asyncio.Queue(1)
        sent: asyncio.Queue[_Sent | End] = asyncio.Queue(GROUPS_AHEAD)
        tasks = [
            asyncio.create_task(self._read_all(file_format, read)),
            asyncio.create_task(self._append_all(read, sent)),
        ]
        try:
            end = await self._answer_all(sent)
        except Exception as failure:  # noqa: BLE001  the last line reports it
            end = _end_of(failure)
        finally:
            await cancel_all(tasks)
        if end.reason != "left":
            await self._finish(end)

    async def _begin(self) -> None:
        await asyncio.sleep(0)  # the body is asked for: a client that expects 100 Continue is sent it first
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})

    async def _finish(self, end: End) -> None:
        await self._write(end_line(end, self._through, self._totals))
        if not self._body.ended:
            self._body.stop()
            await self._body.dropped(DROP_SECONDS)
        await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, lines: bytes) -> None:
        if lines:
            await self._send({"type": "http.response.body", "body": lines, "more_body": True})

    async def _read_all(self, file_format: StreamFormat, read: asyncio.Queue[Group | End]) -> None:
        try:
            async for group in file_format.read(self._body.pieces(), self._open_now, self._query.options):
                await read.put(group)
            end = End("complete")
        except Exception as failure:  # noqa: BLE001  the last line reports it
            end = _end_of(failure)
        await read.put(end)

    async def _open_now(self) -> OpenModel:
        self._body.check()
        return await self._update.model(self._name)

    async def _append_all(self, read: asyncio.Queue[Group | End], sent: asyncio.Queue[_Sent | End]) -> None:
        stops = self._query.stops_at_errors
        try:
            while not isinstance(item := await read.get(), End):
                group = item.before(item.bad_lines[0].line) if stops and item.bad_lines else item
                done = await self._append(group)
                if isinstance(done, End):
                    await sent.put(done)
                    return
                if stops and item.bad_lines:
                    group.bad_lines.append(item.bad_lines[0])
                await sent.put(done)
                if stops and (item.bad_lines or done.failure):
                    await sent.put(_stopped_by(item, done))
                    return
                if done.failure:
                    await self._until_up()
            await sent.put(item)
        except Exception as failure:  # noqa: BLE001  the last line reports it
            await sent.put(_end_of(failure))

    async def _append(self, group: Group) -> _Sent | End:
        """Send a group to the log, and wait as long as that is full, unless the stream ends meanwhile."""
        model, labels = group.model, list(group.labels.values())
        taken: list[TakenLabels] | None = None if labels else []
        backoff, report_at = Backoff(), time.monotonic() + FIRST_WAITING_SECONDS
        while True:
            deadline = time.monotonic() + self._timeout_seconds
            try:
                if taken is None:
                    taken = await self._update.take(self._name, model, labels, deadline)
                placed = await self._services.updates.append(model, group.examples, deadline)
                return _Sent(group, placed, taken, deadline)
            except LogFull as full:
                if self._stopping.is_set() or self._body.left:
                    return End("left" if self._body.left else "stopping")
                if time.monotonic() > report_at:
                    report_at = time.monotonic() + WAITING_SECONDS
                    await self._write(waiting_line(group.first, full))
                await backoff.pause()
            except (UpdateUnavailable, LabelsUnavailable, StateUnavailable) as failure:
                return _Sent(group, Placed([], []), [], deadline, failure)

    async def _until_up(self) -> None:
        """Wait until Redis accepts writes: what is read meanwhile would only fail as well."""
        health, backoff = self._services.health, Backoff()
        while (not health.up or health.refusal) and not (self._stopping.is_set() or self._body.left):
            await backoff.pause()

    async def _answer_all(self, sent: asyncio.Queue[_Sent | End]) -> End:
        while not isinstance(item := await sent.get(), End):
            reply = await self._answered(item)
            self._totals.update(reply.statuses)
            self._through = item.group.last
            await self._write(reply.lines)
        return item

    async def _answered(self, sent: _Sent) -> GroupReply:
        group, placed, taken = sent.group, sent.placed, sent.taken
        if sent.failure is not None:
            return failed_group(group, sent.failure)
        labels = list(group.labels.values())
        if self._query.wait:
            await until_learned(group.model, placed.places, sent.deadline)
            for part in taken:
                await part.learned(sent.deadline)
        try:
            await refuse_lost(group.model, placed, labels, taken)
        except (UpdateUnavailable, LabelsUnavailable) as lost:
            return failed_group(group, lost)
        results = results_of(group.model, placed, group.examples.batch.labels)
        labelled = results_of_labels(labels, taken)
        if "unknown" in labelled.statuses:
            self._services.unknown.add(group.model, labelled.statuses)
        self._metrics.updated(group.model.name, results.statuses + labelled.statuses)
        write = each_line if self._query.each else answered_group
        return write(group, results, labelled)


def _stopped_by(group: Group, sent: _Sent) -> End:
    """Return the end of a stream that ends at the first line that is not taken."""
    if sent.failure is not None:
        return End("error", sent.failure.code, sent.failure.detail)
    bad = group.bad_lines[0]
    return End("error", bad.error["code"], f"line {bad.line} is not valid: {bad.error['detail']}")


def _end_of(failure: Exception) -> End:
    """Return the end of a stream that cannot go on."""
    if isinstance(failure, ClientLeft):
        return End("left")
    if isinstance(failure, BodyStopped):
        return End("stopping")
    if isinstance(failure, SlowBody):
        return End("idle", failure.code, failure.detail)
    if isinstance(failure, InvalidInput):
        return End("error", failure.code, str(failure))
    problem = json.loads(problem_of(failure, "/update").body)
    return End("error", problem["code"], problem["detail"])
