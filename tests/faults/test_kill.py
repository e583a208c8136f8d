"""kill -9 of each process in the middle of load."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import ServerFactory
from tests.support.invariants import assert_learned_once, assert_mirror_equals
from tests.support.load import Load
from tests.support.processes import Launch, ready
from tests.support.waiting import until

pytestmark = pytest.mark.faults

LEADS = "learning default from"


async def test_after_a_learner_is_killed_everything_is_learned_once(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory()
    api, leader = launch("api", server.url), launch("learn", server.url)
    await until(lambda: leader.logged(LEADS), "the first leads")
    standby = launch("learn", server.url)
    await asyncio.to_thread(standby.wait_for, "the learner's metrics are at")
    await ready(api)
    async with Load([api.url]) as load:
        await load.more(500)
        leader.kill9()
        await until(lambda: standby.logged(LEADS), "the standby takes over")
        await load.more(500)
    replica = await assert_learned_once(server, load.acknowledged)
    await assert_mirror_equals(api.url, replica)


async def test_retries_after_a_killed_api_process_are_learned_once(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory()
    apis = [launch("api", server.url), launch("api", server.url)]
    launch("learn", server.url)
    await ready(*apis)
    async with Load([api.url for api in apis]) as load:
        await load.more(500)
        apis[0].kill9()
        await load.more(500)
    assert load.answers["no answer"]
    replica = await assert_learned_once(server, load.acknowledged)
    await assert_mirror_equals(apis[1].url, replica)


async def test_a_killed_server_keeps_all_that_was_acknowledged(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory(appendfsync="always")
    api = launch("api", server.url)
    launch("learn", server.url)
    await ready(api)
    async with Load([api.url]) as load:
        for _ in range(3):
            await load.more(300)
            server.kill9()
            await asyncio.to_thread(server.start)
        await load.more(300)
    replica = await assert_learned_once(server, load.acknowledged)
    await assert_mirror_equals(api.url, replica)


async def test_acknowledged_examples_survive_a_crash_without_a_retry(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory(appendfsync="always")
    api = launch("api", server.url)
    launch("learn", server.url)
    await ready(api)
    async with Load([api.url], insistent=False) as load:
        await load.more(300)
        server.kill9()
    await asyncio.to_thread(server.start)
    replica = await assert_learned_once(server, load.acknowledged, others=True)
    await assert_mirror_equals(api.url, replica)
