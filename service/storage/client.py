"""Connections to Redis, and the atomic verbs (Lua scripts) that run over them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import hiredis
from redis.asyncio import Redis
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    InvalidResponse,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.settings import Settings
from service.storage.connection import Wire
from service.storage.topology import Node, Servers, node_named_by, servers_of

MOST_REDIRECTIONS = 5

CONNECTION_FAILURES = (RedisConnectionError, RedisTimeoutError, OSError)
"""What a server that is away, restarting or unreachable raises."""


class NotSent(RedisConnectionError):
    """No connection could be made, so the command never left this process."""


def was_cut(failure: Exception) -> bool:
    """Whether a connection ended under a call, so that another one may do at once."""
    return not isinstance(failure, (NotSent, RedisTimeoutError, TimeoutError, BusyLoadingError))


def connect(settings: Settings, url: str) -> Redis:
    """A client for the Redis at `url`, of which only the connections are used, by Channel."""
    return Redis.from_pool(servers_of(settings, url))


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


_ASKING = hiredis.pack_command(("ASKING",))


class Channel:
    """One connection of one user: opened when first needed, closed after any failure, opened again by the
    next call. Where a cluster says that the keys of a call are elsewhere, it goes there and stays.

    Unlike a client with a pool it knows whether a command can have reached the server, and it costs less
    per call. Calls must not overlap. Each may take as long as connecting may.

    `node` pins it to one server. Without `follow`, a call that another server has to answer raises NotSent,
    and once the keys are there the next call goes there: for whoever needs more of a server than the keys
    that it names.
    """

    def __init__(self, client: Redis, node: Node | None = None, *, follow: bool = True) -> None:
        self._servers: Servers = client.connection_pool  # type: ignore[assignment]  # `connect` made it
        self._timeout: float = client.connection_pool.connection_kwargs["socket_connect_timeout"]
        self._node = node
        self._follow = follow
        self._wire: Wire | None = None
        self.opened = 0
        """How many connections there have been: another may lead to another server."""

    @property
    def block_seconds(self) -> float:
        """How long a call may wait at the server: longer, and every idle one would look like a server that is
        away.
        """
        return self._timeout / 2

    @property
    def connected(self) -> bool:
        return self._wire is not None and self._wire.is_open

    async def call(self, *command: str | bytes | int | float) -> Any:
        """Raises NotSent, any of CONNECTION_FAILURES once it may have been sent, ResponseError for an error
        reply.
        """
        packed = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub wants a tuple of one
        for _ in range(MOST_REDIRECTIONS):
            wire = self._wire
            if wire is None or not wire.is_open:
                wire = await self._open(self._node)
            try:
                return await self._exchange(wire, packed)
            except MovedError as moved:
                await self._go_to(node_named_by(moved, wire.connection))
            except AskError as migrating:
                if not self._follow:
                    raise NotSent("these keys are on their way to another node") from migrating
                return await self._ask(node_named_by(migrating, wire.connection), packed)
        raise NotSent("the nodes of the cluster do not agree who has these keys")

    async def _exchange(self, wire: Wire, packed: bytes) -> Any:
        try:
            return await wire.exchange(packed, self._timeout)
        except (ReadOnlyError, ClusterDownError, *CONNECTION_FAILURES):
            # No server, or no master any more: the next call looks who is.
            self._servers.avoid(wire.connection)
            await self.close()
            raise
        except ResponseError:
            raise
        except BaseException:  # when cancelled: a reply left unread would answer the next call
            await self.close()
            raise

    async def _go_to(self, node: Node) -> None:
        await self.close()
        await self._open(node)
        if not self._follow:
            raise NotSent(f"these keys are at {node.host}:{node.port}")

    async def _ask(self, node: Node, packed: bytes) -> Any:
        """One command for a key that is on its way to another node, over a connection of its own: the other
        keys are still here.
        """
        here, self._wire = self._wire, None
        try:
            wire = await self._open(node)
            await self._exchange(wire, _ASKING)
            return await self._exchange(wire, packed)
        finally:
            await self.close()
            self._wire = here

    async def _open(self, node: Node | None) -> Wire:
        await self.close()
        try:
            async with asyncio.timeout(self._timeout):
                wire = Wire(await self._servers.open(node))
        except (RedisError, OSError) as failure:  # OSError has TimeoutError among its kinds
            raise NotSent(str(failure) or f"no connection within {self._timeout:g} s") from failure
        if not wire.is_open:
            await wire.close()
            raise NotSent("the connection was closed by the server as soon as it was made")
        self._wire = wire
        self.opened += 1
        return wire

    async def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()


async def masters(client: Redis) -> list[Node | None]:
    """The servers that together hold all keys; None: the only one. Raises what Channel.call raises."""
    servers: Servers = client.connection_pool  # type: ignore[assignment]  # `connect` made it
    timeout = client.connection_pool.connection_kwargs["socket_connect_timeout"]
    try:
        async with asyncio.timeout(timeout):
            return await servers.masters()
    except TimeoutError as failure:
        raise RedisTimeoutError(str(failure) or f"no answer within {timeout:g} s") from failure
    except InvalidResponse as failure:  # as Wire takes it
        raise RedisConnectionError(f"no reply in the protocol of Redis: {failure}") from failure
