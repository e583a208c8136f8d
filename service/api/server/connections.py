"""Bounds that uvicorn does not set: the number of connections, the time each may take to send a request and
to receive the reply, and the number of requests it may send ahead.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
from time import monotonic
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
MAX_PIPELINED = 100
"""Max requests queued behind the one that is being answered; more end the connection."""
LINGER_SECONDS = 0.5
STREAMING = "ftrl.streaming"
"""In the scope of a request: when its reply began (perf_counter), as long as its body may go on. The reader
of such a body bounds the time in which nothing comes, instead of the deadline here.
"""
EXCHANGE = "ftrl.exchange"
"""In the scope of a request: its Exchange."""
SMALL_BODY_BYTES = 1 << 14
"""A body up to this size that is there is taken at once."""
FILES_FOR_OTHER_THINGS = 256
_REPLY = b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"


class Connections:
    """The connections of one process. A connection is idle while no request of it is being answered; if there
    are too many, the one that has been idle longest is closed.
    """

    def __init__(
        self,
        max_connections: int,
        header_seconds: float,
        message_seconds: float,
        send_seconds: float,
        keep_alive_seconds: float,
    ) -> None:
        self.max_connections = max_connections
        self.header_seconds = header_seconds
        self.message_seconds = message_seconds
        self.send_seconds = send_seconds
        self.keep_alive_seconds = keep_alive_seconds
        self.draining = False
        """True if each reply is the last of its connection."""
        self.idle: dict[BoundedProtocol, None] = {}
        self.all: set[BoundedProtocol] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._head = b""

    def made(self, protocol: BoundedProtocol) -> None:
        if len(self.all) >= self.max_connections:
            closed = next(iter(self.idle), protocol)
            self.forget(closed)
            closed.transport.abort()
            if closed is protocol:
                return
        self.all.add(protocol)
        self.idle[protocol] = None
        if self._timer is None:
            self._check_later()

    def forget(self, protocol: BoundedProtocol) -> None:
        self.all.discard(protocol)
        self.idle.pop(protocol, None)

    def joined(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """The headers that all replies have, as they are sent; uvicorn makes another list of them each
        second.
        """
        if headers is not self._headers:
            self._headers = headers
            self._head = b"".join([b"%b: %b\r\n" % header for header in headers])
        return self._head

    def _check_later(self) -> None:
        seconds = min(self.header_seconds, self.send_seconds, self.keep_alive_seconds) / 4
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check)

    def _check(self) -> None:
        self._timer = None
        if self.all:
            self._check_later()
        now = monotonic()
        for protocol in list(self.all):
            if protocol.takes_nothing(now):
                protocol.transport.abort()
            elif protocol.idle_until < now:
                protocol.transport.close()
            elif protocol.deadline < now and not protocol.pipeline and not protocol.streams:
                protocol.too_slow()


class Exchange:
    """A request and its reply with fewer steps than by ASGI: `receive` and `send` do the same."""

    __slots__ = ("_connections", "_cycle")

    def __init__(self, cycle: RequestResponseCycle, connections: Connections) -> None:
        self._cycle = cycle
        self._connections = connections

    def take_body(self) -> bytes | None:
        """Take the whole body, if it is small and all of it is there; `receive` is not called then."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue:
            return None
        if len(cycle.body) > SMALL_BODY_BYTES:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return body

    async def reply(self, status: int, body: bytes) -> None:
        """Send a whole reply of JSON: head and body together, as each write is a system call and a packet."""
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        headers = self._connections.joined(cycle.default_headers)
        closing = b"" if cycle.keep_alive else b"connection: close\r\n"
        cycle.transport.write(_REPLY % (STATUS_LINE[status], headers, len(body), closing, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


class TooManyPipelined(Exception):
    """Stops the parser; uvicorn then answers 400 and closes."""


class Tunnel(Exception):
    """Stops the parser, as TooManyPipelined does: what follows a CONNECT is not HTTP."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection, with a deadline for each request: for its headers, then for the whole of it.

    The reader of a body has a shorter time limit and answers 408; this one is for bodies that are not read. A
    client that does not receive its replies is disconnected: while more than the transport's high-water mark
    is unsent, or anything at a close, the next part has to be sent within `send_seconds`.

    A connection on which nothing comes for `keep_alive_seconds` after a reply is closed.

    A request to upgrade to another protocol is answered as if it had no header Upgrade (RFC 9110, 7.8). The
    parser takes all that follows its head for the other protocol and drops the body; the head is therefore
    parsed again without that header.
    """

    of: Connections  # set by `bounded_protocol`

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._reads_head = True
        self._head_bytes = 0
        self._head_began = False
        self._send_deadline = math.inf
        self.idle_until = math.inf
        self.deadline = monotonic() + self.of.header_seconds
        super().connection_made(transport)
        self.of.made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.of.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Replace uvicorn's, which drops the body of an upgrade that it refuses."""
        self.idle_until = math.inf
        self._head_began = False
        unread = data
        while unread:
            try:
                self.parser.feed_data(unread)
                break
            except httptools.HttpParserUpgrade as upgrade:
                unread = self._head_without_upgrade() + unread[upgrade.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("The request is not valid HTTP/1.1.")
                return
        if self._reads_head and not self._head_began:  # else most of the data may be of requests before
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._end(b"431 Request Header Fields Too Large")
                return
        if self in self.of.idle and self.deadline == math.inf:
            # The rest of a body that was refused, or empty lines: no request has begun.
            self.idle_until = monotonic() + self.of.keep_alive_seconds

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reads_head = self._head_began = True
        self._head_bytes = 0
        self.deadline = monotonic() + self.of.header_seconds

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise Tunnel
            return
        if len(self.pipeline) >= MAX_PIPELINED:
            raise TooManyPipelined
        super().on_headers_complete()
        self.scope[EXCHANGE] = Exchange(self.cycle, self.of)  # type: ignore[literal-required]
        self._reads_head = False
        self.deadline = monotonic() + self.of.message_seconds
        self.of.idle.pop(self, None)
        if self.of.draining:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self.deadline = math.inf

    def on_response_complete(self) -> None:
        """Replace uvicorn's, which sets a timer for each reply, and cancels it with the next request."""
        if self.streams and self.cycle.more_body:  # the rest of this body may have no end
            self.transport.close()
        self.server_state.total_requests += 1
        is_open, now = not self.transport.is_closing(), monotonic()
        if is_open and self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self in self.of.all:
            self.of.idle[self] = None
            if is_open:
                self.idle_until = now + self.of.keep_alive_seconds
            if self.deadline != math.inf:  # what had begun to arrive was paused, not slow
                self.deadline = max(self.deadline, now + self.of.header_seconds)
        if is_open and not self.pipeline:
            self.flow.resume_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._send_deadline = monotonic() + self.of.send_seconds

    def resume_writing(self) -> None:
        super().resume_writing()
        self._send_deadline = math.inf

    @property
    def streams(self) -> bool:
        """True while the body of a request is read as a stream, without an end to wait for."""
        return not self._reads_head and STREAMING in self.scope

    def takes_nothing(self, now: float) -> bool:
        """True if unsent bytes have been pending too long. A closed transport stays until it has sent all."""
        if self.transport.is_closing() and self._send_deadline == math.inf:
            self._send_deadline = now + self.of.send_seconds
        return self._send_deadline < now

    def shutdown(self) -> None:
        """A request may be on its way, and is then still answered."""
        if self in self.of.idle:
            self.loop.call_later(LINGER_SECONDS, self._close_unless_answering)
        else:
            super().shutdown()

    def too_slow(self) -> None:
        if self._reads_head:
            self._end(b"408 Request Timeout")
        else:
            self.transport.abort()

    def _head_without_upgrade(self) -> bytes:
        """Return the head that was just parsed without its header Upgrade, and begin a new parser."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        # As uvicorn sets it: what follows a request that closes its connection is no error.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"\r\n".join([*lines, b"", b""])

    def _close_unless_answering(self) -> None:
        if self in self.of.idle:
            self.transport.close()

    def _end(self, status: bytes) -> None:
        self.deadline = math.inf
        if not self.transport.is_closing():
            head = b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(head)
            self.transport.close()


def bounded_protocol(connections: Connections) -> type[BoundedProtocol]:
    """The protocol as a class, which is what uvicorn takes."""
    members: dict[str, Any] = {"of": connections}
    return type("BoundedProtocolOfProcess", (BoundedProtocol,), members)


def affordable_connections(wanted: int) -> int:
    """Raises the limit of open files as far as this process may; fewer connections if that is not enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FILES_FOR_OTHER_THINGS
    if soft < needed or soft == resource.RLIM_INFINITY:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        if soft != resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    affordable = min(wanted, max(soft - FILES_FOR_OTHER_THINGS, soft // 4))
    if affordable < wanted:
        log.warning(
            "at most %d connections instead of %d: this process may open %d files (ulimit -n)",
            affordable,
            wanted,
            soft,
        )
    return affordable
