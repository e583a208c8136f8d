"""Failures of Redis: lost connections, and error replies, with which of these are worth another attempt."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

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

from service.errors import LogFull, ServerFull, StateUnavailable

log = logging.getLogger(__name__)

CONNECTION_FAILURES = (RedisConnectionError, RedisTimeoutError, OSError)
"""Raised while the server is down, restarting or unreachable."""


class NotSent(RedisConnectionError):
    """No connection could be made, so the command never left this process."""


def was_cut(failure: Exception) -> bool:
    """Tells if a connection ended during a call, so that a new one may succeed at once."""
    return not isinstance(failure, (NotSent, RedisTimeoutError, TimeoutError, BusyLoadingError))


_TRANSIENT = ("BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF")
_TRANSIENT_KINDS = (ReadOnlyError, ClusterDownError, MasterDownError, TryAgainError)
"""redis-py removes the code from the text of the errors that it knows."""
_MIGRATING = "access a non local key"
"""A script met a key of a slot that is being moved to another node. It had not written anything."""

FULL = "Redis is at its memory limit; raise the server's maxmemory, then try again."


def is_transient(refusal: ResponseError) -> bool:
    """Tells if the same call may succeed later, or at another server, as in a failover."""
    text = str(refusal)
    return isinstance(refusal, _TRANSIENT_KINDS) or text.startswith(_TRANSIENT) or _MIGRATING in text


def is_out_of_memory(refusal: ResponseError) -> bool:
    """Tells if the server is at its maxmemory and therefore did nothing."""
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
        raise LogFull("The Redis server is at its memory limit.") from refusal
    if not is_transient(refusal):
        log.error("Redis refuses to append: %s", refusal)
        raise StateUnavailable(f"Redis refuses to append, nothing was appended: {refusal}") from refusal
