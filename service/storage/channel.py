"""One connection to Redis that reopens itself: all communication with the server goes through it.

Why the service does not use redis-py for the exchange too: by streams it takes twice the processor time,
measured as 43 us against 20 us for a script with 7 predictions. `Wire` takes over the socket instead, as a
protocol of asyncio, and parses replies with hiredis. Connecting, TLS and authentication stay with redis-py.

It relies on private parts of redis-py: `_reader`, `_writer` and `_parser` of a connection. pyproject.toml
bounds its version, and tests/service/storage/test_private_parts.py fails if they change.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Sequence
from importlib import resources
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AskError,
    ClusterDownError,
    InvalidResponse,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.settings.groups import RedisSettings
from service.storage.errors import CONNECTION_FAILURES, NotSent
from service.storage.topology import Node, Topology, connect, redirection_target

_MORE = object()  # the reply is incomplete so far


class Wire(asyncio.Protocol):
    """One command and its reply at a time, over a connection that redis-py has opened and logged in.

    Exchanges must not overlap. After a failure or a cancelled exchange only `close` may be called: a reply
    that is still on its way would answer the next command.
    """

    def __init__(self, connection: AbstractConnection) -> None:
        # redis-py has no public way to the socket and to the exception that belongs to an error reply.
        reader, writer, parser = connection._reader, connection._writer, connection._parser  # noqa: SLF001
        assert reader is not None, "the connection is open"
        assert writer is not None, "the connection is open"
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._transport = writer.transport
        # If the connection ended with the last reply to redis-py, the protocol is not notified again.
        self.is_open = not reader.at_eof() and not self._transport.is_closing()
        self._replies = hiredis.Reader(
            protocolError=InvalidResponse, replyError=parser.parse_error, notEnoughData=_MORE
        )
        self._answered: asyncio.Future[Any] | None = None
        self._transport.set_protocol(self)

    async def exchange(self, packed: bytes, seconds: float) -> Any:
        """Sends a packed command and returns its reply.

        Raises the exception of an error reply, RedisConnectionError, and RedisTimeoutError after `seconds`.
        """
        assert self._answered is None or self._answered.done(), "exchanges do not overlap"
        answered = self._answered = self._loop.create_future()
        late = self._loop.call_later(seconds, self._give_up, seconds)
        self._transport.write(packed)
        try:
            reply = await answered
        finally:
            late.cancel()
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def close(self) -> None:
        """Drops what has not been sent yet."""
        self.is_open = False
        self._transport.abort()
        await self.connection.disconnect(nowait=True)
        await asyncio.sleep(0)  # the socket is closed on the loop's next turn

    def data_received(self, data: bytes) -> None:
        try:
            self._replies.feed(data)
            reply = self._replies.gets()
        except InvalidResponse as failure:
            self._end(RedisConnectionError(f"no reply in the protocol of Redis: {failure}"))
            return
        if reply is not _MORE and self._answered is not None and not self._answered.done():
            self._answered.set_result(reply)

    def connection_lost(self, failure: Exception | None) -> None:
        self._end(RedisConnectionError(f"the connection ended: {failure or 'closed by the server'}"))

    def _give_up(self, seconds: float) -> None:
        self._end(RedisTimeoutError(f"no answer within {seconds:g} s"))

    def _end(self, failure: Exception) -> None:
        self.is_open = False
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(failure)
            self._answered.exception()  # a caller that was cancelled meanwhile does not retrieve it


MAX_REDIRECTIONS = 5


@contextlib.asynccontextmanager
async def open_channel(settings: RedisSettings) -> AsyncIterator[Channel]:
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
        """How many connections have been opened: a new one may lead to another server."""

    @property
    def block_seconds(self) -> float:
        """Max time that a call may block at the server. With more, every idle call would appear to be an
        outage of the server.
        """
        return self._timeout / 2

    @property
    def connected(self) -> bool:
        return self._wire is not None and self._wire.is_open

    async def info(self, *sections: str) -> dict[str, str]:
        """The server's own report (INFO). Raises what `call` raises."""
        lines = bytes(await self.call("INFO", *sections)).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

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
                    raise NotSent("these keys are being moved to another node") from migrating
                return await self._ask(redirection_target(migrating, wire.connection), packed)
        raise NotSent("the nodes of the cluster do not agree on where these keys are")

    async def _exchange(self, wire: Wire, packed: bytes) -> Any:
        try:
            return await wire.exchange(packed, self._timeout)
        except (ReadOnlyError, ClusterDownError, *CONNECTION_FAILURES):
            # No server, or no longer the master: the next call finds the current one.
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
        """Sends one command for a key that is being moved to another node over a connection of its own, since
        the other keys are still here.
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


class Script:
    """One Lua file of `service/storage/lua`, run by its digest and sent whole only to a server that lacks it.

    `after`: further files, with what several scripts share, that come before it.
    """

    def __init__(self, name: str, after: Sequence[str] = ()) -> None:
        self.name = name
        files = resources.files("service.storage").joinpath("lua")
        self.text = b"".join(files.joinpath(f"{part}.lua").read_bytes() for part in (*after, name))
        self.digest = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()

    async def __call__(
        self, channel: Channel, keys: Sequence[str | bytes], *arguments: str | bytes | int | float
    ) -> Any:
        """Raises what Channel.call raises."""
        try:
            return await channel.call("EVALSHA", self.digest, len(keys), *keys, *arguments)
        except NoScriptError:  # it did not run
            return await channel.call("EVAL", self.text, len(keys), *keys, *arguments)
