"""Failures of Redis: which are worth another attempt, the pauses between attempts, and repeated calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.errors import NO_ANSWER, LogFull, ServerFull, StateUnavailable

log = logging.getLogger(__name__)

CONNECTION_FAILURES = (RedisConnectionError, RedisTimeoutError, OSError)
"""Raised while the server is down, restarting or unreachable."""


class NotSent(RedisConnectionError):
    """No connection could be made, so the command never left this process."""


def was_cut(failure: Exception) -> bool:
    """Returns whether a connection ended during a call, so that a new one may succeed at once."""
    return not isinstance(failure, (NotSent, RedisTimeoutError, TimeoutError, BusyLoadingError))


_TRANSIENT = ("BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF")
_CODES: dict[type[ResponseError], str] = {
    ReadOnlyError: "READONLY",
    ClusterDownError: "CLUSTERDOWN",
    MasterDownError: "MASTERDOWN",
    TryAgainError: "TRYAGAIN",
    OutOfMemoryError: "OOM",
}
"""redis-py removes the code from the text of the errors that it knows."""
_TRANSIENT_KINDS = (ReadOnlyError, ClusterDownError, MasterDownError, TryAgainError)
_MIGRATING = "access a non local key"
"""A script met a key of a slot that is being moved to another node. It had not written anything."""

FULL = "Redis is at its memory limit; raise the server's maxmemory, then try again."


def is_transient(refusal: ResponseError) -> bool:
    """Returns whether the same call may succeed later, or at another server, as in a failover."""
    text = str(refusal)
    return (
        isinstance(refusal, _TRANSIENT_KINDS)
        or text.startswith(_TRANSIENT)
        or any(f" -{code} " in text for code in _TRANSIENT)  # as scripts of Redis 6 report it
        or _MIGRATING in text
    )


def words_of(refusal: ResponseError) -> str:
    """The error as the server sent it, with its code."""
    code = _CODES.get(type(refusal), "")
    text = str(refusal).strip()
    return f"{code} {text}" if code and not text.startswith(code) else text


def is_out_of_memory(refusal: ResponseError) -> bool:
    """Returns whether the server is at its maxmemory and therefore did nothing."""
    # Scripts of Redis 6 have the code in their text.
    return isinstance(refusal, OutOfMemoryError) or "OOM command not allowed" in str(refusal)


@contextlib.contextmanager
def out_of_memory_as_server_full(detail: str = FULL) -> Iterator[None]:
    """Translates a refusal for lack of memory to ServerFull."""
    try:
        yield
    except ResponseError as refusal:
        if is_out_of_memory(refusal):
            raise ServerFull(detail) from refusal
        raise


def raise_unless_transient(refusal: ResponseError) -> None:
    """Raises what an append answers to this error reply, unless another attempt may succeed.

    Nothing was appended, whichever it is.
    """
    if is_out_of_memory(refusal):
        raise LogFull(f"The Redis server is at its memory limit ({words_of(refusal)})") from refusal
    if not is_transient(refusal):
        words = words_of(refusal)
        log.error("Redis refuses to append: %s", words)
        raise StateUnavailable(f"Redis refuses to append, nothing was appended: {words}") from refusal


class Backoff:
    """`first_seconds`: the first pause. Each further one is `factor` times as long, at most `cap_seconds`."""

    def __init__(self, first_seconds: float = 0.05, cap_seconds: float = 1.0, factor: float = 2.0) -> None:
        self._first = self._next = first_seconds
        self._cap = cap_seconds
        self._factor = factor

    def outlasts(self, deadline: float) -> bool:
        """Returns whether the next pause ends at the deadline (time.monotonic()) or later."""
        return time.monotonic() + self._next >= deadline

    def next_seconds(self) -> float:
        """The length of the next pause, which the caller makes."""
        seconds = self._next
        self._next = min(self._factor * seconds, self._cap)
        return seconds

    async def pause(self) -> None:
        await asyncio.sleep(self.next_seconds())

    def reset(self) -> None:
        """To be called after an attempt that succeeded."""
        self._next = self._first


FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.2

_LIMITS = {
    "max number of clients": "Redis refuses connections: it has as many as its maxclients allows.",
    "Too many open files": "This process may open no more connections: raise its limit of open files.",
}
LIMIT_SECONDS = 10.0
LOG_LIMIT_EVERY_SECONDS = 60.0


class ConnectionLimit:
    """Connections that could not be opened because a limit was reached. Models that lack one may not be
    learned, although the server answers others.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._reason = ""
        self._last = -math.inf
        self._logged = -math.inf

    @property
    def reason(self) -> str:
        """The limit that refused one within the last LIMIT_SECONDS; empty for none."""
        return self._reason if time.monotonic() < self._last + LIMIT_SECONDS else ""

    def note(self, failure: Exception) -> None:
        """Counts and logs the failure, if it is that of a limit."""
        for text, reason in _LIMITS.items():
            if text in str(failure):
                self.refused += 1
                self._reason, self._last = reason, time.monotonic()
                if self._last >= self._logged + LOG_LIMIT_EVERY_SECONDS:
                    self._logged = self._last
                    log.error("%s", reason)


Reply = TypeVar("Reply")


class Unanswered(Exception):
    """No attempt was answered by the deadline."""


class Expired(Exception):
    """Raised by a call: neither it nor any attempt before it can take effect any more."""


class Attempts:
    """`may_have_happened`: whether an attempt may have reached the server and may yet succeed, or has.
    `why`: why the last attempt failed.
    """

    def __init__(self) -> None:
        self.may_have_happened = False
        self.why = NO_ANSWER

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
            except BusyLoadingError:
                self.why = "Redis is loading its data."
            except NotSent:
                self.why = NO_ANSWER
            except ResponseError as refusal:
                raise_unless_transient(refusal)
                self.why = f"Redis refuses writes: {words_of(refusal).rstrip('.')}."
            except CONNECTION_FAILURES:
                self.may_have_happened = True
                self.why = NO_ANSWER
            if backoff.outlasts(deadline):
                raise Unanswered
            await backoff.pause()
