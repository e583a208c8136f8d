"""A server that does not answer for longer than anybody waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.conftest import ServerFactory
from tests.support.invariants import assert_learned_once, assert_mirror_equals, meta_of, topology_of
from tests.support.load import Load, example
from tests.support.processes import Launch, ServiceProcess, ready
from tests.support.servers import ServerProcess
from tests.support.waiting import until

pytestmark = pytest.mark.faults

UPDATE_SECONDS = 3.0


class Setting(NamedTuple):
    server: ServerProcess
    api: ServiceProcess
    http: httpx.AsyncClient

    async def update(self, event: int) -> httpx.Response:
        return await self.http.post(f"{self.api.url}/update", json=example(event))

    async def predict(self) -> httpx.Response:
        return await self.http.post(f"{self.api.url}/predict", json={"features": example(1)["features"]})

    async def readiness(self, purpose: str = "predict") -> tuple[int, dict[str, Any]]:
        answer = await self.http.get(f"{self.api.url}/readyz?for={purpose}")
        return answer.status_code, answer.json()

    async def until_predictions_are(self, state: str) -> None:
        async def reached() -> bool:
            return bool((await self.readiness())[1]["predict"] == state)

        await until(reached, f"predictions are {state}")

    async def until_updates_are_accepted(self) -> None:
        async def accepted() -> bool:
            return (await self.readiness("update"))[0] == 200

        await until(accepted, "updates are accepted")


@pytest.fixture
async def setting(server_factory: ServerFactory, launch: Launch) -> AsyncIterator[Setting]:
    server = server_factory()
    api = launch("api", server.url, update_timeout_seconds=UPDATE_SECONDS, stale_after_seconds=1)
    learner = launch("learn", server.url)
    await ready(api)
    await until(lambda: learner.logged("learning default from"), "the learner leads")
    async with httpx.AsyncClient(timeout=30) as http:
        yield Setting(server, api, http)
    server.resume()


async def test_predictions_continue_while_the_server_is_paused(
    setting: Setting,
) -> None:
    assert (await setting.update(0)).status_code == 200
    before = (await setting.predict()).json()
    setting.server.pause()

    began = time.monotonic()
    refused = await asyncio.gather(*(setting.update(event) for event in range(1, 40)))
    assert UPDATE_SECONDS <= time.monotonic() - began < 4 * UPDATE_SECONDS
    for event, answer in enumerate(refused, start=1):
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        assert answer.json()["outcome"] in ("unknown", "not_appended")
        assert answer.json()["event_ids"] == [f"event-{event}"]

    assert (await setting.predict()).json() == before
    await setting.until_predictions_are("stale")
    status, report = await setting.readiness()
    assert (status, report["update"]) == (200, "unavailable")
    assert report["mirror_age_seconds"] > 1
    assert (await setting.readiness("update"))[0] == 503
    assert (await setting.predict()).json() == before

    setting.server.resume()
    await setting.until_updates_are_accepted()
    async with topology_of(setting.server) as topology:
        assert (await meta_of(topology)).appended == 1, "what reached the server late was appended"
    for event in range(1, 40):
        answer = await setting.update(event)
        assert (answer.status_code, answer.json()["status"]) == (200, "learned")
    replica = await assert_learned_once(setting.server, [f"event-{event}" for event in range(40)])
    await assert_mirror_equals(setting.api.url, replica)
    await setting.until_predictions_are("fresh")


async def test_an_update_that_never_left_is_known_not_to_be_appended(setting: Setting) -> None:
    setting.server.pause()
    await setting.update(1)  # its connection is given up; none can be made after it
    answer = await setting.update(2)
    assert (answer.status_code, answer.json()["outcome"]) == (503, "not_appended")


async def test_pauses_under_load_repeat_and_lose_nothing(setting: Setting) -> None:
    async with Load([setting.api.url]) as load:
        for _ in range(2):
            await load.more(200)
            setting.server.pause()
            await asyncio.sleep(0.8)  # longer than an answer is waited for
            setting.server.resume()
        await load.more(200)
    replica = await assert_learned_once(setting.server, load.acknowledged)
    await assert_mirror_equals(setting.api.url, replica)
