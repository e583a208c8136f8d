"""Bodies of requests: size, speed, chunks, and connections that end early."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.api.security.access import ANYBODY
from service.api.server.front_door import BodyReader, RawReply, RawRequest, RawRoute
from tests.support.problem_replies import problem

MIB = 1 << 20
HEADERS = {"content-type": "application/json"}


def padded(size: int) -> bytes:
    """A valid body of /predict of exactly this many bytes."""
    body = b'{"features": {"a": "b"}}'
    return body + b" " * (size - len(body))


def in_pieces(body: bytes, size: int = 65536) -> Iterator[bytes]:
    """Sent by httpx without a content-length, in chunks."""
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("sent", [lambda body: body, in_pieces], ids=["with-a-length", "in-chunks"])
def test_a_body_may_be_as_large_as_the_limit(
    api: httpx.Client, sent: Callable[[bytes], bytes | Iterator[bytes]]
) -> None:
    assert api.post("/predict", content=sent(padded(MIB)), headers=HEADERS).status_code == 200
    document = problem(api.post("/predict", content=sent(padded(MIB + 1)), headers=HEADERS), 413, "too_large")
    assert str(MIB) in document["detail"]


def test_a_body_far_beyond_the_limit_is_refused(api: httpx.Client) -> None:
    problem(api.post("/predict", content=padded(40 * MIB), headers=HEADERS), 413, "too_large")
    problem(api.post("/predict", content=in_pieces(padded(40 * MIB)), headers=HEADERS), 413, "too_large")


def test_a_connection_stays_usable_after_a_body_too_large(api: httpx.Client) -> None:
    for _ in range(3):
        problem(api.post("/predict", content=in_pieces(padded(3 * MIB)), headers=HEADERS), 413, "too_large")
        assert api.post("/predict", content=padded(100), headers=HEADERS).status_code == 200


def test_a_batch_update_may_be_larger(api: httpx.Client, model: str) -> None:
    examples = [{"features": {"ad": "x" * 1000}, "label": 0}] * 2000
    body = json.dumps({"examples": examples}).encode()
    assert len(body) > MIB
    assert api.post(f"{model}/update", content=body, headers=HEADERS).status_code == 200
    problem(api.post(f"{model}/update", content=padded(16 * MIB + 1), headers=HEADERS), 413, "too_large")


def test_the_specification_of_a_model_is_bounded_too(api: httpx.Client) -> None:
    problem(api.put("/models/huge", content=in_pieces(padded(MIB + 1)), headers=HEADERS), 413, "too_large")


@pytest.mark.parametrize("length", ["99999999999999999999", "1000000000000"])
def test_a_huge_announced_length_is_refused_before_the_body(live_api, length: str) -> None:
    head = (
        b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %b\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", live_api.port), timeout=60) as connection:
        connection.sendall(head % length.encode())
        assert connection.recv(1000).startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))


def test_a_body_in_two_packets_is_read_whole(live_api) -> None:
    body = b'{"features": {"a": "b"}}'
    head = b"POST /predict HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    chunks = b"transfer-encoding: chunked\r\n\r\n5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (
        body[:5],
        len(body) - 5,
        body[5:],
    )
    assert live_api.raw(head + chunks).startswith(b"HTTP/1.1 200")


def test_two_requests_in_one_packet_are_both_answered(live_api) -> None:
    one = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n"
    one += b'{"features":{}}'
    last = one.replace(b"host: x", b"host: x\r\nconnection: close")
    assert live_api.raw(one + last).count(b"HTTP/1.1 200") == 2


def test_a_reply_has_a_whole_head_and_says_if_it_is_the_last(live_api) -> None:
    one = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n"
    one += b'{"features":{}}'
    replies = live_api.raw(one + one.replace(b"HTTP/1.1", b"HTTP/1.0"))
    head = rb"HTTP/1\.1 200 OK\r\ndate: [^\r]+\r\ncontent-type: application/json\r\ncontent-length: (\d+)\r\n"
    first, last = re.finditer(head + rb"(connection: close\r\n)?\r\n({[^}]*})", replies)
    assert (first[2], last[2]) == (None, b"connection: close\r\n")
    assert replies == first[0] + last[0]
    assert [int(one[1]) for one in (first, last)] == [len(one[3]) for one in (first, last)]


@pytest.mark.parametrize("body", [b'{"features": {"a": "b"}}', b"{"], ids=["answered", "refused"])
def test_a_request_is_freed_without_the_garbage_collector(api: httpx.Client, body: bytes) -> None:
    def requests() -> int:
        return sum(isinstance(one, RequestResponseCycle) for one in gc.get_objects())

    api.post("/predict", content=body, headers=HEADERS)
    gc.collect()
    before = requests()
    gc.disable()
    try:
        for _ in range(30):
            api.post("/predict", content=body, headers=HEADERS)
        assert requests() <= before + 2
    finally:
        gc.enable()


class Connection:
    """An ASGI client that sends these messages and then falls silent."""

    def __init__(self, *messages: MutableMapping[str, Any]) -> None:
        self.messages = list(messages)
        self.replies: list[MutableMapping[str, Any]] = []

    async def receive(self) -> MutableMapping[str, Any]:
        if not self.messages:
            await asyncio.sleep(3600)
        return self.messages.pop(0)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.replies.append(message)


async def answer(connection: Connection) -> int:
    async def handler(request: RawRequest) -> RawReply:
        return RawReply(200, request.body)

    bodies = BodyReader(0.2)
    route = RawRoute("POST", "/x", lambda: None, handler, bodies=bodies, max_bytes=100, access=ANYBODY)
    scope = {"headers": [(b"content-type", b"application/json")], "query_string": b"", "path": "/x"}
    return await route.answer("default", scope, connection.receive, connection.send)


SOME = {"type": "http.request", "body": b"{", "more_body": True}
REST = {"type": "http.request", "body": b"}", "more_body": False}
GONE = {"type": "http.disconnect"}


@pytest.mark.parametrize("sent", [(), (SOME,), (SOME, SOME)])
async def test_a_body_that_does_not_arrive_is_abandoned(
    sent: tuple[MutableMapping[str, Any], ...],
) -> None:
    connection = Connection(*sent)
    assert await answer(connection) == 408
    headers = dict(connection.replies[0]["headers"])
    assert headers[b"connection"] == b"close"
    assert json.loads(connection.replies[1]["body"])["code"] == "slow_body"


async def test_a_slow_body_does_not_delay_others() -> None:
    slow = asyncio.create_task(answer(Connection(SOME)))
    for _ in range(20):
        assert await answer(Connection(SOME, REST)) == 200
        await asyncio.sleep(0.02)
    assert await slow == 408


async def test_a_cancelled_request_stays_cancelled() -> None:
    task = asyncio.create_task(answer(Connection(SOME)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("sent", [(GONE,), (SOME, GONE)])
async def test_a_client_that_disconnects_is_not_answered(sent: tuple[MutableMapping[str, Any], ...]) -> None:
    connection = Connection(*sent)
    assert await answer(connection) == 499
    assert connection.replies == []
