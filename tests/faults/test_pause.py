"""SIGSTOP of each process of the service, longer than what others wait for it."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import ServerFactory
from tests.support.invariants import assert_learned_once, assert_mirror_equals
from tests.support.load import Load
from tests.support.processes import Launch, ready
from tests.support.proxy import Proxy
from tests.support.waiting import until

pytestmark = pytest.mark.faults

LEADS = "learning default from"
REFUSED = "was refused: reloading the state"


async def test_a_learner_paused_during_its_commit_becomes_a_standby(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory()
    async with Proxy(server.socket_path) as proxy:
        api = launch("api", server.url)
        paused = launch("learn", proxy.url)
        await asyncio.gather(ready(api), until(lambda: paused.logged(LEADS), "it leads"))
        standby = launch("learn", server.url)
        async with Load([api.url]) as load:
            await load.more(200)
            held = proxy.hold("commit")
            await held.reached.wait()
            paused.pause()
            await until(lambda: standby.logged(LEADS), "the standby takes over")
            await load.more(200)
            held.release()
            paused.resume()
            await until(lambda: paused.logged(REFUSED), "the commit of the resumed one is refused")
            await load.more(200)
        replica = await assert_learned_once(server, load.acknowledged)
        await assert_mirror_equals(api.url, replica)

        led = paused.log.count(LEADS)
        standby.kill9()
        await until(lambda: paused.log.count(LEADS) > led, "the resumed one takes over from its standing by")
        async with Load([api.url]) as more:
            await more.more(100)
        replica = await assert_learned_once(server, load.acknowledged, others=True)
        await assert_mirror_equals(api.url, replica)


async def test_the_mirror_of_a_paused_api_process_catches_up(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory()
    paused, api = launch("api", server.url), launch("api", server.url)
    launch("learn", server.url)
    await ready(paused, api)
    async with Load([api.url]) as load:
        await load.more(200)
        paused.pause()
        await load.more(1000)
        paused.resume()
        await load.more(200)
    replica = await assert_learned_once(server, load.acknowledged)
    await assert_mirror_equals(paused.url, replica)
    await assert_mirror_equals(api.url, replica)
    assert paused.metric("ftrl_mirror_loads_total", model="default") == 1
