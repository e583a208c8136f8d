"""A challenger is one pass over its champion's log, whatever is killed, lost or full meanwhile."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from service.models.replica import Replica
from tests.conftest import ServerFactory
from tests.support.failovers import appended
from tests.support.invariants import assert_holds_once, assert_learned_once, learned, topology_of
from tests.support.leases import without_a_lease
from tests.support.load import Load
from tests.support.processes import Launch, ready
from tests.support.proxy import Proxy
from tests.support.servers import ServerProcess, free_port
from tests.support.system import assert_state_is_a_pass_over, pass_over, read_log, stored
from tests.support.waiting import until, until_in_thread

pytestmark = pytest.mark.faults

CHALLENGER = {
    "follows": "default",
    "start": "log",
    "hyper": {"rate": {"kind": "adaptive", "alpha": 0.3}},
    "hashing": {"bits": 12},
}
LEADS = "learning b from"
REFUSED = "of b was refused: reloading the state"


async def challenged(url: str) -> None:
    async with httpx.AsyncClient() as http:
        (await http.put(f"{url}/models/b", json=CHALLENGER)).raise_for_status()


async def assert_follows(server: ServerProcess) -> None:
    """Once it has learned all that its champion has: its state and its evaluation."""
    async with topology_of(server) as topology:
        champion = await learned(topology)

        async def has_learned_all() -> bool:
            return (await stored(topology, "b")).applied_number == champion.applied_number

        await until(has_learned_all, "the challenger has learned what the champion has")
        entries = await read_log(topology, await stored(topology, "default"))
        assert entries[0].first_number == 0
        await assert_state_is_a_pass_over(topology, await stored(topology, "b"), entries)


async def test_after_learners_and_the_server_are_killed(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory(appendfsync="always")
    api, leader = launch("api", server.url), launch("learn", server.url)
    await ready(api)
    await challenged(api.url)
    await until(lambda: leader.logged(LEADS), "the first leads")
    standby = launch("learn", server.url)
    async with Load([api.url]) as load:
        await load.more(400)
        leader.kill9()
        await load.more(200)
        await until(lambda: standby.logged(LEADS), "the standby takes over")
        server.kill9()
        await asyncio.to_thread(server.start)
        await load.more(200)
    await assert_learned_once(server, load.acknowledged)
    await assert_follows(server)


async def test_with_two_learners_at_once(server_factory: ServerFactory, launch: Launch) -> None:
    server = server_factory()
    api = launch("api", server.url)
    learners = [launch("learn", server.url) for _ in range(2)]
    await ready(api)
    await challenged(api.url)
    async with Load([api.url]) as load, without_a_lease(server, "b"):
        while not any(learner.logged(REFUSED) for learner in learners):
            await load.more(100)
    await assert_learned_once(server, load.acknowledged)
    await assert_follows(server)


async def test_after_a_failover_that_lost_the_end(server_factory: ServerFactory, launch: Launch) -> None:
    primary = server_factory(port=free_port())
    replica = server_factory(port=free_port(), replicaof=f"127.0.0.1 {primary.port}")
    async with Proxy(primary.socket_path) as proxy:
        api = launch("api", proxy.url)
        launch("learn", proxy.url)
        await ready(api)
        await challenged(api.url)
        async with Load([api.url]) as load:
            await load.more(200)
        await until_in_thread(lambda: appended(replica) == appended(primary), "the replica follows")
        replica.pause()
        with primary.client() as client:
            client.client_kill_filter(_type="replica")
        async with Load([api.url], first=1000) as lost:
            await lost.more(200)
        await assert_follows(primary)
        primary.kill9()
        replica.resume()
        with replica.client() as client:
            client.replicaof("NO", "ONE")
        proxy.target = replica.socket_path
        await proxy.cut_all()
        async with Load([api.url], first=2000) as after:
            await after.more(300)
        await assert_learned_once(replica, after.acknowledged, others=True)
        await assert_follows(replica)


async def promote(url: str, number: int) -> None:
    """Repeats the request until it is answered by the promotion."""
    async with httpx.AsyncClient(timeout=30) as http:

        async def is_promoted() -> bool:
            reply = await http.post(f"{url}/models/b/promote", params={"number": number})
            assert reply.status_code in (200, 409, 503), reply.text
            return reply.is_success

        await until(is_promoted, f"promotion {number} is answered")


async def assert_exchanged(server: ServerProcess, bits: tuple[int, int], acknowledged: list[str]) -> None:
    """Champion and challenger have tables of so many bits, and each is one pass over the champion's log."""
    async with topology_of(server) as topology:

        async def both() -> list[Replica] | None:
            await learned(topology)
            found = [await stored(topology, name) for name in ("default", "b")]
            has_learned_all = found[0].applied_number == found[1].applied_number
            is_exchanged = tuple(one.config.hashing.bits for one in found) == bits
            return found if has_learned_all and is_exchanged else None

        replicas = await until(both, f"the models have {bits} bits and are level")
        entries = await read_log(topology, replicas[0])
        assert_holds_once(entries, acknowledged)
        for replica in replicas:
            assert replica.state.digest() == pass_over(entries, replica.config).digest()


@pytest.mark.slow
async def test_promotions_while_the_learner_and_the_server_are_killed(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory(appendfsync="always")
    api, learner = launch("api", server.url), launch("learn", server.url)
    await ready(api)
    await challenged(api.url)
    acknowledged: list[str] = []
    for number, bits in ((1, (12, 16)), (2, (16, 12))):
        async with Load([api.url], clients=3, first=1000 * number) as load:
            await load.more(60)
            promoting = asyncio.create_task(promote(api.url, number))
            learner.kill9()
            server.kill9()
            await asyncio.to_thread(server.start)
            learner = launch("learn", server.url)
            await promoting
            await load.more(30)
        acknowledged += load.acknowledged
        await assert_exchanged(server, bits, acknowledged)
