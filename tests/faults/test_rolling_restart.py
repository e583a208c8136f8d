"""Every process is replaced while requests keep coming to whatever is ready, and none of them fails."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Sequence

import httpx
import pytest

from tests.conftest import Report, ServerFactory
from tests.support.caller import FAILURES, Caller, caller
from tests.support.invariants import assert_learned_once
from tests.support.load import example
from tests.support.processes import Launch, ready
from tests.support.servers import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.faults

DRAIN_SECONDS = 4.0
CLIENTS = 6


class Balancer:
    """The addresses that said a moment ago that they are ready."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.ready = list(urls)
        self._urls = urls

    async def watch(self) -> None:
        async with httpx.AsyncClient(timeout=30) as http:
            while True:
                answers = [await self._is_ready(http, url) for url in self._urls]
                self.ready = [url for url, ready in zip(self._urls, answers, strict=True) if ready]
                await asyncio.sleep(DRAIN_SECONDS / 20)

    async def _is_ready(self, http: httpx.AsyncClient, url: str) -> bool:
        try:
            return (await http.get(f"{url}/readyz")).status_code == 200
        except httpx.TransportError:
            return False


class Client:
    """Sends on one connection as long as its address is ready, and takes every failure for one."""

    def __init__(self, balancer: Balancer) -> None:
        self.answers: Counter[object] = Counter()
        self.events: list[str] = []
        self.stopping = False
        self._balancer = balancer
        self._numbers = itertools.count()

    async def run(self) -> None:
        async with caller() as service:
            url = ""
            while not self.stopping:
                if url not in self._balancer.ready:
                    url = random.choice(self._balancer.ready)
                body = example(next(self._numbers))
                await self._send(service, url, body)
                self.events.append(str(body["event_id"]))

    async def _send(self, service: Caller, url: str, body: dict[str, object]) -> None:
        try:
            answer = await service.post(f"{url}/update", body)
            predicted = await service.post(f"{url}/predict", {"features": body["features"]})
        except FAILURES as failure:
            self.answers[type(failure).__name__] += 1
            return
        self.answers[answer.status] += 1
        self.answers[predicted.status] += 1


async def test_a_rolling_restart_of_api_and_learner_fails_no_request(
    server_factory: ServerFactory, launch: Launch, report: Report
) -> None:
    server = server_factory()
    ports = [free_port(), free_port()]
    apis = [launch("api", server.url, port=port, drain_seconds=DRAIN_SECONDS) for port in ports]
    learner = launch("learn", server.url)
    await ready(*apis)
    balancer = Balancer([f"http://127.0.0.1:{port}" for port in ports])
    client = Client(balancer)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(balancer.watch())
        clients = [group.create_task(client.run()) for _ in range(CLIENTS)]
        for number, port in enumerate(ports):
            assert await asyncio.to_thread(apis[number].stop) == 0
            apis[number] = launch("api", server.url, port=port, drain_seconds=DRAIN_SECONDS)
            await ready(apis[number])
            await until(lambda: len(balancer.ready) == 2, "both are ready")
        standby = launch("learn", server.url)
        await asyncio.to_thread(standby.wait_for, "the learner's metrics are at")
        assert await asyncio.to_thread(learner.stop) == 0
        await asyncio.to_thread(standby.wait_for, "learning default from")
        before = client.answers[200]
        await until(lambda: client.answers[200] > before + 50, "updates are learned again")
        client.stopping = True
        await asyncio.wait(clients)
        watching.cancel()
    failed = sum(count for answer, count in client.answers.items() if answer not in {200, 202})
    report(
        f"{client.answers.total()} requests while 2 API processes and the learner changed, {failed} failed"
    )
    assert client.answers.keys() <= {200, 202}, client.answers  # 202: learned shortly after the reply
    assert client.answers[200] > 500
    await assert_learned_once(server, client.events)
