"""Repeated calls to Redis: until one is answered or a deadline passes, and if any may have taken effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.exceptions import BusyLoadingError, ResponseError

from service.runtime.backoff import Backoff
from service.storage.errors import CONNECTION_FAILURES, NotSent, raise_unless_transient

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.2

Reply = TypeVar("Reply")


class Unanswered(Exception):
    """No attempt was answered by the deadline."""


class Expired(Exception):
    """Raised by a call: neither it nor any attempt before it can take effect any more."""


class Attempts:
    """`may_have_happened`: whether an attempt may have reached the server and may yet succeed, or has."""

    def __init__(self) -> None:
        self.may_have_happened = False

    async def until_answered(self, call: Callable[[], Awaitable[Reply]], deadline: float) -> Reply:
        """Repeats a call that may run twice, until time.monotonic() is `deadline`.

        Raises Unanswered, what the call raises of its own, and a refusal of Redis that is not transient as
        `raise_unless_transient` translates it.
        """
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            try:
                return await call()
            except Expired:
                self.may_have_happened = False
            except (NotSent, BusyLoadingError):
                pass
            except ResponseError as refusal:
                raise_unless_transient(refusal)
            except CONNECTION_FAILURES:
                self.may_have_happened = True
            if backoff.outlasts(deadline):
                raise Unanswered
            await backoff.pause()
