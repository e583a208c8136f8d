"""One connection to Redis that reopens itself: the way in which all of the service talks to the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import hiredis
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from service.settings import Settings
from service.storage.connection import Wire
from service.storage.errors import CONNECTION_FAILURES, NotSent
from service.storage.topology import Node, Topology, connect, redirection_target

MAX_REDIRECTIONS = 5


@contextlib.asynccontextmanager
async def open_channel(settings: Settings) -> AsyncIterator[Channel]:
    """Opens a channel to the server at `settings.redis_url`, for the duration of a command."""
    topology = connect(settings, str(settings.redis_url))
    channel = Channel(topology)
    try:
        yield channel
    finally:
        await channel.close()
        await topology.close()


_ASKING = hiredis.pack_command(("ASKING",))


class Channel:
    """One connection with one owner: opened by the first call, closed after any failure and reopened by the
    next call. Where a cluster redirects a call to another node (MOVED), it connects to that node and stays.

    Unlike a client with a pool it knows whether a command can have reached the server, and it costs less
    per call. Calls must not overlap. Each may take as long as connecting may.

    `node` pins it to one server. Without `follow`, a call that another server has to answer raises NotSent,
    and once the keys are there the next call goes there: for calls that depend on more than the keys that
    they name.
    """

    def __init__(self, topology: Topology, node: Node | None = None, *, follow: bool = True) -> None:
        self._topology = topology
        self._timeout = topology.timeout
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
        for _ in range(MAX_REDIRECTIONS):
            wire = self._wire
            if wire is None or not wire.is_open:
                wire = await self._open(self._node)
            try:
                return await self._exchange(wire, packed)
            except MovedError as moved:
                await self._go_to(redirection_target(moved, wire.connection))
            except AskError as migrating:
                if not self._follow:
                    raise NotSent("these keys are on their way to another node") from migrating
                return await self._ask(redirection_target(migrating, wire.connection), packed)
        raise NotSent("the nodes of the cluster do not agree who has these keys")

    async def _exchange(self, wire: Wire, packed: bytes) -> Any:
        try:
            return await wire.exchange(packed, self._timeout)
        except (ReadOnlyError, ClusterDownError, *CONNECTION_FAILURES):
            # No server, or no master any more: the next call looks who is.
            self._topology.avoid(wire.connection)
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
                wire = Wire(await self._topology.open(node))
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
