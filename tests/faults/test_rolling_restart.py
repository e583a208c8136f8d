"""Every process is replaced by another while requests keep coming, and none of them fails."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.caller import FAILURES, Caller, caller
from tests.conftest import ServerFactory
from tests.invariants import assert_learned_once
from tests.load import example
from tests.processes import Launch, ready, until
from tests.servers import free_port

pytestmark = pytest.mark.faults

DRAIN_SECONDS = 1.0
CLIENTS = 6


class Client:
    """Goes to another address where a connection is refused, and takes any other failure for one."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.answers: Counter[object] = Counter()
        self.events: list[str] = []
        self.stopping = False
        self._urls = itertools.cycle(urls)
        self._numbers = itertools.count()

    async def run(self) -> None:
        async with caller() as service:
            url = next(self._urls)
            while not self.stopping:
                body = example(next(self._numbers))
                while not await self._sent(service, url, body):
                    url = next(self._urls)
                self.events.append(str(body["event_id"]))

    async def _sent(self, service: Caller, url: str, body: dict[str, object]) -> bool:
        try:
            answer = await service.post(f"{url}/update", body)
            predicted = await service.post(f"{url}/predict", {"features": body["features"]})
        except ConnectionRefusedError:
            return False
        except FAILURES as failure:
            self.answers[type(failure).__name__] += 1
            return True
        self.answers[answer.status] += 1
        self.answers[predicted.status] += 1
        return True


async def test_a_rolling_restart_of_api_and_learner_fails_no_request(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory()
    ports = [free_port(), free_port()]
    apis = [launch("api", server.url, port=port, drain_seconds=DRAIN_SECONDS) for port in ports]
    learner = launch("learn", server.url)
    await ready(*apis)
    client = Client([f"http://127.0.0.1:{port}" for port in ports])
    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(client.run()) for _ in range(CLIENTS)]
        for number, port in enumerate(ports):
            assert await asyncio.to_thread(apis[number].stop) == 0
            apis[number] = launch("api", server.url, port=port, drain_seconds=DRAIN_SECONDS)
            await ready(apis[number])
        standby = launch("learn", server.url)
        await asyncio.to_thread(standby.wait_for, "the learner's metrics are at")
        assert await asyncio.to_thread(learner.stop) == 0
        await asyncio.to_thread(standby.wait_for, "learning default from")
        before = client.answers[200]
        await until(lambda: client.answers[200] > before + 50, "updates are learned again")
        client.stopping = True
        await asyncio.wait(clients)
    assert client.answers.keys() <= {200, 202}, client.answers  # 202: learned a little later than it was told
    assert client.answers[200] > 500
    await assert_learned_once(server, client.events)
