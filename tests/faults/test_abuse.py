"""Malicious or broken clients: memory stays bounded and other clients are served."""

from __future__ import annotations

import asyncio
import gzip
import re
import resource
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.conftest import Report, ServerFactory
from tests.support.caller import caller
from tests.support.processes import Launch, ServiceProcess, ready
from tests.support.waiting import until_in_thread

pytestmark = pytest.mark.faults

MEMORY_BYTES = 100 << 20
"""What any of these may cost beyond what the process had before."""
MANY = 10_000
MAX_CONNECTIONS = 1000
NEVER_READ = 20
LIMITS = {
    "header_timeout_seconds": 2,
    "body_timeout_seconds": 1,
    "send_timeout_seconds": 1,
    "max_connections": MAX_CONNECTIONS,
}


def memory(process: ServiceProcess, kind: str) -> int:
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    found = re.search(rf"{kind}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def begin_peak(process: ServiceProcess) -> None:
    """VmHWM counts from now on."""
    Path(f"/proc/{process.process.pid}/clear_refs").write_text("5")


def open_files(process: ServiceProcess) -> int:
    return len(list(Path(f"/proc/{process.process.pid}/fd").iterdir()))


@pytest.fixture
async def api(server_factory: ServerFactory, launch: Launch, report: Report) -> AsyncIterator[ServiceProcess]:
    """Its peak memory is reported at the end, and bounded."""
    process: ServiceProcess = launch("api", server_factory().url, **LIMITS)
    await ready(process)
    before = memory(process, "VmRSS")
    begin_peak(process)
    yield process
    peak = memory(process, "VmHWM")
    report(f"peak memory {peak / 1e6:.0f} MB, {(peak - before) / 1e6:+.1f} MB")
    assert peak - before < MEMORY_BYTES


async def assert_serves(api: ServiceProcess) -> None:
    async with caller() as service:
        assert (await service.post(f"{api.url}/predict", {"features": {"a": "b"}})).status == 200


async def open_to(api: ServiceProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(api.url.rpartition(":")[2]))


async def answer_to(api: ServiceProcess, head: bytes, more: Callable[[int], bytes], pieces: int) -> bytes:
    """What is answered until the connection is closed, to `head` and as many pieces as are taken."""
    reader, writer = await open_to(api)
    try:
        writer.write(head)
        for number in range(pieces):
            writer.write(more(number))
            await writer.drain()
        return await reader.read(200)
    except OSError:
        return b""
    finally:
        writer.close()


HEAD = b"POST /update HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


async def test_a_body_of_a_gigabyte_is_refused(api: ServiceProcess) -> None:
    piece = b" " * (1 << 20)
    answer = await answer_to(api, HEAD + b"Content-Length: %d\r\n\r\n" % (1 << 30), lambda _: piece, 1)
    assert answer.startswith(b"HTTP/1.1 413")
    chunk = b"%x\r\n" % len(piece) + piece + b"\r\n"
    untold = await answer_to(api, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", lambda _: chunk, 1024)
    assert untold[:12] in (b"HTTP/1.1 413", b"")
    await assert_serves(api)


@pytest.mark.parametrize(
    "body",
    [
        b'{"features": {"a": [%b[]]}}' % (b"[]," * (5 << 20)),
        b'{"features": {%b}}' % b",".join(b'"%x":0' % k for k in range(1_000_000)),
        b'{"features": %b1%b}' % (b'{"a":' * (2 << 20), b"}" * (2 << 20)),
    ],
    ids=["lists", "names", "objects"],
)
async def test_a_body_of_millions_of_values_is_refused(api: ServiceProcess, body: bytes) -> None:
    packed = gzip.compress(body, 1)
    for sent, head in ((body, b""), (packed, b"Content-Encoding: gzip\r\n")):
        length = b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(sent)
        answer = await answer_to(api, HEAD + head + length + sent, lambda _: b"", 0)
        assert answer.startswith(b"HTTP/1.1 422")
    await assert_serves(api)


async def test_headers_without_end_are_refused(api: ServiceProcess) -> None:
    answer = await answer_to(api, HEAD, lambda number: b"X-%d: %s\r\n" % (number, b"y" * 1000), 100_000)
    assert answer[:12] in (b"HTTP/1.1 431", b"")
    await assert_serves(api)


async def test_slow_headers_and_slow_bodies_are_ended(api: ServiceProcess) -> None:
    async def trickle(head: bytes) -> bytes:
        reader, writer = await open_to(api)
        writer.write(head)
        answering = asyncio.create_task(reader.read())
        while not answering.done():
            writer.write(b"x")
            await asyncio.wait([answering], timeout=0.2)
        writer.close()
        return b"" if answering.exception() else answering.result()

    async with asyncio.timeout(30):
        slow = await asyncio.gather(
            trickle(HEAD + b"X-Slow: "), trickle(HEAD + b"Content-Length: 1000\r\n\r\n"), trickle(b"")
        )
    assert slow[0][:12] in (b"HTTP/1.1 408", b"")
    assert slow[1][:12] in (b"HTTP/1.1 408", b"")
    await assert_serves(api)


async def test_the_oldest_of_ten_thousand_idle_connections_are_closed(
    api: ServiceProcess,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = min(MANY, hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sockets: list[socket.socket] = []
    try:
        for number in range(many):
            sockets.append(socket.create_connection(("127.0.0.1", int(api.url.rpartition(":")[2]))))
            if number % 1000 == 999:
                await assert_serves(api)
        assert open_files(api) < MAX_CONNECTIONS + 200
    finally:
        for one in sockets:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await assert_serves(api)


def request(body: bytes) -> bytes:
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


SHORT = b"GET /livez HTTP/1.1\r\nX: yyyy\r\n\r\n" * 4000
MANY_ANSWERS = request(b'{"instances": [' + b",".join([b'{"features": {}}'] * 1000) + b"]}")


async def ask_and_never_read(api: ServiceProcess, asks: bytes) -> int:
    """How many bytes are taken until the connection is closed."""
    loop, sent = asyncio.get_running_loop(), 0
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.setblocking(False)
        await loop.sock_connect(one, ("127.0.0.1", int(api.url.rpartition(":")[2])))
        try:
            while True:
                await loop.sock_sendall(one, asks)
                sent += len(asks)
                await asyncio.sleep(0)  # or what can be sent at once keeps the others from running
        except OSError:
            return sent


@pytest.mark.parametrize("asks", [SHORT, MANY_ANSWERS], ids=["short requests", "long answers"])
async def test_a_client_that_pipelines_and_never_reads_is_closed(
    api: ServiceProcess, asks: bytes, report: Report
) -> None:
    files = open_files(api)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        asking = [group.create_task(ask_and_never_read(api, asks)) for _ in range(NEVER_READ)]
        while not all(task.done() for task in asking):
            await assert_serves(api)
            await asyncio.sleep(0.1)
    await until_in_thread(lambda: open_files(api) <= files + 5, "the connections are closed")
    report(f"{NEVER_READ} callers sent {sum(task.result() for task in asking) / 1e6:.1f} MB and read nothing")


async def test_pipelined_requests_are_answered_in_order(api: ServiceProcess) -> None:
    reader, writer = await open_to(api)
    bodies = [b'{"instances": [' + b",".join([b'{"features": {}}'] * (1 + n)) + b"]}" for n in range(90)]
    writer.write(b"".join(map(request, bodies)))
    for number in range(len(bodies)):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert head.startswith(b"HTTP/1.1 200")
        assert length is not None
        assert (await reader.readexactly(int(length[1]))).count(b"probability") == 1 + number
    writer.close()
