"""Reading of many streams over a few connections: a process with a thousand models needs a dozen, not two
thousand, and an idle stream costs no task and no timer.

A connection reads many streams with one blocking XREAD, so it cannot take up another one until that returns.
A stream therefore stays in it after an entry came, from the newest one delivered on; what comes while its
reader is busy waits in memory, up to one read. Only a stream that is new, or whose reader was slower, joins
with the next XREAD; until then it is read directly.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import ResponseError

from service.runtime.tasks import cancel_all, for_ever
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, Backoff
from service.storage.records import LogId
from service.storage.topology import Topology

STREAMS_A_CONNECTION = 128
STREAMS_A_SECOND = 400
"""Readers that find nothing go on with what they do periodically; all together about so often."""
LONGEST_IDLE_SECONDS = 1.0
LONGEST_BLOCK_SECONDS = 0.25
"""How long a stream that is new waits for its connection at most."""
BLOCK_MS_WHILE_BEHIND = 10

Entry = tuple[bytes, list[bytes]]
"""Id and fields."""


class Stream:
    """A stream as one reader follows it. Reads must not overlap."""

    def __init__(self, connection: _Connection, key: str, model: str) -> None:
        self.key = key
        self.model = model
        self.position = ""  # of the newest entry that was delivered
        self.follows = False  # whether its connection reads it, unless `is_full`
        self.behind = False  # whether it was full, and its reader has not caught up since
        self.change = 0  # counts the changes of `position` by the reader
        self._connection = connection
        self._entries: list[Entry] = []
        self._after: LogId | None = None  # the position that the next entries follow
        self._waiter: asyncio.Future[None] | None = None
        self._due = 0.0

    @property
    def opened(self) -> int:
        """The number of connections so far; entries of an earlier one are not returned."""
        return self._connection.channel.opened

    @property
    def is_full(self) -> bool:
        return len(self._entries) >= self._connection.count

    async def read(self, channel: Channel, position: LogId, seconds: float) -> list[Entry]:
        """Returns the entries after `position`, waiting about `seconds` for the first. `channel` reads them
        if they do not follow on those returned before.

        Raises what Channel.call raises.
        """
        if position != self._after:
            return await self._start(channel, position)
        if not self._entries:
            await self._wait(seconds)
        if self.is_full:
            self.behind, self.follows = True, False
        entries, self._entries = self._entries, []
        if entries:
            self._after = None if self.behind else LogId.parse(entries[-1][0])
        return entries

    async def _start(self, channel: Channel, position: LogId) -> list[Entry]:
        """Reads directly until there is no more, and then has the connection follow from there."""
        self.pause()
        entries = await read_stream(channel, self.key, position, self._connection.count)
        if len(entries) < self._connection.count:
            self._after = LogId.parse(entries[-1][0]) if entries else position
            self.position, self.follows, self.behind = str(self._after), True, False
            self._connection.wake()
        return entries

    async def _wait(self, seconds: float) -> None:
        """Most waits end with an answer of the connection, without a timer of their own."""
        loop = asyncio.get_running_loop()
        self._waiter, self._due = loop.create_future(), loop.time() + seconds
        soon = None if seconds >= self._connection.block_seconds else loop.call_at(self._due, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if soon is not None:
                soon.cancel()

    def pause(self) -> None:
        """Has the connection follow it no more, until the next read."""
        self.change += 1
        self.follows, self._after, self._entries = False, None, []

    def close(self) -> None:
        self._connection.remove(self)

    def deliver(self, entries: list[Entry]) -> None:
        self._entries += entries
        self.position = entries[-1][0].decode()
        self._wake()

    def time_passed(self, now: float) -> None:
        if now >= self._due - self._connection.block_seconds / 2:
            self._wake()

    def fail(self, failure: Exception) -> None:
        """Drops what it has: the next connection may lead to another server."""
        self.pause()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(failure)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Connection:
    """Follows up to STREAMS_A_CONNECTION streams, and is closed while there is none; reads `count` entries of
    each.
    """

    def __init__(self, topology: Topology, count: int) -> None:
        self.count = count
        self.channel = Channel(topology)
        self.streams: list[Stream] = []
        self.block_seconds = block_seconds(topology)
        self._changed = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def follow(self, key: str, model: str) -> Stream:
        stream = Stream(self, key, model)
        self.streams.append(stream)
        if self._work is None:
            self._work = asyncio.create_task(for_ever(self._run), name="streams")
        return stream

    def wake(self) -> None:
        self._changed.set()

    def remove(self, stream: Stream) -> None:
        if stream in self.streams:
            self.streams.remove(stream)
            self.wake()

    async def close(self) -> None:
        if self._work is not None:
            await cancel_all([self._work])
        await self.channel.close()

    async def _run(self) -> None:
        backoff = Backoff()
        while True:
            followed = [stream for stream in self.streams if stream.follows and not stream.is_full]
            if not followed:
                self._changed.clear()
                if not self.streams:
                    await self.channel.close()
                await self._changed.wait()
                continue
            try:
                await self._read(followed)
                backoff.reset()
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                # An error reply is that of one key: its reader meets it again, the others do not.
                for stream in self.streams:
                    stream.fail(failure)
                await backoff.pause()

    async def _read(self, followed: list[Stream]) -> None:
        behind = any(stream.behind for stream in self.streams)
        block_ms = BLOCK_MS_WHILE_BEHIND if behind else max(1, round(1000 * self.block_seconds))
        asked: dict[bytes, list[tuple[Stream, int]]] = {}
        for stream in followed:
            asked.setdefault(stream.key.encode(), []).append((stream, stream.change))
        reply = await self.channel.call(
            *("XREAD", "COUNT", self.count, "BLOCK", block_ms),
            *("STREAMS", *(stream.key for stream in followed), *(stream.position for stream in followed)),
        )
        for key, entries in reply or ():
            for stream, change in asked[key]:
                new = entries if len(asked[key]) == 1 else _after(entries, stream.position)
                if stream.change == change and new:
                    stream.deliver(new)
        now = asyncio.get_running_loop().time()
        for stream in self.streams:
            stream.time_passed(now)


def block_seconds(topology: Topology) -> float:
    return min(LONGEST_BLOCK_SECONDS, topology.timeout / 2)


class Streams:
    """The streams that a process follows. In a cluster each model has a connection, as one command cannot
    read the keys of several.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._connections: list[_Connection] = []
        self._shortest_seconds = block_seconds(topology)

    @property
    def idle_seconds(self) -> float:
        """The seconds to wait for entries before doing what is periodic."""
        streams = sum(len(connection.streams) for connection in self._connections)
        return max(self._shortest_seconds, min(LONGEST_IDLE_SECONDS, streams / STREAMS_A_SECOND))

    def follow(self, key: str, model: str, count: int) -> Stream:
        """`count`: the entries of one read. The caller closes what it follows."""
        connection = next((one for one in self._connections if self._fits(one, model, count)), None)
        if connection is None:
            connection = _Connection(self._topology, count)
            self._connections.append(connection)
        return connection.follow(key, model)

    def _fits(self, connection: _Connection, model: str, count: int) -> bool:
        of_model = not self._topology.one_slot_a_call or all(
            stream.model == model for stream in connection.streams
        )
        return connection.count == count and len(connection.streams) < STREAMS_A_CONNECTION and of_model

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


async def read_stream(channel: Channel, key: str, position: LogId, count: int) -> list[Entry]:
    """Returns the entries after `position`, at most `count`, without waiting.

    Raises what Channel.call raises.
    """
    streams: Any = await channel.call("XREAD", "COUNT", count, "STREAMS", key, str(position))
    return [entry for _, entries in streams or () for entry in entries]


def _after(entries: list[Entry], position: str) -> list[Entry]:
    newest = LogId.parse(position)
    return [entry for entry in entries if LogId.parse(entry[0]) > newest]
