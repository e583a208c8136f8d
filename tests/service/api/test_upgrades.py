"""An upgrade that the server does not do is ignored (RFC 9110, 7.8), and its request answered."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Iterator

import pytest

from tests.service.api.conftest import LiveApi

BODY = b'{"features":{"a":"b"}}'
UPGRADES = {
    "curl": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n",
    "java": b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAA\r\nUpgrade: h2c\r\n",
    "websocket": b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "twice": b"Connection: upgrade\r\nUpgrade: h2c\r\nUpgrade: foo/2\r\nConnection: HTTP2-Settings\r\n",
}
H2C = UPGRADES["curl"]


def head(extra: bytes, size: int = len(BODY), target: bytes = b"POST /predict HTTP/1.1") -> bytes:
    return b"%b\r\nHost: x\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n" % (
        *(target, extra, size),
    )


def chunked(extra: bytes) -> tuple[bytes, bytes]:
    start = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + extra
    start += b"Transfer-Encoding: chunked\r\n\r\n"
    return start, b"5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (BODY[:5], len(BODY) - 5, BODY[5:])


@pytest.fixture
def connection(live_api: LiveApi) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", live_api.port), timeout=60) as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield made


def statuses(connection: socket.socket, last: bytes = b"") -> list[bytes]:
    """Send a request after which the connection is closed; the statuses of all replies until then."""
    connection.sendall(last or b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    replies = b"".join(iter(lambda: connection.recv(65536), b""))
    return re.findall(rb"HTTP/1\.1 (\d+) ", replies)


@pytest.mark.parametrize("upgrade", UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize("packets", ["one", "head-and-body", "bytes"])
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_the_body_of_a_refused_upgrade_is_read(
    connection: socket.socket, upgrade: bytes, packets: str, framing: str
) -> None:
    start, body = (head(upgrade), BODY) if framing == "length" else chunked(upgrade)
    if packets == "one":
        connection.sendall(start + body)
    elif packets == "head-and-body":
        connection.sendall(start)
        connection.sendall(body)
    else:
        for byte in start + body:
            connection.sendall(bytes([byte]))
    assert statuses(connection) == [b"200", b"200"]


@pytest.mark.parametrize("split", [False, True], ids=["one-packet", "two-packets"])
def test_a_body_that_looks_like_a_request_is_not_answered_as_one(
    connection: socket.socket, split: bool
) -> None:
    smuggled = b"GET /models HTTP/1.1\r\nHost: x\r\n\r\n"
    start = head(H2C, len(smuggled))
    for packet in (start, smuggled) if split else (start + smuggled,):
        connection.sendall(packet)
    assert statuses(connection) == [b"422", b"200"]


def test_pipelined_requests_for_an_upgrade_are_answered_in_order(connection: socket.socket) -> None:
    plain, upgraded = head(b"") + BODY, head(H2C) + BODY
    nowhere = head(H2C, target=b"POST /nowhere HTTP/1.1") + BODY
    sent = [upgraded, plain, nowhere, b"".join(chunked(H2C)), head(H2C, 0), plain, upgraded]
    connection.sendall(b"".join(sent))
    expected = [b"200", b"200", b"404", b"200", b"422", b"200", b"200"]
    assert statuses(connection) == [*expected, b"200"]


def test_an_upgrade_may_begin_anywhere_in_a_packet(connection: socket.socket) -> None:
    stream = (head(H2C) + BODY) * 20
    for start, stop in itertools.pairwise([*range(0, len(stream), 97), len(stream)]):
        connection.sendall(stream[start:stop])
    assert statuses(connection) == [b"200"] * 21


def test_a_client_that_waits_for_100_continue_is_asked_for_its_body(connection: socket.socket) -> None:
    connection.sendall(head(H2C + b"Expect: 100-continue\r\n"))
    asked = b""
    while not asked.endswith(b"\r\n\r\n"):
        asked += connection.recv(1)
    assert asked == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(BODY)
    assert statuses(connection) == [b"200", b"200"]


def test_a_body_too_large_of_a_refused_upgrade_is_skipped(connection: socket.socket) -> None:
    size = 3 << 20
    connection.sendall(head(H2C, size) + b" " * size)
    assert statuses(connection) == [b"413", b"200"]


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"DELETE"])
def test_a_request_without_a_body_is_answered(connection: socket.socket, method: bytes) -> None:
    target = b"/nowhere" if method == b"DELETE" else b"/livez"
    connection.sendall(b"%b %b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (method, target, H2C))
    first = {b"GET": b"200", b"HEAD": b"200", b"DELETE": b"404"}[method]
    assert statuses(connection) == [first, b"200"]


def test_an_upgrade_of_http_1_0_is_ignored(connection: socket.socket) -> None:
    assert statuses(connection, head(H2C, target=b"POST /predict HTTP/1.0") + BODY) == [b"200"]


def test_the_last_request_of_a_connection_may_ask_for_an_upgrade(connection: socket.socket) -> None:
    assert statuses(connection, head(H2C.replace(b"Upgrade,", b"close, Upgrade,")) + BODY) == [b"200"]


@pytest.mark.parametrize(
    "start",
    [b"CONNECT example.org:80 HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ids=["a-tunnel", "http-2"],
)
def test_what_is_not_http_1_ends_the_connection(connection: socket.socket, start: bytes) -> None:
    assert statuses(connection, start + b"GET /models HTTP/1.1\r\nHost: x\r\n\r\n") == [b"400"]
