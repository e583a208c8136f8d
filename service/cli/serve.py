"""Run the API or the learners in this process, until a signal stops them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple, Self

from service.errors import CommandFailure
from service.settings import Settings
from service.telemetry.logs import StartFailure

if TYPE_CHECKING:
    from service.app import Application


def listen(host: str, port: int, flag: str = "--port") -> socket.socket:
    """A listening socket; `flag` is what sets its port. Raises CommandFailure."""
    from service.api.server.uvicorn_server import BACKLOG

    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as e:
        raise CommandFailure(
            f"cannot listen on {host}:{port}: {e.strerror or e}; choose another with --host and {flag}"
        ) from e


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def with_redis_url(settings: Settings, *, errand: bool = False) -> Iterator[Settings]:
    """The settings with a `redis_url`: the given one, or that of the embedded server, running meanwhile.

    `errand`: see EmbeddedServer.
    """
    if not settings.embedded:
        yield settings
        return
    from service.storage.embedded import EmbeddedServer

    with EmbeddedServer(settings, errand=errand) as server:
        yield settings.model_copy(update={"redis_url": server.url})


class Listeners(NamedTuple):
    """Where an API process listens. `health`: where alone it tells how it is; None: at `service`."""

    service: socket.socket
    health: socket.socket | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(listener.fileno() for listener in self if listener is not None)


@contextmanager
def listeners_of(settings: Settings, inherited: tuple[int, ...] = ()) -> Iterator[Listeners]:
    """Newly opened, or those of the supervisor. Raises CommandFailure."""
    with ExitStack() as stack:
        if inherited:
            yield Listeners(*(stack.enter_context(socket.socket(fileno=fd)) for fd in inherited))
            return
        service = stack.enter_context(listen(settings.host, settings.port))
        health = None
        if settings.health_port is not None:
            health = stack.enter_context(listen(settings.host, settings.health_port, "--health-port"))
        if settings.anonymous_abroad:
            raise CommandFailure(
                f"whoever reaches {settings.host} could call the service: make tokens with"
                " `ftrl token create` and set FTRL_TOKENS_FILE, or set FTRL_ALLOW_ANONYMOUS=true"
            )
        yield Listeners(service, health)


def serve_api(
    settings: Settings, listeners: Listeners, on_start: Callable[[], None], *, run_learner: bool
) -> None:
    """Answer HTTP until SIGINT or SIGTERM, then finish what is in flight; `on_start` is called when requests
    are answered. Raises CommandFailure, TokenFileError.
    """
    from service.app import create_app

    health_port = listeners.health.getsockname()[1] if listeners.health is not None else None
    app = create_app(settings, run_learner=run_learner, health_port=health_port)
    sockets = [listener for listener in listeners if listener is not None]
    _run(app, settings, sockets, app.end_streams, on_start)


def learn(settings: Settings, listener: socket.socket) -> None:
    """Run the learners of all models until SIGINT or SIGTERM. Raises CommandFailure."""
    from service.app import create_learner_app

    # Nobody waits for a learner's answers, but the next one for its leases.
    at_once = settings.model_copy(update={"drain_seconds": 0.0})
    _run(create_learner_app(settings, url_of(listener)), at_once, [listener])


def _run(
    app: Application,
    settings: Settings,
    listeners: list[socket.socket],
    on_stop: Callable[[], None] = lambda: None,
    on_start: Callable[[], None] = lambda: None,
) -> None:
    from service.api.server.uvicorn_server import server_of

    failure = StartFailure()
    logging.getLogger("uvicorn.error").addFilter(failure)
    server = server_of(app.entry, settings, app.phase.stop_soon, on_stop, on_start)
    try:
        server.run(sockets=listeners)
    except SystemExit:
        if app.phase.stopping:
            return
        raise CommandFailure(f"the service did not start: {failure.reason or 'see the log'}") from None


def stop_with_parent() -> None:
    """Stop this process when its standard input ends, which a supervisor holds open as long as it lives."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


class FirstReady:
    """The supervisor's, within a running loop: calls `announce` once, when the first worker answers.

    `writer`: the end of the pipe that workers inherit (file descriptor).
    """

    writer: int

    def __init__(self, announce: Callable[[], None]) -> None:
        self._announce = announce
        self._announced = False

    def __enter__(self) -> Self:
        self._reader, self.writer = os.pipe()
        asyncio.get_running_loop().add_reader(self._reader, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reader)
        os.close(self._reader)
        os.close(self.writer)

    def _read(self) -> None:
        """Also what workers tell that are started again, or the pipe would fill up."""
        os.read(self._reader, 4096)
        if not self._announced:
            self._announced = True
            self._announce()


def tell_ready(writer: int) -> None:
    """Of a worker, when it answers; once, as it closes the pipe."""
    with os.fdopen(writer, "wb", buffering=0) as pipe:
        pipe.write(b"\n")
