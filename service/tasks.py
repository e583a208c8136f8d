"""Ending background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels the tasks and returns when all have ended, however they did."""
    known = list(tasks)
    for task in known:
        task.cancel()
    await asyncio.gather(*known, return_exceptions=True)


async def first_to_end(work: Coroutine[Any, Any, None], *companions: asyncio.Task[Any]) -> None:
    """Runs `work` to its end, or until one of its companions fails. Raises what either raised."""
    task = asyncio.ensure_future(work)
    pending: set[asyncio.Task[Any]] = {task, *companions}
    try:
        while task in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
    finally:
        await cancel_all([task])
