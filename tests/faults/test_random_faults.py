"""A seeded sequence of whatever can happen, under load."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from service.redis_keys import lease_key
from tests.append_only_file import lose_the_end
from tests.caller import caller
from tests.conftest import ServerFactory
from tests.invariants import assert_learned_once, assert_mirror_equals, client_of, learned
from tests.load import Load, example
from tests.processes import Launch, ServiceProcess, ready
from tests.proxy import Fault, Proxy, Request
from tests.servers import ServerProcess
from tests.system import assert_state_is_a_pass_over_the_log

pytestmark = pytest.mark.faults

SECONDS = 10
FAULTY = 0.03
"""Share of the requests that do not come through."""


@dataclass
class Service:
    """Two API processes and two learners; each thing that may happen is a method without arguments."""

    server: ServerProcess
    proxy: Proxy
    launch: Launch
    drawn: random.Random = field(default_factory=random.Random)
    apis: list[ServiceProcess] = field(default_factory=list)
    learners: list[ServiceProcess] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)

    async def start(self) -> None:
        self.apis = [self.launch("api", self.proxy.url) for _ in range(2)]
        self.learners = [self.launch("learn", self.proxy.url) for _ in range(2)]
        await ready(*self.apis)
        self.urls += [api.url for api in self.apis]

    async def kill_a_learner(self) -> None:
        which = self.drawn.randrange(2)
        self.learners[which].kill9()
        self.learners[which] = self.launch("learn", self.proxy.url)

    async def kill_an_api_process(self) -> None:
        which = self.drawn.randrange(2)
        self.apis[which].kill9()
        self.apis[which] = self.launch("api", self.proxy.url)
        self.urls[which] = await asyncio.to_thread(lambda: self.apis[which].url)

    async def pause_a_process(self) -> None:
        process = self.drawn.choice(self.apis + self.learners)
        process.pause()
        await asyncio.sleep(self.drawn.uniform(0, 2.5))
        process.resume()

    async def kill_the_server(self) -> None:
        self.server.kill9()
        await asyncio.sleep(self.drawn.uniform(0, 0.5))
        await asyncio.to_thread(self.server.start)

    async def restart_the_server(self) -> None:
        await asyncio.to_thread(self.server.restart)

    async def pause_the_server(self) -> None:
        self.server.pause()
        await asyncio.sleep(self.drawn.uniform(0, 1.5))
        self.server.resume()

    async def cut_all_connections(self) -> None:
        await self.proxy.cut_all()

    async def lose_the_lease(self) -> None:
        with self.server.client() as client:
            client.delete(lease_key("default"))

    async def have_a_bad_network(self) -> None:
        self.proxy.chaos = self.fault
        await asyncio.sleep(self.drawn.uniform(0, 1.5))
        self.proxy.chaos = None

    def fault(self, _: Request) -> Fault | None:
        return self.drawn.choice(list(Fault)) if self.drawn.random() < FAULTY else None

    async def lose_the_end_of_the_file(self) -> None:
        await lose_the_end(self.server, self.drawn.randrange(1, 20_000))

    def events(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self.kill_a_learner,
            self.kill_an_api_process,
            self.pause_a_process,
            self.kill_the_server,
            self.restart_the_server,
            self.pause_the_server,
            self.cut_all_connections,
            self.lose_the_lease,
            self.have_a_bad_network,
        ]

    async def run(self, events: list[Callable[[], Awaitable[None]]], load: Load) -> None:
        self.drawn.shuffle(events)
        began = time.monotonic()
        for event in itertools.cycle(events):
            if time.monotonic() - began > SECONDS:
                return
            print(f"{time.monotonic() - began:.1f} s: {event.__name__}")  # noqa: T201  to know after a failure
            await event()
            await load.more(20)


@pytest.fixture
async def service(server_factory: ServerFactory, launch: Launch) -> AsyncIterator[Service]:
    server = server_factory(appendfsync="always")
    async with Proxy(server.socket_path) as proxy:
        service = Service(server, proxy, launch)
        await service.start()
        yield service


@pytest.mark.parametrize("seed", [1])
async def test_whatever_happens_each_acknowledged_update_is_learned_once_and_everything_agrees(
    service: Service, seed: int
) -> None:
    service.drawn.seed(seed)
    async with Load(service.urls, clients=4) as load:
        await service.run(service.events(), load)
    replica = await assert_learned_once(service.server, load.acknowledged)
    for api in service.apis:
        await assert_mirror_equals(api.url, replica)


@pytest.mark.parametrize("seed", [1])
async def test_whatever_a_forgetful_server_loses_everything_agrees_and_what_is_sent_again_is_learned_once(
    service: Service, seed: int
) -> None:
    service.drawn.seed(seed)
    async with Load(service.urls, clients=4) as load:
        await service.run([*service.events(), service.lose_the_end_of_the_file], load)
    async with client_of(service.server) as client:
        await learned(client)
        before = await assert_state_is_a_pass_over_the_log(client, "default")
    for api in service.apis:
        await assert_mirror_equals(api.url, before)
    async with caller() as again:
        for event_ids in batched(load.acknowledged, 200):
            bodies = [example(int(event_id.rpartition("-")[2])) for event_id in event_ids]
            answer = await again.post(f"{service.urls[0]}/update", {"examples": bodies})
            assert answer.status in (200, 202)
    replica = await assert_learned_once(service.server, load.acknowledged)
    for api in service.apis:
        await assert_mirror_equals(api.url, replica)


def batched(items: list[str], size: int) -> list[list[str]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
