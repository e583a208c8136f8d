"""Ending background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels the tasks and returns when all have ended, however they did."""
    known = list(tasks)
    for task in known:
        task.cancel()
    await asyncio.gather(*known, return_exceptions=True)
