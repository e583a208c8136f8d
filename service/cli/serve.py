"""`ftrl serve`, `ftrl api` and `ftrl learn`: the API, the learner or both, until a signal stops them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import typer

from service import __version__
from service.cli.errand import with_redis_url
from service.cli.flags import misspelt_variables, with_settings
from service.errors import CommandFailure
from service.runtime.kernels import kernels_are_compiled, leave_compiler_behind
from service.settings import Settings
from service.telemetry.logs import StartFailure, configure_logging

if TYPE_CHECKING:
    from service.app import Application

logger = logging.getLogger("service")

SupervisedAs = Annotated[str, typer.Option(hidden=True, help="Role, when a supervisor runs this process.")]


@with_settings
def serve(settings: Settings) -> None:
    """Run the service: the API and the learner."""
    start_logging(settings)
    with stoppable(), listeners_of(settings) as listeners:
        announce = _announcing(settings, listeners.service, settings.workers)
        with with_redis_url(settings) as found:
            if found.workers == 1 and not found.separate_learner:
                _serve_api(found, listeners, announce, run_learner=True)
            elif found.learner_port and found.learner_port in (found.port, found.health_port):
                taken = f"the learner would listen on port {found.learner_port} as well"
                raise CommandFailure(f"{taken}: choose another FTRL_METRICS_PORT")
            else:
                _supervise(found, listeners, announce)


@with_settings
def api(
    settings: Settings,
    listen_fds: Annotated[str, typer.Option(hidden=True, help="Inherited listening sockets.")] = "",
    ready_fd: Annotated[int, typer.Option(hidden=True, help="Inherited pipe to report on when ready.")] = -1,
    supervised_as: SupervisedAs = "",
) -> None:
    """Run the API alone; a learner runs elsewhere (`ftrl learn`)."""
    start_logging(settings, supervised_as)
    if supervised_as:
        from service.telemetry.multiprocess import share_metrics

        share_metrics(supervised_as)
    inherited = tuple(int(descriptor) for descriptor in listen_fds.split(",") if descriptor)
    with stoppable(), listeners_of(settings, inherited) as listeners:
        if ready_fd < 0:
            on_start = _announcing(settings, listeners.service)
        else:
            on_start = partial(report_ready, ready_fd)
        with with_redis_url(settings) as found:
            _serve_api(found, listeners, on_start, run_learner=False)


@with_settings
def learn(
    settings: Settings,
    supervised_as: SupervisedAs = "",
    lease_holder: Annotated[str, typer.Option(hidden=True, help="Name that holds the leases.")] = "",
) -> None:
    """Run the learner alone. A second one stands by and takes over if the first fails."""
    start_logging(settings, supervised_as)
    with (
        stoppable(),
        listen(settings.host, settings.learner_port, "--metrics-port") as listener,
        with_redis_url(settings) as found,
    ):
        from service.app import create_learner_app

        # No client awaits a learner's replies, but the next learner waits for its leases.
        at_once = found.model_copy(update={"drain_seconds": 0.0})
        announce = partial(logger.info, "the learner's metrics are at %s/metrics", url_of(listener))
        run_app(create_learner_app(found, lease_holder or None), at_once, [listener], on_start=announce)


def start_logging(settings: Settings, role: str = "") -> None:
    configure_logging(settings.log_level, settings.log_format, role)
    if role:
        _stop_with_parent()
        return
    for name, meant in misspelt_variables():
        logger.warning("unknown setting %s ignored (did you mean %s?)", name, meant)


def _stop_with_parent() -> None:
    """Stop this process when its standard input ends, which a supervisor holds open as long as it lives."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


@contextmanager
def stoppable() -> Iterator[None]:
    """Stop at SIGTERM, SIGQUIT and SIGHUP (unless `nohup` ignores it) as at Ctrl-C: everything started
    is stopped, and the exit code is 0. SIGUSR1 and SIGUSR2 have no effect.
    """

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    def terminate(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)  # which the server and the supervisor handle in their own ways

    signal.signal(signal.SIGTERM, interrupt)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, terminate)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which child processes would inherit
    try:
        yield
    except KeyboardInterrupt:
        logger.debug("stopped by a signal")
    leave_compiler_behind()


class Listeners(NamedTuple):
    """The sockets of an API process. `health`: that of the health routes; None: they are on `service`."""

    service: socket.socket
    health: socket.socket | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(listener.fileno() for listener in self if listener is not None)

    def close(self) -> None:
        for listener in self:
            if listener is not None:
                listener.close()


@contextmanager
def listeners_of(settings: Settings, inherited: tuple[int, ...] = ()) -> Iterator[Listeners]:
    """Yield newly opened sockets, or those of the supervisor. Raises CommandFailure."""
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
                f"anyone who can reach {settings.host} could call the service: make tokens with"
                " `ftrl token create` and set FTRL_TOKENS_FILE, or set FTRL_ALLOW_ANONYMOUS=true"
            )
        yield Listeners(service, health)


def listen(host: str, port: int, flag: str = "--port") -> socket.socket:
    """Return a socket that is bound and not yet listening, so that connections are refused until the server
    that is given it answers; `flag` is what sets its port. The address `::` is that of IPv4 too.

    Raises CommandFailure.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return _bound(host, port, family)
    except OSError as e:
        raise CommandFailure(
            f"cannot listen on {host}:{port}: {e.strerror or e}; choose another with --host and {flag}"
        ) from e


def _bound(host: str, port: int, family: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _announcing(settings: Settings, listener: socket.socket, workers: int = 1) -> Callable[[], None]:
    """Return the function that announces the address once it answers; log a long start in advance."""
    if not kernels_are_compiled():
        logger.warning("the kernels of this version are compiled first, which takes about a minute")
    return partial(_announce, settings, url_of(listener), workers)


def _announce(settings: Settings, url: str, workers: int) -> None:
    text = f"ftrl {__version__} listens on {url} (try {url}/docs); its data is {settings.data_place}"
    if workers > 1:
        text += f"; the first of {workers} workers answers"
    if settings.log_format == "json":
        logger.info(text, extra={"url": url})  # standard output may be a log collector's, too
    else:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _serve_api(
    settings: Settings, listeners: Listeners, on_start: Callable[[], None], *, run_learner: bool
) -> None:
    """Answer HTTP until SIGINT or SIGTERM, then finish requests in flight; `on_start` is called when requests
    are answered. Raises CommandFailure, TokenFileError.
    """
    from service.app import create_app

    health_port = listeners.health.getsockname()[1] if listeners.health is not None else None
    app = create_app(settings, run_learner=run_learner, health_port=health_port)
    sockets = [listener for listener in listeners if listener is not None]
    run_app(app, settings, sockets, app.end_streams, on_start)


def run_app(
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


def _supervise(settings: Settings, listeners: Listeners, announce: Callable[[], None]) -> None:
    from service.cli.supervisor import Supervisor, api_and_learner
    from service.telemetry.multiprocess import MetricsDirectory

    async def run(metrics: MetricsDirectory) -> None:
        # A little longer than the children's own: for requests in flight, then for a snapshot being written.
        grace_seconds = settings.drain_seconds + 2 * settings.shutdown_grace_seconds + 5
        with FirstReady(announce) as ready:
            stages = api_and_learner(settings, listeners.descriptors, ready.writer, metrics.path)
            # Connections are refused once the workers stop, and do not hang until the learner has stopped.
            await Supervisor(stages, grace_seconds, on_end=metrics.ended, on_stop=listeners.close).run()

    with MetricsDirectory() as metrics:
        asyncio.run(run(metrics))


class FirstReady:
    """The supervisor's end of a pipe on which workers report that they answer; used within a running loop.

    The first report calls `announce`. `writer` is the end that workers inherit (file descriptor).
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
        """Read the reports of restarted workers, too, since the pipe would fill up otherwise."""
        os.read(self._reader, 4096)
        if not self._announced:
            self._announced = True
            self._announce()


def report_ready(writer: int) -> None:
    """Report to FirstReady that this worker answers; once, as it closes the pipe."""
    with os.fdopen(writer, "wb", buffering=0) as pipe:
        pipe.write(b"\n")
