"""Streams of examples while Redis is away, and while the process that reads them dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.conftest import ServerFactory
from tests.support.duplex import Duplex
from tests.support.duplex import stream_example as example
from tests.support.invariants import assert_learned_once
from tests.support.processes import Launch, ServiceProcess, ready
from tests.support.servers import ServerProcess
from tests.support.waiting import until

pytestmark = pytest.mark.faults

PER_GROUP = 20


@pytest.fixture
async def processes(server_factory: ServerFactory, launch: Launch) -> tuple[ServerProcess, ServiceProcess]:
    server = server_factory()
    api, learner = launch("api", server.url), launch("learn", server.url)
    await ready(api)
    await until(lambda: learner.logged("learning default from"), "the learner leads")
    return server, api


def lines(first: int, count: int = PER_GROUP) -> bytes:
    return b"".join(example(i, event_id=f"event-{i}") for i in range(first, first + count))


def answers(client: Duplex, until_line: int) -> list[dict[str, Any]]:
    """The answers of the lines before `until_line`."""
    found: list[dict[str, Any]] = []
    while not found or found[-1]["line"] + found[-1]["lines"] < until_line:
        found.append(client.line())
    return found


def total(groups: list[dict[str, Any]]) -> Counter[str]:
    return sum((Counter(group["statuses"]) for group in groups), Counter())


async def test_lines_of_an_outage_are_named_and_the_stream_goes_on(
    processes: tuple[ServerProcess, ServiceProcess],
) -> None:
    server, api = processes

    def stream() -> None:
        with Duplex(api.url, "/update") as client:
            client.begin()
            client.send(lines(0))
            assert total(answers(client, PER_GROUP + 1)) == {"learned": PER_GROUP}
            server.pause()
            client.send(lines(PER_GROUP))
            (group,) = answers(client, 2 * PER_GROUP + 1)
            assert group["statuses"] == {"unavailable": PER_GROUP}
            assert group["code"] == "update_unavailable"
            assert group["outcome"] in ("unknown", "not_appended")
            assert group["event_ids"] == [f"event-{i}" for i in range(PER_GROUP, 2 * PER_GROUP)]
            client.send(lines(2 * PER_GROUP))  # waits until the server is back
            server.resume()
            later = answers(client, 3 * PER_GROUP + 1)
            assert total(later) == {"learned": PER_GROUP}
            client.send(lines(PER_GROUP))
            again = total(answers(client, 4 * PER_GROUP + 1))
            assert again["learned"] + again["duplicate"] == PER_GROUP
            client.end()
            assert client.line()["through"] == 4 * PER_GROUP

    await asyncio.to_thread(stream)
    await assert_learned_once(server, [f"event-{i}" for i in range(3 * PER_GROUP)])


async def test_what_was_answered_before_a_kill_is_learned_once_when_all_is_sent_again(
    processes: tuple[ServerProcess, ServiceProcess], launch: Launch
) -> None:
    server, api = processes
    count = 40 * PER_GROUP

    def stream_until_killed() -> int:
        answered = 0
        with Duplex(api.url, "/update") as client:
            client.begin()
            for first in range(0, count, PER_GROUP):
                client.send(lines(first))
                if first == count // 2:
                    answered = sum(group["lines"] for group in answers(client, first // 2))
                    api.kill9()
                    return answered
        return answered

    answered = await asyncio.to_thread(stream_until_killed)
    assert answered >= PER_GROUP
    other = launch("api", server.url)
    await ready(other)

    def stream_again() -> Counter[str]:
        with Duplex(other.url, "/update") as client:
            client.begin()
            client.send(lines(0, count))
            return total(answers(client, count + 1))

    statuses = await asyncio.to_thread(stream_again)
    assert statuses["duplicate"] >= answered
    assert statuses["duplicate"] + statuses["learned"] == count
    await assert_learned_once(server, [f"event-{i}" for i in range(count)])
