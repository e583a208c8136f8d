"""A model is deleted and created anew at the worst moment: nothing of the old one is taken for the new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
import pytest

from service.redis_keys import meta_key
from tests.conftest import ServerFactory
from tests.invariants import assert_learned_once, assert_mirror_equals
from tests.load import example
from tests.processes import Launch, ServiceProcess, ready, until
from tests.proxy import Proxy
from tests.servers import ServerProcess

pytestmark = pytest.mark.faults

PATH = "/models/clicks"
OLD = {"hashing": {"bits": 14}}
NEW = {"hashing": {"bits": 15, "seed": 7}, "hyper": {"l1": 0}}


class Setting(NamedTuple):
    """`near` and `learner` see the server through the proxy, `far` sees it directly."""

    server: ServerProcess
    proxy: Proxy
    near: ServiceProcess
    far: ServiceProcess
    learner: ServiceProcess
    http: httpx.AsyncClient

    async def recreate(self) -> None:
        (await self.http.delete(self.far.url + PATH)).raise_for_status()
        (await self.http.put(self.far.url + PATH, json=NEW)).raise_for_status()

    async def update(self, url: str, start: int, count: int, wait: bool = True) -> httpx.Response:
        body = {"examples": [example(i) for i in range(start, start + count)]}
        return await self.http.post(f"{url}{PATH}/update?wait={str(wait).lower()}", json=body)

    async def update_until_learned(self, url: str, start: int, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(10):
            while (answer := await self.update(url, start, count)).status_code != 200:
                assert answer.status_code in (202, 404, 503)
                await asyncio.sleep(0.05)
        results: list[dict[str, Any]] = answer.json()["results"]
        return results


@pytest.fixture
async def setting(server_factory: ServerFactory, launch: Launch) -> AsyncIterator[Setting]:
    server = server_factory()
    async with Proxy(server.socket_path) as proxy, httpx.AsyncClient(timeout=10) as http:
        near, far = launch("api", proxy.url), launch("api", server.url)
        learner = launch("learn", proxy.url)
        await ready(near, far)
        (await http.put(far.url + PATH, json=OLD)).raise_for_status()
        (await http.get(near.url + PATH)).raise_for_status()
        await until(lambda: learner.logged("learning clicks"), "the learner has found the model")
        yield Setting(server, proxy, near, far, learner, http)


async def test_a_commit_for_the_old_model_changes_nothing_of_the_new(setting: Setting) -> None:
    held = setting.proxy.hold("commit")
    assert (await setting.update(setting.far.url, 0, 20, wait=False)).status_code == 202
    await held.reached.wait()
    await setting.recreate()
    held.release()
    description = (await setting.http.get(setting.far.url + PATH)).json()
    assert (description["t"], description["features_seen"]) == (0, 0)
    results = await setting.update_until_learned(setting.far.url, 100, 20)
    assert results[0]["probability"] in (0.5, None)  # None: an attempt before had it learned
    replica = await assert_learned_once(setting.server, [f"event-{i}" for i in range(100, 120)], "clicks")
    await assert_mirror_equals(setting.far.url, replica)


async def test_an_update_for_the_old_model_is_not_appended_to_the_new(setting: Setting) -> None:
    held = setting.proxy.hold("append")
    update = asyncio.create_task(setting.update(setting.near.url, 0, 20))
    await held.reached.wait()
    await setting.recreate()
    held.release()
    answer = await update
    assert answer.status_code == 503
    assert "nothing was appended" in answer.json()["detail"]
    await setting.update_until_learned(setting.near.url, 0, 20)
    replica = await assert_learned_once(setting.server, [f"event-{i}" for i in range(20)], "clicks")
    await assert_mirror_equals(setting.near.url, replica)


async def test_a_mirror_that_was_about_to_load_the_old_model_does_not_hash_as_it_did_for_the_new(
    setting: Setting,
) -> None:
    held = setting.proxy.hold("HGETALL")
    with setting.server.client() as client:
        client.hset(meta_key("clicks"), "token", b"restored")  # so that the mirror has to load again
    await held.reached.wait()
    await setting.recreate()
    held.release()
    await setting.update_until_learned(setting.near.url, 0, 50)
    replica = await assert_learned_once(setting.server, [f"event-{i}" for i in range(50)], "clicks")
    await assert_mirror_equals(setting.near.url, replica)
    await assert_mirror_equals(setting.far.url, replica)


async def test_a_deleted_model_leaves_nothing_but_what_expires(setting: Setting) -> None:
    held = setting.proxy.hold("commit")
    await setting.update(setting.far.url, 0, 20, wait=False)
    await held.reached.wait()
    (await setting.http.delete(setting.far.url + PATH)).raise_for_status()
    held.release()
    await until(lambda: setting.learner.logged("learner of clicks ends"), "the learner ends")
    with setting.server.client() as client:
        left = [key for key in client.keys("ftrl:{clicks}*") if client.ttl(key) < 0]
    assert left == []
