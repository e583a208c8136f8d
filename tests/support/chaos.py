"""Faults of two API processes, two learners and their server, in an order drawn from a seed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx

from service.models.config.model import DEFAULT_MODEL
from service.storage.records import lease_key
from tests.support.append_only_file import lose_the_end
from tests.support.processes import Launch, ServiceProcess, ready
from tests.support.proxy import Fault, Proxy, Request
from tests.support.servers import ServerProcess

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
    happened: Counter[str] = field(default_factory=Counter)
    model: str = DEFAULT_MODEL

    async def start(self) -> None:
        await self._launch_all()
        await ready(*self.apis)

    async def _launch_all(self) -> None:
        self.apis = [self.launch("api", self.proxy.url) for _ in range(2)]
        self.learners = [self.launch("learn", self.proxy.url) for _ in range(2)]
        self.urls[:] = await asyncio.to_thread(lambda: [api.url for api in self.apis])

    def pids(self) -> dict[str, list[int]]:
        server = self.server.process
        return {
            "API": [api.process.pid for api in self.apis],
            "learner": [learner.process.pid for learner in self.learners],
            "server": [] if server is None else [server.pid],
        }

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
            client.delete(lease_key(self.model))

    async def fill_the_server(self) -> None:
        with self.server.client() as client:
            client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + 20_000)
            await asyncio.sleep(self.drawn.uniform(0.5, 2.5))
            client.config_set("maxmemory", 0)

    async def change_the_times(self) -> None:
        """For which predictions wait, while they do."""
        times = {"window_seconds": 2, "unshown_seconds": 30, "grace_seconds": 30, "late_seconds": 120}
        fields = {name: seconds * self.drawn.choice([0.75, 1]) for name, seconds in times.items()}
        async with asyncio.timeout(60), httpx.AsyncClient() as http:
            for number in itertools.count():
                url = f"{self.urls[number % 2]}/models/{self.model}"
                with contextlib.suppress(httpx.TransportError):
                    if (await http.patch(url, json={"feedback": fields})).is_success:
                        return
                await asyncio.sleep(0.1)

    async def restart_everything(self) -> None:
        """As a power cut does it."""
        for process in self.apis + self.learners:
            process.kill9()
        self.server.kill9()
        await asyncio.to_thread(self.server.start)
        await self._launch_all()

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

    async def run(
        self,
        events: list[Callable[[], Awaitable[None]]],
        seconds: float,
        recovered: Callable[[], Awaitable[None]],
        overlapping: float = 0.0,
    ) -> None:
        """One event after the other, each once `recovered` has returned after the one before: in rounds, each
        in an order of its own, until each was there and the time is over. `overlapping`: the share of them
        during which the network is bad as well.
        """
        order = random.Random(self.drawn.random())  # which what events and requests draw does not change
        began = time.monotonic()
        for round_number in itertools.count():
            for event in order.sample(events, len(events)):
                if round_number and time.monotonic() - began > seconds:
                    return
                bad = order.random() < overlapping and event != self.have_a_bad_network
                together = [event, self.have_a_bad_network] if bad else [event]
                for one in together:
                    print(f"{time.monotonic() - began:.1f} s: {one.__name__}")  # noqa: T201  after a failure
                    self.happened[one.__name__] += 1
                await asyncio.gather(*(one() for one in together))
                await recovered()
