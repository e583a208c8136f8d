"""Several readers follow many streams over one connection, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import ResponseError

from service.settings import Settings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import LOG_START, LogId
from service.storage.streams import STREAMS_A_CONNECTION, Streams
from service.storage.topology import Topology, connect
from tests.conftest import ServerFactory
from tests.support.servers import ServerProcess
from tests.support.waiting import until

COUNT = 4
LONG = 30.0


@pytest.fixture
def server(server_factory: ServerFactory) -> ServerProcess:
    return server_factory()


@pytest.fixture
async def topology(server: ServerProcess) -> AsyncIterator[Topology]:
    topology = connect(Settings(redis_timeout_seconds=4), server.url)
    yield topology
    await topology.close()


class Reader:
    """Follows a stream, and has the numbers of all entries read so far."""

    def __init__(self, topology: Topology, key: str) -> None:
        self.numbers: list[int] = []
        self._channel = Channel(topology, shared="learning")
        self._stream = topology.only(Streams).follow(key, key, COUNT)
        self._position = LOG_START

    async def read(self, seconds: float = LONG) -> None:
        for entry, (_, number) in await self._stream.read(self._channel, self._position, seconds):
            self._position = LogId.parse(entry)
            self.numbers.append(int(number))

    async def read_until(self, number: int) -> None:
        while not self.numbers or self.numbers[-1] < number:
            await self.read()

    def close(self) -> None:
        self._stream.close()

    def back_to_start(self) -> None:
        self._position, self.numbers = LOG_START, []


async def add(topology: Topology, key: str, *numbers: int) -> None:
    channel = Channel(topology, shared="requests")
    for number in numbers:
        await channel.call("XADD", key, "*", "n", number)


async def test_a_connection_without_streams_is_closed_and_opened_again(
    topology: Topology, server: ServerProcess
) -> None:
    for number in range(3):
        reader = Reader(topology, f"s{number}")
        await add(topology, f"s{number}", number)
        await reader.read_until(number)
        waiting = asyncio.create_task(reader.read())
        await until(lambda: clients(server) == 3)
        waiting.cancel()
        reader.close()
        await until(lambda: clients(server) == 2)


def clients(server: ServerProcess) -> int:
    with server.client() as client:
        return len([one for one in client.client_list() if one["cmd"] != "client|list"])


async def test_readers_share_connections_and_each_gets_its_own_entries(
    topology: Topology, server: ServerProcess
) -> None:
    readers = [Reader(topology, f"s{i}") for i in range(2 * STREAMS_A_CONNECTION)]
    reading = [asyncio.create_task(reader.read_until(i)) for i, reader in enumerate(readers)]
    for i in reversed(range(len(readers))):
        await add(topology, f"s{i}", i)
    await asyncio.gather(*reading)
    assert [reader.numbers for reader in readers] == [[i] for i in range(len(readers))]
    assert clients(server) == 4  # two for the streams, and the shared ones for direct reads and for adding


async def test_a_reader_that_is_slower_than_its_stream_misses_nothing(topology: Topology) -> None:
    slow, other = Reader(topology, "slow"), Reader(topology, "other")
    await slow.read(seconds=0.01)
    await other.read(seconds=0.01)
    for start in range(0, 40, 10):
        await add(topology, "slow", *range(start, start + 10))
        await slow.read()
    await add(topology, "other", 1)
    await asyncio.gather(slow.read_until(39), other.read_until(1))
    assert slow.numbers == list(range(40))


async def test_two_readers_of_one_stream_may_be_at_different_places(topology: Topology) -> None:
    first, second = Reader(topology, "s"), Reader(topology, "s")
    await add(topology, "s", 1, 2)
    await first.read_until(2)
    await add(topology, "s", 3)
    await asyncio.gather(first.read_until(3), second.read_until(3))
    assert first.numbers == second.numbers == [1, 2, 3]


async def test_a_reader_may_go_back(topology: Topology) -> None:
    reader = Reader(topology, "s")
    await add(topology, "s", 1, 2)
    await reader.read_until(2)
    await reader.read(seconds=0.01)
    reader.back_to_start()
    await add(topology, "s", 3)
    await reader.read_until(3)
    assert reader.numbers == [1, 2, 3]


async def test_a_key_that_is_no_stream_fails_its_own_reader_alone(topology: Topology) -> None:
    good, bad = Reader(topology, "good"), Reader(topology, "bad")
    await good.read(seconds=0.01)
    await bad.read(seconds=0.01)
    waiting = asyncio.create_task(bad.read())
    await Channel(topology, shared="requests").call("SET", "bad", "text")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await waiting
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await bad.read()
    await add(topology, "good", 1)
    while not good.numbers:
        try:
            await good.read()
        except ResponseError:  # of the connection that both shared, once
            continue
    assert good.numbers == [1]


async def test_a_restart_of_the_server_is_raised_and_reading_goes_on(
    topology: Topology, server: ServerProcess
) -> None:
    reader = Reader(topology, "s")
    await add(topology, "s", 1)
    await reader.read_until(1)
    waiting = asyncio.create_task(reader.read())
    await until(lambda: reader._stream.follows)
    opened = reader._stream.opened
    await asyncio.to_thread(server.restart)
    with pytest.raises(CONNECTION_FAILURES):
        await waiting
    await add_after_restart(topology)
    await reader.read_until(2)
    assert reader.numbers == [1, 2]
    await until(lambda: reader._stream.opened > opened)


async def add_after_restart(topology: Topology) -> None:
    async def added() -> bool:
        try:
            await add(topology, "s", 2)
        except CONNECTION_FAILURES:
            return False
        return True

    await until(added)
