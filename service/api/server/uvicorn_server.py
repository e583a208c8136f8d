"""uvicorn's server, which reports when it answers, and ends streams when it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from service.api.server.connections import Connections, affordable_connections, bounded_protocol
from service.settings.groups import ServerSettings


class HttpServer(uvicorn.Server):
    """Calls `on_start` when it answers, and `on_stop` before it waits for the replies that have begun.

    uvicorn notifies an application only after that wait, which a stream would extend to the whole grace
    period.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        on_stop: Callable[[], None],
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen only now: another process may have begun to listen on a port that was bound before. uvloop
        does not report that.
        """
        await super().startup(sockets)
        if self.started and not all(map(_listens, sockets or [])):
            log.error("cannot listen: another process listens on this port")
            await self.lifespan.shutdown()
            sys.exit(1)
        if self.started:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)


def _listens(listener: socket.socket) -> bool:
    try:
        return bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:  # closed by the loop
        return False


log = logging.getLogger(__name__)

BACKLOG = 2048


class DrainingServer(HttpServer):
    """At the first signal it reports that it is not ready, and still answers for `drain_seconds`, each reply
    the last of its connection; then it stops listening and finishes the requests in flight. A second signal
    ends the drain.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        connections: Connections,
        drain_seconds: float,
        on_signal: Callable[[], None],
        on_stop: Callable[[], None],
        on_start: Callable[[], None],
    ) -> None:
        super().__init__(config, on_stop, on_start)
        self._connections = connections
        self._drain_seconds = drain_seconds
        self._on_signal = on_signal
        self._stop_at = math.inf
        self._signal = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._connections.draining or not self._drain_seconds:
            super().handle_exit(sig, frame)
        else:
            log.info("no longer ready; requests are answered for %g s more", self._drain_seconds)
            self._signal = sig
            self._stop_at = time.monotonic() + self._drain_seconds
        self._connections.draining = True
        self._on_signal()

    async def on_tick(self, counter: int) -> bool:
        if time.monotonic() >= self._stop_at and not self.should_exit:
            super().handle_exit(self._signal, None)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections that are still in the backlog, and answer them: closing would reset them."""
        pending = [connection for listener in sockets or [] for connection in _pending(listener)]
        answering = asyncio.create_task(self._answer(pending))
        await super().shutdown(sockets)
        await answering

    async def _answer(self, pending: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for connection in pending:
            protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
            )
            with contextlib.suppress(OSError):  # gone already
                await loop.connect_accepted_socket(lambda made=protocol: made, connection)  # type: ignore[misc]
                protocol.shutdown()  # type: ignore[attr-defined]


def _pending(listener: socket.socket) -> list[socket.socket]:
    """Accept all connections in the backlog."""
    listener.setblocking(False)
    accepted: list[socket.socket] = []
    with contextlib.suppress(OSError):  # until there is none
        while len(accepted) < BACKLOG:
            connection = listener.accept()[0]
            connection.setblocking(False)
            accepted.append(connection)
    return accepted


def server_of(
    app: ASGIApp,
    settings: ServerSettings,
    on_signal: Callable[[], None],
    on_stop: Callable[[], None],
    on_start: Callable[[], None],
) -> DrainingServer:
    connections = Connections(
        affordable_connections(settings.max_connections),
        settings.header_timeout_seconds,
        settings.header_timeout_seconds + 2 * settings.body_timeout_seconds,
        settings.send_timeout_seconds,
        settings.keep_alive_seconds,
    )
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=bounded_protocol(connections),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_seconds),
    )
    return DrainingServer(config, connections, settings.drain_seconds, on_signal, on_stop, on_start)
