"""How many connections there may be, how long each may take to ask and to take its answers, and how much it
may ask ahead: what uvicorn leaves open.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
from time import monotonic
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger(__name__)

MOST_HEAD_BYTES = 64 * 1024
MOST_PIPELINED = 100
"""Requests that wait behind one which is being answered; more end the connection."""
LINGER_SECONDS = 0.5
FILES_FOR_OTHER_THINGS = 256


class Connections:
    """Those of one process. Whoever is not being answered waits; where there are too many, the one that has
    waited longest goes.
    """

    def __init__(self, most: int, header_seconds: float, message_seconds: float, send_seconds: float) -> None:
        self.most = most
        self.header_seconds = header_seconds
        self.message_seconds = message_seconds
        self.send_seconds = send_seconds
        self.draining = False
        """Whether each answer is the last of its connection."""
        self.waiting: dict[BoundedProtocol, None] = {}
        self.all: set[BoundedProtocol] = set()
        self._timer: asyncio.TimerHandle | None = None

    def made(self, protocol: BoundedProtocol) -> None:
        if len(self.all) >= self.most:
            goes = next(iter(self.waiting), protocol)
            self.forget(goes)
            goes.transport.abort()
            if goes is protocol:
                return
        self.all.add(protocol)
        self.waiting[protocol] = None
        if self._timer is None:
            self._look_later()

    def forget(self, protocol: BoundedProtocol) -> None:
        self.all.discard(protocol)
        self.waiting.pop(protocol, None)

    def _look_later(self) -> None:
        seconds = min(self.header_seconds, self.send_seconds) / 4
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if self.all:
            self._look_later()
        now = monotonic()
        for protocol in list(self.all):
            if protocol.takes_nothing(now):
                protocol.transport.abort()
            elif protocol.deadline < now and not protocol.pipeline:
                protocol.too_slow()


class TooManyPipelined(Exception):
    """Stops the parser; uvicorn then answers 400 and closes."""


class Tunnel(Exception):
    """Stops the parser, as TooManyPipelined does: what follows a CONNECT is not HTTP."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection, with a deadline for each request: for its headers, then for the whole of it.

    What reads a body keeps a shorter time itself and answers 408; this one is for bodies that nobody reads.
    A caller who takes no answers has none to wait for: while more than the transport's high-water mark is
    unsent, or anything at a close, the next part has to go within `send_seconds`.

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
        self.deadline = monotonic() + self.of.header_seconds
        super().connection_made(transport)
        self.of.made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.of.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Replace uvicorn's, which drops the body of an upgrade that it refuses."""
        self._unset_keepalive_if_required()
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
            if self._head_bytes > MOST_HEAD_BYTES:
                self._end(b"431 Request Header Fields Too Large")

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
        if len(self.pipeline) >= MOST_PIPELINED:
            raise TooManyPipelined
        super().on_headers_complete()
        self._reads_head = False
        self.deadline = monotonic() + self.of.message_seconds
        self.of.waiting.pop(self, None)
        if self.of.draining:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self.deadline = math.inf

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()  # uvicorn has just resumed it, and would read on after each answer
        elif self in self.of.all:
            self.of.waiting[self] = None
            if self.deadline != math.inf:  # what has begun to come could not go on while nothing was read
                self.deadline = max(self.deadline, monotonic() + self.of.header_seconds)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._send_deadline = monotonic() + self.of.send_seconds

    def resume_writing(self) -> None:
        super().resume_writing()
        self._send_deadline = math.inf

    def takes_nothing(self, now: float) -> bool:
        """Whether what is to be sent has waited too long. A closed transport stays until it has sent all."""
        if self.transport.is_closing() and self._send_deadline == math.inf:
            self._send_deadline = now + self.of.send_seconds
        return self._send_deadline < now

    def shutdown(self) -> None:
        """A request may be on its way, and is then still answered."""
        if self in self.of.waiting:
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
        if self in self.of.waiting:
            self.transport.close()

    def _end(self, status: bytes) -> None:
        self.deadline = math.inf
        if not self.transport.is_closing():
            head = b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(head)
            self.transport.close()


def bounded_protocol(connections: Connections) -> type[BoundedProtocol]:
    """As uvicorn wants it: a class."""
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
