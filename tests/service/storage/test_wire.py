"""One command and its reply over a connection that redis-py opened, with a server that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import hiredis
import pytest
from redis.exceptions import BusyLoadingError, NoScriptError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.settings import Settings
from service.storage.channel import Argument, Channel, Wire
from service.storage.topology import connect
from tests.support.waiting import until

PING = hiredis.pack_command(("PING",))
LONG = 30.0
PATIENT = Settings(redis_timeout_seconds=4)  # a busy machine is no outage
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def server_that(directory: Path, serve: Serve) -> AsyncIterator[str]:
    """The URL of a server whose connections are served so."""
    path, served = directory / "s", asyncio.Queue[None]()
    connections = 0

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        served.put_nowait(None)

    async with await asyncio.start_unix_server(serve_and_close, path):
        yield f"unix://{path}"
        async with asyncio.timeout(LONG):
            for _ in range(connections):
                await served.get()


@contextlib.asynccontextmanager
async def wire_to(directory: Path, serve: Serve) -> AsyncIterator[Wire]:
    async with server_that(directory, serve) as url:
        wire = Wire(await connect(PATIENT, url).open())
        try:
            yield wire
        finally:
            await wire.close()


def answering(*pieces: bytes) -> Serve:
    """To each command: these bytes one after another, each sent for itself."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(len(PING)):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.001)

    return serve


async def ending(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(len(PING))


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_a_reply_may_come_byte_by_byte(tmp_path: Path) -> None:
    reply = b"*3\r\n$3\r\none\r\n:2\r\n*1\r\n$-1\r\n"
    async with wire_to(tmp_path, answering(*(bytes([byte]) for byte in reply))) as wire:
        assert await wire.exchange([PING], LONG) == [b"one", 2, [None]]
        assert await wire.exchange([PING], LONG) == [b"one", 2, [None]]


async def test_a_reply_may_be_large(tmp_path: Path) -> None:
    content = bytes(1 << 24)
    reply = b"$%d\r\n%b\r\n" % (len(content), content)
    async with wire_to(tmp_path, answering(reply)) as wire:
        assert await wire.exchange([PING], LONG) == content


@pytest.mark.parametrize(
    ("reply", "failure"),
    [(b"-NOSCRIPT none of that name\r\n", NoScriptError), (b"-LOADING its data\r\n", BusyLoadingError)],
)
async def test_an_error_reply_is_raised_as_what_it_is(
    tmp_path: Path, reply: bytes, failure: type[Exception]
) -> None:
    async with wire_to(tmp_path, answering(reply)) as wire:
        with pytest.raises(failure):
            await wire.exchange([PING], LONG)


async def test_the_end_of_the_connection_is_raised_at_once(tmp_path: Path) -> None:
    async with wire_to(tmp_path, ending) as wire:
        with pytest.raises(RedisConnectionError, match="closed by the server"):
            await wire.exchange([PING], LONG)
        assert not wire.is_open


async def test_what_is_no_reply_ends_it(tmp_path: Path) -> None:
    async with wire_to(tmp_path, answering(b"HTTP/1.1 400 Bad Request\r\n")) as wire:
        with pytest.raises(RedisConnectionError, match="protocol"):
            await wire.exchange([PING], LONG)
        assert not wire.is_open


async def test_a_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    async with wire_to(tmp_path, silent) as wire:
        with pytest.raises(RedisTimeoutError, match="no answer within"):
            await wire.exchange([PING], 0.05)
        assert not wire.is_open


async def test_a_connection_that_ended_while_idle_is_reopened(tmp_path: Path) -> None:
    served = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        served += 1
        await reader.read(len(PING))
        writer.write(b"+PONG\r\n")

    async with server_that(tmp_path, once) as url:
        channel = Channel(connect(PATIENT, url))
        for asked in range(1, 4):
            assert await channel.call("PING") == b"PONG"
            await until(lambda: not channel.connected, "the end is noticed")
            assert served == asked
        await channel.close()


async def test_a_connection_that_ends_after_the_login_sends_no_command(
    tmp_path: Path,
) -> None:
    logged_in = asyncio.Event()

    async def leaving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = asyncio.ensure_future(answering(b"+OK\r\n")(reader, writer))
        await logged_in.wait()
        greeting.cancel()
        await asyncio.gather(greeting, return_exceptions=True)

    async with server_that(tmp_path, leaving) as url:
        connection = await connect(PATIENT, f"{url}?db=1").open()
        logged_in.set()
        reader = connection._reader
        assert reader is not None
        await until(reader.at_eof, "the end is noticed")
        wire = Wire(connection)
        assert not wire.is_open
        await wire.close()


async def test_other_tasks_run_while_a_command_of_many_arguments_is_packed(tmp_path: Path) -> None:
    command: tuple[str | bytes, ...] = ("ECHO", *(b"x" * (k % 50) for k in range(10_000)))
    packed, got = hiredis.pack_command(command), b""  # type: ignore[arg-type]  # as in Channel.call
    turns, sent = 0, asyncio.Event()

    async def count_turns() -> None:
        nonlocal turns
        while not sent.is_set():
            turns += 1
            await asyncio.sleep(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        with contextlib.suppress(asyncio.IncompleteReadError):
            sent.set()
            got = await reader.readexactly(len(packed))
            writer.write(b"+OK\r\n")
            await reader.readexactly(1)

    async with server_that(tmp_path, answer) as url:
        channel = Channel(connect(PATIENT, url))
        counting = asyncio.create_task(count_turns())
        assert await channel.call(*command) == b"OK"
        await counting
        await channel.close()
    assert got == packed
    assert turns > 9


VIEW, LARGE = memoryview(b"a\r\n"), memoryview(bytes(range(256)) * 4096)


@pytest.mark.parametrize(
    "command",
    [
        ("ECHO", VIEW),
        ("EVALSHA", "a", 1, LARGE, VIEW, b"b", 2.5, memoryview(b""), LARGE),
        ("ECHO", *[b"x"] * 2500, VIEW, *[7] * 1500, VIEW),
    ],
)
async def test_a_view_is_sent_as_the_bytes_that_it_shows(
    tmp_path: Path, command: tuple[Argument, ...]
) -> None:
    copied = tuple(bytes(one) if isinstance(one, memoryview) else one for one in command)
    packed, got = hiredis.pack_command(copied), b""  # type: ignore[arg-type]  # as in Channel.call

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        got = await reader.readexactly(len(packed))
        writer.write(b"+OK\r\n")
        got += await reader.read()

    async with server_that(tmp_path, answer) as url:
        channel = Channel(connect(PATIENT, url))
        assert await channel.call(*command) == b"OK"
        await channel.close()
    assert got == packed


async def test_what_was_given_up_is_not_sent_later(tmp_path: Path) -> None:
    closed, got = asyncio.Event(), 0
    command = hiredis.pack_command(("ECHO", "x" * (1 << 24)))  # type: ignore[arg-type]  # as in Channel.call

    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await closed.wait()
        while data := await reader.read(1 << 20):
            got += len(data)

    async with wire_to(tmp_path, busy) as wire:
        with pytest.raises(RedisTimeoutError):
            await wire.exchange([command], 0.05)
        await wire.close()
        closed.set()
    assert got < len(command)


async def test_who_leaves_does_not_leave_a_reply_to_the_next(tmp_path: Path) -> None:
    count = 0

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        while await reader.read(len(PING)):
            count += 1
            reply = b":%d\r\n" % count
            await asyncio.sleep(0.2 if count == 1 else 0)
            if not writer.is_closing():
                writer.write(reply)

    async with server_that(tmp_path, late) as url:
        channel = Channel(connect(PATIENT, url))
        leaving = asyncio.create_task(channel.call("PING"))
        await until(lambda: count, "the server has the first command")
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert await channel.call("PING") == 2
        await channel.close()


async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Replies with the number of each command, some at a time."""
    count = 0
    while data := await reader.read(1 << 16):
        for _ in range(len(data) // len(PING)):
            count += 1
            writer.write(b":%d\r\n" % count)


async def test_replies_of_overlapping_exchanges_come_in_order(tmp_path: Path) -> None:
    async with wire_to(tmp_path, counting) as wire:
        replies = await asyncio.gather(*(wire.exchange([PING], LONG) for _ in range(100)))
    assert replies == list(range(1, 101))


async def test_the_reply_of_a_cancelled_exchange_is_dropped(tmp_path: Path) -> None:
    async with wire_to(tmp_path, counting) as wire:
        exchanges = [asyncio.create_task(wire.exchange([PING], LONG)) for _ in range(3)]
        await asyncio.sleep(0)
        exchanges[1].cancel()
        replies = await asyncio.gather(*exchanges, return_exceptions=True)
        assert await wire.exchange([PING], LONG) == 4
    assert (replies[0], replies[2]) == (1, 3)


async def test_a_silent_server_fails_all_exchanges(tmp_path: Path) -> None:
    async with wire_to(tmp_path, silent) as wire:
        replies = await asyncio.gather(
            *(wire.exchange([PING], 0.05) for _ in range(3)), return_exceptions=True
        )
    assert [type(reply) for reply in replies] == [RedisTimeoutError] * 3


async def test_channels_that_share_reopen_one_connection(tmp_path: Path) -> None:
    connections = 0

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            await reader.readexactly(len(PING))
            writer.write(b"+PONG\r\n")

    async with server_that(tmp_path, twice) as url:
        topology = connect(PATIENT, url)
        one, other = (Channel(topology, shared="polls") for _ in range(2))
        for opened in range(1, 4):
            replies = await asyncio.gather(*(channel.call("PING") for channel in (one, other)))
            assert replies == [b"PONG"] * 2
            assert [connections, one.opened, other.opened] == [opened] * 3
            await until(lambda: not one.connected and not other.connected, "the end is noticed")
        await topology.close()
