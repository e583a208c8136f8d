"""Several processes as one service: started together, restarted when they end, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.errors import CommandFailure
from service.settings import Settings, environment
from service.telemetry.multiprocess import VARIABLE

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 30.0
SETTLED_SECONDS = 60.0  # after this uptime, a restart is without the delay from earlier failures
START_SECONDS = 60.0  # a start takes half a minute on a busy machine


@dataclass(frozen=True)
class Child:
    """A process to keep running. Its standard input is a pipe that ends with the supervisor."""

    role: str
    command: Sequence[str]
    environment: Mapping[str, str]
    inherited: Sequence[int] = ()  # file descriptors


def api_and_learner(
    settings: Settings, listeners: Sequence[int], ready: int, metrics: Path
) -> list[list[Child]]:
    """`settings.workers` API processes that share the sockets `listeners`, the pipe `ready` of FirstReady
    (file descriptors) and the directory `metrics`, and one learner: stopped in this order.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FTRL_")}
    variables.pop(VARIABLE, None)  # the learner answers for itself alone
    variables |= environment(settings)
    python = (sys.executable, "-m", "service")
    descriptors = ",".join(map(str, listeners))
    api = [
        Child(
            role,
            (*python, "api", "--listen-fds", descriptors, "--ready-fd", str(ready), "--supervised-as", role),
            variables | {VARIABLE: str(metrics)},
            (*listeners, ready),
        )
        for role in (f"api-{number}" for number in range(1, settings.workers + 1))
    ]
    # One name for all that run one after the other: the next need not await the lease of one that was killed.
    held_by = ("--lease-holder", secrets.token_hex(8))
    learner = Child("learner", (*python, "learn", "--supervised-as", "learner", *held_by), variables)
    return [api, [learner]]


class Supervisor:
    """Keeps `stages` of children running until SIGINT or SIGTERM, then stops one stage after the other.

    The API goes before the learner, so that updates in flight are still learned. A child that is still there
    `grace_seconds` after its SIGTERM is killed, and all are at a second signal. A child that fails by itself
    within START_SECONDS of its first start ends everything, whether it had begun to work or not: such a fault
    needs an operator, not a retry.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[Child]],
        grace_seconds: float,
        on_end: Callable[[str], None] = lambda _: None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._stages = stages
        self._grace_seconds = grace_seconds
        self._on_end = on_end  # called with the role of each child that has ended
        self._on_stop = on_stop  # called before the first stage is stopped, none of which starts again then
        self._processes: set[asyncio.subprocess.Process] = set()
        self._signalled = asyncio.Event()
        self._kills = False

    async def run(self) -> None:
        """Raises CommandFailure when a child cannot be started."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        stops = [asyncio.Event() for _ in self._stages]
        tasks = [
            [asyncio.create_task(self._keep_running(child, stop)) for child in stage]
            for stage, stop in zip(self._stages, stops, strict=True)
        ]
        every_task = [task for stage in tasks for task in stage]
        signalled = asyncio.create_task(self._signalled.wait())
        await asyncio.wait([signalled, *every_task], return_when=asyncio.FIRST_COMPLETED)
        signalled.cancel()
        self._on_stop()
        for stage, stop in zip(tasks, stops, strict=True):
            stop.set()
            await asyncio.wait(stage)
        for task in every_task:
            task.result()

    def _on_signal(self) -> None:
        if self._signalled.is_set():
            self._kills = True
            for process in self._processes:
                process.kill()
        self._signalled.set()

    async def _keep_running(self, child: Child, stop: asyncio.Event) -> None:
        delay = FIRST_DELAY_SECONDS
        starts = 0
        while not (stop.is_set() or self._kills):
            began = time.monotonic()
            code = await self._run_once(child, stop)
            if stop.is_set() or self._kills:
                return
            lived = time.monotonic() - began
            starts += 1
            if starts == 1 and code > 0 and lived < START_SECONDS and not self._signalled.is_set():
                raise CommandFailure(f"the {child.role} process did not start (exit code {code})")
            delay = FIRST_DELAY_SECONDS if lived > SETTLED_SECONDS else min(2 * delay, LONGEST_DELAY_SECONDS)
            logger.error(
                "%s ended (%s) after %.1f s; starting it again in %.1f s",
                child.role,
                _how(code),
                lived,
                delay,
            )
            await _wait(stop, delay)

    async def _run_once(self, child: Child, stop: asyncio.Event) -> int:
        """Run the child until it ends, or stop it once `stop` is set; return its exit code."""
        process = await asyncio.create_subprocess_exec(
            *child.command,
            env=child.environment,
            stdin=asyncio.subprocess.PIPE,
            pass_fds=child.inherited,
            start_new_session=True,  # Ctrl-C reaches the supervisor only, which stops its children in order
        )
        logger.info("%s is process %d", child.role, process.pid)
        self._processes.add(process)
        if self._kills:
            process.kill()
        ended = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            await self._end(child, process, ended)
        self._processes.discard(process)
        code = await ended
        self._on_end(child.role)
        return code

    async def _end(self, child: Child, process: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
        process.terminate()
        await asyncio.wait([ended], timeout=self._grace_seconds)
        if not ended.done():
            logger.error("%s did not stop within %.0f s and is killed", child.role, self._grace_seconds)
            process.kill()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
