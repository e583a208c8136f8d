"""Run the API or the learners in this process, until a signal stops them."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from service.log_format import StartFailure
from service.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

BACKLOG = 2048
# Longer than the idle time-out of common load balancers (60 s), or they reuse what we have just closed.
KEEP_ALIVE_SECONDS = 75


class CommandFailure(RuntimeError):
    """A command cannot go on; the text is one line for the person who gave it."""


def listen(host: str, port: int, flag: str = "--port") -> socket.socket:
    """A listening socket; `flag` is what sets its port. Raises CommandFailure."""
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
    from service.embedded import EmbeddedServer

    with EmbeddedServer(settings, errand=errand) as server:
        yield settings.model_copy(update={"redis_url": server.url})


def serve_api(settings: Settings, listener: socket.socket, *, run_learner: bool) -> None:
    """Answer HTTP until SIGINT or SIGTERM, then finish what is in flight. Raises CommandFailure."""
    from service.app import create_app

    app = create_app(settings, run_learner=run_learner)
    _run(app, settings, listener, app.end_streams)


def learn(settings: Settings, listener: socket.socket) -> None:
    """Run the learners of all models until SIGINT or SIGTERM. Raises CommandFailure."""
    from service.app import create_learner_app

    _run(create_learner_app(settings, url_of(listener)), settings, listener)


def _run(
    app: FastAPI, settings: Settings, listener: socket.socket, on_stop: Callable[[], None] = lambda: None
) -> None:
    import uvicorn

    from service.http_server import HttpServer

    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_seconds),
    )
    failure = StartFailure()
    logging.getLogger("uvicorn.error").addFilter(failure)
    server = HttpServer(config, on_stop)
    try:
        server.run(sockets=[listener])
    except SystemExit:
        raise CommandFailure(f"the service did not start: {failure.reason or 'see the log'}") from None


def stop_with_parent() -> None:
    """Stop this process when its standard input ends, which a supervisor holds open as long as it lives."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
