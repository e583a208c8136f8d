"""Error replies of Redis: which say that it is full, and which may be gone at the next attempt."""

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
"""What a server that is away, restarting or unreachable raises."""


class NotSent(RedisConnectionError):
    """No connection could be made, so the command never left this process."""


def was_cut(failure: Exception) -> bool:
    """Whether a connection ended under a call, so that another one may do at once."""
    return not isinstance(failure, (NotSent, RedisTimeoutError, TimeoutError, BusyLoadingError))


_TRANSIENT = ("BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF")
_TRANSIENT_KINDS = (ReadOnlyError, ClusterDownError, MasterDownError, TryAgainError)
"""Those that redis-py knows lose the code with which their text began."""
_MIGRATING = "access a non local key"
"""Of a script that met a key of a slot which is on its way to another node: it had not written anything."""

FULL = "Redis is at its memory limit; raise the server's maxmemory, then try again."


def is_transient(refusal: ResponseError) -> bool:
    """Whether the same call may succeed later, or at another server: as in a failover."""
    text = str(refusal)
    return isinstance(refusal, _TRANSIENT_KINDS) or text.startswith(_TRANSIENT) or _MIGRATING in text


def is_out_of_memory(refusal: ResponseError) -> bool:
    """Whether the server is at its maxmemory and therefore did nothing."""
    # Scripts of Redis 6 have the code in their text.
    return isinstance(refusal, OutOfMemoryError) or "OOM command not allowed" in str(refusal)


@contextlib.contextmanager
def full_is_told(detail: str = FULL) -> Iterator[None]:
    """Raises ServerFull in place of a refusal for want of memory."""
    try:
        yield
    except ResponseError as refusal:
        if is_out_of_memory(refusal):
            raise ServerFull(detail) from refusal
        raise


def raise_unless_transient(refusal: ResponseError) -> None:
    """An error reply means that nothing was appended; some are worth another attempt."""
    if is_out_of_memory(refusal):
        raise LogFull("The Redis server is at its memory limit.") from refusal
    if not is_transient(refusal):
        log.error("Redis refuses to append: %s", refusal)
        raise StateUnavailable(f"Redis refuses to append, nothing was appended: {refusal}") from refusal
