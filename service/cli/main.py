"""The `ftrl` command. What is slow to import is imported inside the command that needs it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer

from service import __version__
from service.cli import explain as explain_command
from service.cli import feedback as feedback_command
from service.cli import log as log_command
from service.cli import rebuild as rebuild_command
from service.cli import reproduce as reproduce_command
from service.cli import simulate as simulation_command
from service.cli import snapshot as snapshot_command
from service.cli import token as token_command
from service.cli import tune as tune_command
from service.cli.replay import command as replay_command
from service.cli.serve import Listeners, with_redis_url
from service.cli.setting_flags import misspelt_variables, with_settings
from service.runtime.kernels import choose_kernel_cache, kernels_are_compiled, leave_compiler_behind
from service.settings import Settings
from service.telemetry.logs import configure_logging

logger = logging.getLogger("service")

app = typer.Typer(
    name="ftrl",
    help="Streaming click prediction: learns online over HTTP, with its state in Redis or Valkey.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SupervisedAs = Annotated[str, typer.Option(hidden=True, help="Role, when a supervisor runs this process.")]


@app.command()
@with_settings
def serve(settings: Settings) -> None:
    """Run the service: the API and the learner."""
    from service.cli.serve import listeners_of, serve_api

    _start_logging(settings)
    with _stoppable(), listeners_of(settings) as listeners:
        announce = _announcing(settings, listeners.service, settings.workers)
        with with_redis_url(settings) as found:
            if found.workers == 1:
                serve_api(found, listeners, announce, run_learner=True)
            else:
                _supervise(found, listeners, announce)


@app.command()
@with_settings
def api(
    settings: Settings,
    listen_fds: Annotated[str, typer.Option(hidden=True, help="Inherited listening sockets.")] = "",
    ready_fd: Annotated[int, typer.Option(hidden=True, help="Inherited pipe, to tell that it answers.")] = -1,
    supervised_as: SupervisedAs = "",
) -> None:
    """Run the API alone; a learner runs elsewhere (`ftrl learn`)."""
    from service.cli.serve import listeners_of, serve_api, tell_ready

    _start_logging(settings, supervised_as)
    if supervised_as:
        from service.telemetry.multiprocess import share_metrics

        share_metrics(supervised_as)
    inherited = tuple(int(descriptor) for descriptor in listen_fds.split(",") if descriptor)
    with _stoppable(), listeners_of(settings, inherited) as listeners:
        if ready_fd < 0:
            on_start = _announcing(settings, listeners.service)
        else:
            on_start = partial(tell_ready, ready_fd)
        with with_redis_url(settings) as found:
            serve_api(found, listeners, on_start, run_learner=False)


@app.command(name="learn")
@with_settings
def learn_command(settings: Settings, supervised_as: SupervisedAs = "") -> None:
    """Run the learner alone. A second one stands by and takes over when the first is silent."""
    from service.cli.serve import learn, listen

    _start_logging(settings, supervised_as)
    with (
        _stoppable(),
        listen(settings.host, settings.learner_port, "--metrics-port") as listener,
        with_redis_url(settings) as found,
    ):
        learn(found, listener)


app.command()(replay_command.replay)
app.command()(explain_command.explain)
app.command()(feedback_command.feedback)
app.command()(rebuild_command.rebuild)
app.command()(simulation_command.simulate)
app.command()(tune_command.tune)
app.add_typer(log_command.app, name="log")
app.add_typer(snapshot_command.app, name="snapshot")
app.add_typer(reproduce_command.app, name="reproduce")
app.add_typer(token_command.app, name="token")


@app.command()
def models(
    url: Annotated[str, typer.Option(help="Address of the service.")] = "http://127.0.0.1:8000",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array on standard output.")] = False,
) -> None:
    """List the models of a running service."""
    from service.cli.models import describe_models, print_table

    described = describe_models(url)
    if as_json:
        sys.stdout.write(json.dumps(described) + "\n")
    else:
        print_table(described)


@app.command()
def version() -> None:
    """Print the version."""
    sys.stdout.write(f"ftrl-service {__version__}\n")


@app.command(hidden=True)
def warm_up() -> None:
    """Compile the kernels, so that no first request waits for it."""
    from model_core.warm_up import warm_up as compile_kernels
    from service.runtime.kernels import remove_stale_caches

    for number in (signal.SIGINT, signal.SIGTERM):  # an exception would get lost inside the compiler
        signal.signal(number, lambda number, _: os._exit(128 + number))
    remove_stale_caches()
    compile_kernels()


def main() -> None:
    """Exit code 0, 1 with one line on standard error after a failure, 2 for a wrong call."""
    choose_kernel_cache()
    try:
        app(prog_name="ftrl")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as e:  # noqa: BLE001 (the last resort of a command line: one line, not a traceback)
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            traceback.print_exc()
        sys.stderr.write(f"ftrl: {_one_line(e)}\n")
        sys.exit(1)


def _one_line(failure: Exception) -> str:
    """Our own exceptions are written for people; of any other, the type is half of what it says."""
    text = " ".join(str(failure).split())
    if type(failure).__module__.startswith(("service.", "model_core.")):
        return text
    return f"{type(failure).__name__}: {text} (--log-level debug shows where)"


def _start_logging(settings: Settings, role: str = "") -> None:
    from service.cli.serve import stop_with_parent

    configure_logging(settings.log_level, settings.log_format, role)
    if role:
        stop_with_parent()
        return
    for name, meant in misspelt_variables():
        logger.warning("%s is no setting and has no effect; was %s meant?", name, meant)


def _announcing(settings: Settings, listener: socket.socket, workers: int = 1) -> Callable[[], None]:
    """What says where it listens, once it answers; why that may take a while is said now."""
    if not kernels_are_compiled():
        logger.warning("the kernels of this version are compiled first, which takes about a minute")
    return partial(_announce, settings, listener, workers)


def _announce(settings: Settings, listener: socket.socket, workers: int) -> None:
    from service.cli.serve import url_of

    url = url_of(listener)
    place = f"in {settings.data_dir.absolute()}" if settings.embedded else f"at {settings.public_redis_url}"
    text = f"ftrl {__version__} listens on {url} (try {url}/docs); its data is {place}"
    if workers > 1:
        text += f"; the first of {workers} workers answers"
    if settings.log_format == "json":
        logger.info(text, extra={"url": url})  # standard output may be a log collector's, too
    else:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM stops as Ctrl-C does: what was started is stopped, and the exit code is 0."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        logger.debug("stopped by a signal")
    leave_compiler_behind()


def _supervise(settings: Settings, listeners: Listeners, announce: Callable[[], None]) -> None:
    from service.cli.serve import FirstReady
    from service.cli.supervisor import Supervisor, api_and_learner
    from service.telemetry.multiprocess import MetricsDirectory

    async def run(metrics: MetricsDirectory) -> None:
        # A moment longer than the children's own: for what is in flight, then for a snapshot being written.
        grace_seconds = settings.drain_seconds + 2 * settings.shutdown_grace_seconds + 5
        with FirstReady(announce) as ready:
            stages = api_and_learner(settings, listeners.descriptors, ready.writer, metrics.path)
            await Supervisor(stages, grace_seconds, on_end=metrics.ended).run()

    with MetricsDirectory() as metrics:
        asyncio.run(run(metrics))
