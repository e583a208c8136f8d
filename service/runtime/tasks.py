"""Background tasks: starting, supervising and cancelling them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
MOMENTS_A_SECOND = 20

Result = TypeVar("Result")


def begin(work: Coroutine[Any, Any, None], fault: str) -> asyncio.Task[None]:
    """Starts a task that is not awaited; its failure is logged as `fault`."""
    task = asyncio.create_task(work)
    task.add_done_callback(partial(_log_failure, fault))
    return task


def _log_failure(fault: str, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error(fault, exc_info=failure)


def _same_name(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task with the name of the one that starts it, as a list of all tasks shows it."""
    starting = asyncio.current_task()
    return asyncio.create_task(work, name=starting.get_name() if starting else None)


async def pause(seconds: float) -> None:
    """Sleeps about so long, until a moment at which other such pauses end, too: tasks of many models that
    work at the same moment share the system calls of a connection.
    """
    now = asyncio.get_running_loop().time()
    await asyncio.sleep(max(0.0, math.floor((now + seconds) * MOMENTS_A_SECOND) / MOMENTS_A_SECOND - now))


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels the tasks and returns when all have ended, with or without a failure."""
    known = list(tasks)
    for task in known:
        task.cancel()
    await asyncio.gather(*known, return_exceptions=True)


def retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Marks a failure as seen: every caller that waits for it raises it, and there may be none left."""
    if not task.cancelled():
        task.exception()


async def first_to_end(work: Coroutine[Any, Any, None], *companions: asyncio.Task[Any]) -> None:
    """Runs `work` to its end, or until one of its companions fails. Raises what either raised."""
    task = _same_name(work)
    pending: set[asyncio.Task[Any]] = {task, *companions}
    try:
        while task in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
    finally:
        await cancel_all([task])


def in_daemon_thread(work: Callable[[], Result], name: str | None = None) -> asyncio.Future[Result]:
    """Runs `work` in a thread; the future has its result or exception. Unlike with asyncio.to_thread the
    process can end without waiting for it: for calls to other servers, which may hang.
    """
    outcome: Future[Result] = Future()
    outcome.set_running_or_notify_cancel()  # from here on it cannot be cancelled

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as failure:  # noqa: BLE001  it is raised where it is awaited
            outcome.set_exception(failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    return asyncio.wrap_future(outcome)


@contextlib.asynccontextmanager
async def background(work: Awaitable[None]) -> AsyncIterator[None]:
    """Runs `work` concurrently with the body and cancels it afterwards."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        await cancel_all([task])


async def for_ever(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Restarts `work` whenever it ends or fails unexpectedly."""
    while True:
        task = _same_name(work())
        try:
            await asyncio.wait([task])
        finally:
            await cancel_all([task])
        log.error("background work ended and is restarted", exc_info=task.exception())
        await asyncio.sleep(RETRY_SECONDS)
