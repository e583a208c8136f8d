"""A log that cannot be read on: the learner stops and says so, all else goes on, and there is a way on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import httpx
import pytest

from tests.conftest import ServerFactory
from tests.support.commands import run
from tests.support.invariants import assert_holds_once, assert_mirror_equals, learned, meta_of, topology_of
from tests.support.load import example
from tests.support.processes import Launch, ServiceProcess, ready
from tests.support.servers import ServerProcess
from tests.support.system import read_log, stored
from tests.support.waiting import until, until_in_thread

pytestmark = pytest.mark.faults

LEADS = "learning default from"


class Setting(NamedTuple):
    server: ServerProcess
    service: ServiceProcess
    http: httpx.AsyncClient

    async def update(self, start: int, count: int, wait: bool = True) -> int:
        body = {"examples": [example(event) for event in range(start, start + count)]}
        url = f"{self.service.url}/update?wait={str(wait).lower()}"
        return (await self.http.post(url, json=body)).status_code

    async def learn(self, start: int, count: int) -> None:
        """Sent again until it is learned in time: on a busy machine that takes the learner a while."""
        async with asyncio.timeout(60):
            while (status := await self.update(start, count)) == 202:
                pass
        assert status == 200

    def log_key(self) -> bytes:
        with self.server.client() as client:
            return bytes(next(client.scan_iter("ftrl:{default}:*:log")))

    def blocked(self) -> bool:
        return self.service.metric("ftrl_learner_blocked", model="default") == 1

    async def assert_stopped_and_alive(self, message: str, event: int = 900) -> None:
        await until_in_thread(self.blocked, "the metric tells")
        stopped = (
            "learner of default stopped at log entry"  # a thread of the test reads the log, a little later
        )
        await until(lambda: self.service.logged(stopped) and self.service.logged(message), "the log tells")
        assert await self.update(event, 1) == 202, "appended, not learned"
        predict = await self.http.post(f"{self.service.url}/predict", json={"features": {}})
        assert predict.status_code == 200
        assert (await self.http.get(f"{self.service.url}/readyz")).status_code == 200

    async def skip(self, entry: str) -> None:
        done = await asyncio.to_thread(run, "log", "skip", entry, FTRL_REDIS_URL=self.server.url)
        assert done.returncode == 0, done.stderr
        await until_in_thread(lambda: not self.blocked(), "the learner goes on")


@pytest.fixture
async def setting(server_factory: ServerFactory, launch: Launch) -> AsyncIterator[Setting]:
    server = server_factory()
    service = launch("serve", server.url, update_timeout_seconds=0.5)
    await ready(service)
    await until(lambda: service.logged(LEADS), "the learner leads")
    async with httpx.AsyncClient(timeout=30) as http:
        yield Setting(server, service, http)


async def test_an_invalid_entry_blocks_the_learner_until_it_is_skipped(setting: Setting) -> None:
    await setting.learn(0, 10)
    with setting.server.client() as client:
        entry = client.xadd(setting.log_key(), {"n": 10, "e": b"\x01\x00garbage"})
    await setting.assert_stopped_and_alive("record 0")
    await setting.skip(entry.decode())
    await setting.learn(10, 10)
    async with topology_of(setting.server) as topology:
        assert (await learned(topology)).t == 21
        replica = await stored(topology, "default")
    await assert_mirror_equals(setting.service.url, replica)


async def test_a_foreign_entry_stops_the_learner_but_not_its_process(setting: Setting) -> None:
    for start, fields in ((0, {"foo": "bar"}), (100, {"n": "many", "e": ""})):
        await setting.learn(start, 10)
        with setting.server.client() as client:
            entry = client.xadd(setting.log_key(), fields).decode()
        await setting.assert_stopped_and_alive(entry, event=start + 50)
        await setting.skip(entry)
    await setting.learn(200, 10)


async def test_a_gap_in_the_log_stops_the_learner_until_it_is_skipped(setting: Setting) -> None:
    await setting.learn(0, 10)
    with setting.server.client() as client:
        client.hincrby("ftrl:{default}:meta", "appended", 5)  # five numbers without their examples
    async with topology_of(setting.server) as topology:
        assert await setting.update(10, 10) == 202
        await setting.assert_stopped_and_alive("5 examples before")
        assert (await meta_of(topology)).t == 10
        stopped_at = setting.service.wait_for(r"stopped at log entry \d+-\d+")
        await setting.skip(stopped_at.split()[-1])
        assert (await learned(topology)).t == 21
        replica = await stored(topology, "default")
        assert_holds_once(await read_log(topology, replica), [f"event-{i}" for i in [*range(20), 900]])
    await assert_mirror_equals(setting.service.url, replica)


async def test_a_learner_that_leads_again_continues_after_a_skip(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory()
    first, api = launch("learn", server.url), launch("api", server.url, update_timeout_seconds=0.5)
    await ready(api)
    await until(lambda: first.logged(LEADS), "the first learner leads")
    async with httpx.AsyncClient(timeout=30) as http:
        setting = Setting(server, api, http)
        await until_learned(setting, 0)
        with server.client() as client:
            entry = client.xadd(setting.log_key(), {"n": 10, "e": b"garbage"}).decode()
        await until_in_thread(
            lambda: first.metric("ftrl_learner_blocked", model="default") == 1, "it is blocked"
        )
        first.pause()
        second = launch("learn", server.url)
        await until(lambda: second.logged(LEADS), "the second one takes over")
        done = await asyncio.to_thread(run, "log", "skip", entry, FTRL_REDIS_URL=server.url)
        assert done.returncode == 0, done.stderr
        await until_learned(setting, 10)
        first.resume()
        await until_in_thread(
            lambda: not first.metric("ftrl_learner_blocked", model="default"), "nor is it as a standby"
        )
        assert second.stop() == 0
        await until_learned(setting, 20)


async def until_learned(setting: Setting, start: int) -> None:
    """What is appended now is learned, be it a moment later."""
    assert await setting.update(start, 10) in (200, 202)
    async with topology_of(setting.server) as topology:
        await learned(topology)
