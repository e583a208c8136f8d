"""The kernels are compiled, or loaded, in a thread that no stop waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from model_core.warm_up import warm_up
from service.kernel_cache import COMPILER
from service.tasks import in_daemon_thread

LOOK_EVERY_SECONDS = 0.1


class StoppedBeforeStart(Exception):
    """A signal came while the kernels were compiled or loaded."""


async def warm_up_unless(stopping: Callable[[], bool]) -> None:
    """Raises StoppedBeforeStart as soon as `stopping()`, and what compiling raises."""
    warming = in_daemon_thread(warm_up, COMPILER)
    while not warming.done():
        if stopping():
            raise StoppedBeforeStart
        await asyncio.wait([warming], timeout=LOOK_EVERY_SECONDS)
    warming.result()
