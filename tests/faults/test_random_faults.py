"""A seeded sequence of whatever can happen, under load."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from service.redis_keys import lease_key
from tests.conftest import ServerFactory
from tests.invariants import assert_learned_once, assert_mirror_equals
from tests.load import Load
from tests.processes import Launch, ServiceProcess, ready
from tests.proxy import Fault, Proxy, Request
from tests.servers import ServerProcess

pytestmark = pytest.mark.faults

SECONDS = 15
FAULTY = 0.03
"""Share of the requests that do not come through."""


@dataclass
class Service:
    """Two API processes and two learners; each thing that may happen is a method without arguments."""

    server: ServerProcess
    proxy: Proxy
    launch: Launch
    drawn: random.Random
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


@pytest.mark.parametrize("seed", [1])
async def test_whatever_happens_each_acknowledged_update_is_learned_once_and_everything_agrees(
    server_factory: ServerFactory, launch: Launch, seed: int
) -> None:
    server = server_factory(appendfsync="always")
    async with Proxy(server.socket_path) as proxy:
        service = Service(server, proxy, launch, random.Random(seed))
        await service.start()
        events = service.events()
        service.drawn.shuffle(events)
        happened = []
        async with Load(service.urls, clients=4) as load:
            began = time.monotonic()
            while time.monotonic() - began < SECONDS:
                event = events[len(happened) % len(events)]
                happened.append(event.__name__)
                print(f"{time.monotonic() - began:.1f} s: {event.__name__}")  # noqa: T201  to know after a failure
                await event()
                await load.more(20)
        replica = await assert_learned_once(server, load.acknowledged)
        for api in service.apis:
            await assert_mirror_equals(api.url, replica)
