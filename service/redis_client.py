"""Connections to Redis, and the atomic verbs (Lua scripts) that run over them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any

import hiredis
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, OutOfMemoryError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.settings import Settings

CONNECTION_FAILURES = (RedisConnectionError, RedisTimeoutError, OSError)
"""What a server that is away, restarting or unreachable raises."""


class NotSent(RedisConnectionError):
    """No connection could be made, so the command never left this process."""


def connect(settings: Settings, url: str) -> Redis:
    """A client for the server at `url`; it retries nothing by itself (see `ExampleLog` for why)."""
    options: dict[str, Any] = {}
    if settings.redis_password is not None:
        options["password"] = settings.redis_password.get_secret_value()
    if url.startswith("rediss://"):
        options |= {
            "ssl_ca_certs": _path(settings.redis_ca_cert),
            "ssl_certfile": _path(settings.redis_client_cert),
            "ssl_keyfile": _path(settings.redis_client_key),
        }
    return Redis.from_url(
        url,
        socket_connect_timeout=settings.redis_timeout_seconds,
        socket_timeout=None,  # Channel keeps the time: asyncio.wait_for, behind this, loses cancellations
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        **options,
    )


@contextlib.asynccontextmanager
async def one_errand(settings: Settings) -> AsyncIterator[Channel]:
    """A connection to the server at `settings.redis_url`, for a command that has something to do there."""
    client = connect(settings, str(settings.redis_url))
    channel = Channel(client)
    try:
        yield channel
    finally:
        await channel.close()
        await client.aclose()


def is_out_of_memory(refusal: ResponseError) -> bool:
    """Whether the server is at its maxmemory and therefore did nothing."""
    return isinstance(refusal, OutOfMemoryError) or "OOM command not allowed" in str(
        refusal
    )  # Redis 6 scripts


def _path(value: object) -> str | None:
    return None if value is None else str(value)


class Channel:
    """One connection of one user: opened when first needed, closed after any failure, opened again by the
    next call.

    Unlike a client with a pool it knows whether a command can have reached the server, and it costs less
    per call. Calls must not overlap. Each may take as long as connecting may.
    """

    def __init__(self, client: Redis) -> None:
        self._pool = client.connection_pool
        self._timeout: float = client.connection_pool.connection_kwargs["socket_connect_timeout"]
        self._connection: AbstractConnection | None = None

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._connection.is_connected

    async def call(self, *command: str | bytes | int | float) -> Any:
        """Raises NotSent, any of CONNECTION_FAILURES once it may have been sent, ResponseError for an error
        reply.
        """
        packed = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub wants a tuple of one
        connection = self._connection
        if connection is None or not connection.is_connected:
            connection = await self._open()
        try:
            async with asyncio.timeout(self._timeout):
                await connection.send_packed_command(packed, check_health=False)
                return await connection.read_response()
        except ResponseError:
            raise
        except TimeoutError:
            await self.close()
            raise RedisTimeoutError(f"no answer within {self._timeout:g} s") from None
        except BaseException:  # also when cancelled: a reply left unread would answer the next call
            await self.close()
            raise

    async def _open(self) -> AbstractConnection:
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect()  # type: ignore[no-untyped-call]
        except (RedisError, OSError) as failure:  # OSError has TimeoutError among its kinds
            await connection.disconnect(nowait=True)
            raise NotSent(str(failure)) from failure
        except BaseException:  # cancelled half way
            await connection.disconnect(nowait=True)
            raise
        self._connection = connection
        return connection

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)
            await asyncio.sleep(0)  # the socket is closed on the loop's next turn


class Script:
    """One Lua file of `service/lua`, run by its digest and sent whole only to a server that lacks it."""

    def __init__(self, name: str, keys: int) -> None:
        self._text = resources.files("service").joinpath("lua", f"{name}.lua").read_bytes()
        self._digest = hashlib.sha1(self._text, usedforsecurity=False).hexdigest()
        self._keys = keys

    async def __call__(self, channel: Channel, *keys_then_arguments: str | bytes | int | float) -> Any:
        try:
            return await channel.call("EVALSHA", self._digest, self._keys, *keys_then_arguments)
        except NoScriptError:  # it did not run
            return await channel.call("EVAL", self._text, self._keys, *keys_then_arguments)


read_head = Script("head", keys=2)
read_lag = Script("log_lag", keys=2)
append_examples = Script("append", keys=2)
commit_learned = Script("commit", keys=4)
create_model = Script("create_model", keys=1)
delete_model = Script("delete_model", keys=5)
new_generation = Script("new_generation", keys=1)
fill_state = Script("fill_state", keys=1)
switch_generation = Script("switch_generation", keys=4)
take_lease = Script("lease", keys=1)
release_lease = Script("release_lease", keys=1)
