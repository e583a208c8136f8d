"""Waiting for a condition: the tests poll here and nowhere else, and never sleep instead."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import httpx
import redis

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
"""The default time-out: much longer than any condition takes, even on a busy machine."""
POLL_SECONDS = 0.01
NOT_YET = (OSError, redis.RedisError, httpx.HTTPError, json.JSONDecodeError)
"""Raised by conditions that ask a server which is not there yet, or goes away before it has answered."""


def wait_until(condition: Callable[[], T | None], what: str = "", seconds: float = PATIENCE_SECONDS) -> T:
    """Poll until `condition()` is true and return its value; fail the test with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        failure = None
        try:
            if value := condition():
                return value
        except NOT_YET as e:
            failure = e
        _fail_after(deadline, what, seconds, failure)
        time.sleep(POLL_SECONDS)


@overload
async def until(
    condition: Callable[[], Awaitable[T | None]], what: str = "", seconds: float = PATIENCE_SECONDS
) -> T: ...


@overload
async def until(
    condition: Callable[[], T | None], what: str = "", seconds: float = PATIENCE_SECONDS
) -> T: ...


async def until(condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE_SECONDS) -> Any:
    """As `wait_until`, in the event loop; a coroutine is awaited. The condition must not block."""
    deadline = time.monotonic() + seconds
    while True:
        failure = None
        try:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
        except NOT_YET as e:
            failure = e
        _fail_after(deadline, what, seconds, failure)
        await asyncio.sleep(POLL_SECONDS)


async def until_in_thread(
    condition: Callable[[], T | None], what: str = "", seconds: float = PATIENCE_SECONDS
) -> T:
    """As `until`, for a condition that blocks: a proxy may run in the loop meanwhile."""
    return await until(lambda: asyncio.to_thread(condition), what, seconds)


def _fail_after(deadline: float, what: str, seconds: float, failure: Exception | None) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"not within {seconds:g} s: {what or 'the condition'}") from failure
