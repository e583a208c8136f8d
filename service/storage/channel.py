"""Connections to Redis that reopen themselves: all communication with the server goes through them.

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
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from importlib import resources
from typing import Any, Literal, NamedTuple

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

from service.runtime.tasks import cancel_all, retrieve_exception
from service.settings.groups import RedisSettings
from service.storage.errors import CONNECTION_FAILURES, NotSent
from service.storage.topology import Clock, Node, Topology, connect, redirection_target

Argument = str | bytes | memoryview | int | float
"""An argument of a command. A memoryview is of contiguous bytes, which are sent without a copy: they must not
change until they are sent, also if the call is cancelled.
"""

Packed = Sequence[bytes | memoryview]
"""A command in the protocol of Redis, in parts."""

_MORE = object()  # the reply is incomplete so far


class _Exchange(NamedTuple):
    """A command that was sent: the future of its reply, and until when (the loop's time) that may take."""

    answered: asyncio.Future[Any]
    due: float
    seconds: float


class Wire(asyncio.Protocol):
    """Commands and their replies over a connection that redis-py has opened and logged in.

    Exchanges may overlap: the server replies in the order of the commands. After a failure only `close` may
    be called. A reply whose caller has left is read and dropped.
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
        self._exchanges: deque[_Exchange] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport.set_protocol(self)

    @property
    def is_idle(self) -> bool:
        return not self._exchanges

    async def exchange(self, packed: Packed, seconds: float) -> Any:
        """Sends a packed command and returns its reply.

        Raises the exception of an error reply, NotSent on a connection that has ended, RedisConnectionError,
        and RedisTimeoutError after `seconds`, which ends the connection.
        """
        if not self.is_open:
            raise NotSent("the connection has ended")
        exchange = _Exchange(self._loop.create_future(), self._loop.time() + seconds, seconds)
        self._exchanges.append(exchange)
        if self._timer is None:
            self._timer = self._loop.call_at(exchange.due, self._give_up)
        self._transport.writelines(packed)
        reply = await exchange.answered
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def close(self) -> None:
        """Drops what has not been sent yet."""
        self._end("the connection was closed")
        self._transport.abort()
        await self.connection.disconnect(nowait=True)
        await asyncio.sleep(0)  # the socket is closed on the loop's next turn

    def data_received(self, data: bytes) -> None:
        try:
            self._replies.feed(data)
            while (reply := self._replies.gets()) is not _MORE:
                self._answer(reply)
        except InvalidResponse as failure:
            self._end(f"no reply in the protocol of Redis: {failure}")

    def connection_lost(self, failure: Exception | None) -> None:
        self._end(f"the connection ended: {failure or 'closed by the server'}")

    def _answer(self, reply: Any) -> None:
        if self._exchanges:
            answered = self._exchanges.popleft().answered
            if not answered.done():
                answered.set_result(reply)

    def _give_up(self) -> None:
        """One timer serves all exchanges: the earliest is due first, and most are answered before."""
        self._timer = None
        if not self._exchanges:
            return
        oldest = self._exchanges[0]
        if self._loop.time() >= oldest.due:
            self._end(f"no answer within {oldest.seconds:g} s", RedisTimeoutError)
        else:
            self._timer = self._loop.call_at(oldest.due, self._give_up)

    def _end(self, reason: str, kind: type[RedisError] = RedisConnectionError) -> None:
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._exchanges:
            answered = self._exchanges.popleft().answered
            if not answered.done():
                answered.set_exception(kind(reason))
                answered.exception()  # a caller that was cancelled meanwhile does not retrieve it


Purpose = Literal["requests", "learning", "polls"]
"""Uses of shared connections. Short polls, such as a lease's renewal, do not queue behind large commits or
appends.
"""


class SharedWires:
    """The open connections that the channels of a process share: one for each server and purpose."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._wires: dict[tuple[Node | None, Purpose], Wire] = {}
        self._opening: dict[tuple[Node | None, Purpose], asyncio.Task[Wire]] = {}

    async def wire(self, node: Node | None, purpose: Purpose) -> Wire:
        """Opens it if none is open; callers that come meanwhile get the same one. Raises NotSent."""
        key = (node, purpose)
        wire = self._wires.get(key)
        if wire is not None and wire.is_open:
            return wire
        if key not in self._opening:
            self._opening[key] = asyncio.create_task(self._open(node, purpose), name="connection to Redis")
            self._opening[key].add_done_callback(retrieve_exception)
        return await asyncio.shield(self._opening[key])

    async def _open(self, node: Node | None, purpose: Purpose) -> Wire:
        key = (node, purpose)
        try:
            if ended := self._wires.pop(key, None):
                await ended.close()
            self._wires[key] = await open_wire(self._topology, node)
            return self._wires[key]
        finally:
            del self._opening[key]

    async def close(self) -> None:
        await cancel_all(self._opening.values())
        while self._wires:
            await self._wires.popitem()[1].close()


async def open_wire(topology: Topology, node: Node | None) -> Wire:
    """Opens a connection, by default to where `Topology.open` leads. Raises NotSent."""
    try:
        async with asyncio.timeout(topology.timeout):
            wire = Wire(await topology.open(node))
    except (RedisError, OSError) as failure:  # OSError has TimeoutError among its kinds
        topology.limit.note(failure)
        raise NotSent(str(failure) or f"no connection within {topology.timeout:g} s") from failure
    if not wire.is_open:
        await wire.close()
        raise NotSent("the connection was closed by the server as soon as it was made")
    return wire


CONFIRMED_SECONDS = 600.0
MAX_CORRECTION_SECONDS = 1.0
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the former is that of Linux


def _since_boot() -> float:
    return time.clock_gettime(_BOOT_CLOCK)


class SteadyClock:
    """The wall clock of this process without its jumps: what it is set to counts once it has counted for
    CONFIRMED_SECONDS. Corrections of less than a second count at once.

    `wall`, `elapsed`: seconds since 1970, and since any moment; the latter also while the machine sleeps.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = _since_boot
    ) -> None:
        self._wall, self._elapsed = wall, elapsed
        self._offset = wall() - elapsed()
        self._since: float | None = None  # when the wall clock was first seen to differ

    def milliseconds(self) -> int:
        elapsed = self._elapsed()
        offset = self._wall() - elapsed
        if abs(offset - self._offset) < MAX_CORRECTION_SECONDS:
            self._offset, self._since = offset, None
        elif self._since is None:
            self._since = elapsed
        elif elapsed - self._since >= CONFIRMED_SECONDS:
            self._offset, self._since = offset, None
        return int(1000 * (elapsed + self._offset))


PROCESS_CLOCK = SteadyClock()

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


_ARGUMENTS_PER_PART = 1000


async def _packed(command: tuple[Argument, ...]) -> Packed:
    """Packs a command. While one of many arguments, as of a large append, is packed, other tasks run."""
    if len(command) <= _ARGUMENTS_PER_PART and memoryview not in map(type, command):
        return [hiredis.pack_command(command)]  # type: ignore[arg-type]  # its stub wants a tuple of one
    parts: list[bytes | memoryview] = [b"*%d\r\n" % len(command)]
    for start in range(0, len(command), _ARGUMENTS_PER_PART):
        parts += filter(len, _parts(command[start : start + _ARGUMENTS_PER_PART]))
        if len(command) > _ARGUMENTS_PER_PART:
            await asyncio.sleep(0)
    return parts


def _parts(arguments: tuple[Argument, ...]) -> Iterator[bytes | memoryview]:
    """Packs arguments, without the header that says how many there are."""
    start = 0
    for place, argument in enumerate(arguments):
        if isinstance(argument, memoryview):
            assert argument.contiguous, "the bytes stand together"
            assert argument.itemsize == 1, "their number is the length of the view"
            yield _packed_arguments(arguments[start:place])
            yield b"$%d\r\n" % argument.nbytes
            yield argument
            yield b"\r\n"
            start = place + 1
    yield _packed_arguments(arguments[start:])


def _packed_arguments(arguments: tuple[Argument, ...]) -> bytes:
    """Packs arguments none of which is a memoryview, without that header."""
    packed: bytes = hiredis.pack_command(arguments)  # type: ignore[arg-type]
    return packed[packed.index(b"\n") + 1 :]


_ASKING = [hiredis.pack_command(("ASKING",))]


class Channel:
    """A connection that is opened by the first call, closed after any failure, and reopened by the next call.
    Where a cluster redirects a call to another node (MOVED), it connects to that node and stays.

    Unlike a client with a pool it knows whether a command can have reached the server, and it costs less
    per call. Each call may take as long as connecting may.

    `node` pins it to one server. Without `follow`, a call that another server has to answer raises NotSent,
    and once the keys are there the next call goes there: for calls that depend on more than the keys that
    they name.

    Without `shared` the connection is its own, and calls must not overlap. With it, all channels of the
    process that share for that purpose use one connection: for calls that do not block, which may overlap.
    """

    def __init__(
        self,
        topology: Topology,
        node: Node | None = None,
        *,
        follow: bool = True,
        shared: Purpose | None = None,
    ) -> None:
        self._topology = topology
        self._timeout = topology.timeout
        self._node = node
        self._follow = follow
        self._shared = shared
        self._wire: Wire | None = None
        self.opened = 0
        """How many connections it has had: a new one may lead to another server."""
        self.kept = 0
        """How many of these were not for a single call whose keys are being moved. While this stays the same,
        the server has not gone back to an earlier state.
        """

    @property
    def block_seconds(self) -> float:
        """Max time that a call may block at the server. With more, every idle call would appear to be an
        outage of the server.
        """
        return self._timeout / 2

    @property
    def clock(self) -> Clock:
        """The clock with which scripts compare that of the server."""
        return self._topology.clock or PROCESS_CLOCK

    @property
    def connected(self) -> bool:
        return self._wire is not None and self._wire.is_open

    async def info(self, *sections: str) -> dict[str, str]:
        """The server's own report (INFO). Raises what `call` raises."""
        lines = bytes(await self.call("INFO", *sections)).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    async def call(self, *command: Argument) -> Any:
        """Raises NotSent, any of CONNECTION_FAILURES once it may have been sent, ResponseError for an error
        reply.
        """
        packed = await _packed(command)
        for _ in range(MAX_REDIRECTIONS):
            wire = self._wire
            if wire is None or not wire.is_open:
                wire = await self._open(self._node)
            assert wire.is_idle or self._shared, "calls do not overlap"
            try:
                return await self._exchange(wire, packed)
            except MovedError as moved:
                await self._go_to(redirection_target(moved, wire.connection))
            except AskError as migrating:
                if not self._follow:
                    raise NotSent("these keys are being moved to another node") from migrating
                return await self._ask(redirection_target(migrating, wire.connection), packed)
        raise NotSent("the nodes of the cluster do not agree on where these keys are")

    async def _exchange(self, wire: Wire, packed: Packed) -> Any:
        try:
            return await wire.exchange(packed, self._timeout)
        except (ReadOnlyError, ClusterDownError, *CONNECTION_FAILURES) as failure:
            self._topology.limit.note(failure)  # the first reply may be that refusal
            # No server, or no longer the master: the next call finds the current one.
            self._topology.avoid(wire.connection)
            await wire.close()
            raise
        except ResponseError:
            raise
        except BaseException:  # when cancelled
            if not self._shared:  # the reply may never come, as of a call that blocks
                await wire.close()
            raise

    async def _go_to(self, node: Node) -> None:
        await self._open(node)
        if not self._follow:
            raise NotSent(f"these keys are at {node.host}:{node.port}")

    async def _ask(self, node: Node, packed: Packed) -> Any:
        """Sends one command for a key that is being moved to another node over a connection for that alone,
        since the other keys are still here.
        """
        wire = await open_wire(self._topology, node)
        self.opened += 1
        try:
            await self._exchange(wire, _ASKING)
            return await self._exchange(wire, packed)
        finally:
            await wire.close()

    async def _open(self, node: Node | None) -> Wire:
        await self.close()
        if self._shared:
            self._wire = await self._topology.only(SharedWires).wire(node, self._shared)
        else:
            self._wire = await open_wire(self._topology, node)
        self.opened += 1
        self.kept += 1
        return self._wire

    async def close(self) -> None:
        """Closes the connection, unless others share it."""
        wire, self._wire = self._wire, None
        if wire is not None and not self._shared:
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
        self._needs_time = "clock" in after

    async def __call__(self, channel: Channel, keys: Sequence[str | bytes], *arguments: Argument) -> Any:
        """Raises what Channel.call raises."""
        if self._needs_time:
            arguments = (*arguments, channel.clock.milliseconds())
        try:
            return await channel.call("EVALSHA", self.digest, len(keys), *keys, *arguments)
        except NoScriptError:  # it did not run
            return await channel.call("EVAL", self.text, len(keys), *keys, *arguments)
