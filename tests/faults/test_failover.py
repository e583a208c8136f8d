"""A replica that lacks the newest writes takes the place of its primary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from service.errors import UpdateUnavailable
from service.models.registry import OpenModel
from service.storage.records import LogId
from tests.conftest import PATIENT, Report, ServerFactory, SettingsFactory
from tests.support.caller import caller
from tests.support.failovers import appended, assert_the_lost_are_counted, send_again
from tests.support.invariants import assert_learned_once, assert_mirror_equals
from tests.support.load import Load, example
from tests.support.processes import Launch, ready
from tests.support.proxy import Proxy
from tests.support.servers import ServerProcess, free_port
from tests.support.system import System, assert_state_is_a_pass_over_the_log
from tests.support.waiting import until, until_in_thread

pytestmark = pytest.mark.faults


async def test_examples_lost_in_a_failover_are_learned_once_when_resent(
    server_factory: ServerFactory, launch: Launch, report: Report
) -> None:
    primary = server_factory(port=free_port())
    replica = server_factory(port=free_port(), replicaof=f"127.0.0.1 {primary.port}")
    async with Proxy(primary.socket_path) as proxy:
        api, late = launch("api", proxy.url), launch("api", proxy.url)
        launch("learn", proxy.url)
        await ready(api, late)
        async with Load([api.url]) as load:
            await load.more(200)
        await until_in_thread(lambda: appended(replica) == appended(primary), "the replica follows")
        async with Load([api.url], first=1000) as lost:
            await lost.more(50)
            replica.pause()
            with primary.client() as client:
                client.client_kill_filter(_type="replica")
            await lost.more(100)
            primary.kill9()
            proxy.target = replica.socket_path
            await proxy.cut_all()
            replica.resume()
            async with caller() as service:  # it is still a replica, and writes nothing
                answer = await service.post(f"{api.url}/predict", {"features": {}})
                assert answer.status == 200
                answer = await service.post(f"{api.url}/update", example(1))
                assert (answer.status, answer.body["outcome"]) in [(503, "not_appended"), (503, "unknown")]
            with replica.client() as client:
                client.replicaof("NO", "ONE")
        async with Load([api.url], first=2000) as after:
            await after.more(200)
        state = await assert_learned_once(replica, load.acknowledged + after.acknowledged, others=True)
        await assert_mirror_equals(api.url, state)
        everything = load.acknowledged + lost.acknowledged + after.acknowledged
        assert_the_lost_are_counted(api, everything, lost.answered_lost, state, report)
        state = await send_again(api, replica, everything, report)
        await assert_mirror_equals(api.url, state)
        await assert_mirror_equals(late.url, state)


@dataclass
class Pair:
    """A primary behind a proxy and its replica, and a model whose learner has not been started."""

    primary: ServerProcess
    replica: ServerProcess
    proxy: Proxy
    system: System
    model: OpenModel

    def stop_replication(self) -> None:
        self.replica.pause()
        with self.primary.client() as client:
            client.client_kill_filter(_type="replica")

    async def fail_over(self) -> None:
        self.primary.kill9()
        self.replica.resume()
        with self.replica.client() as client:
            client.replicaof("NO", "ONE")
        self.proxy.target = self.replica.socket_path
        await self.proxy.cut_all()


def counted(system: System, what: str) -> float | None:
    return system.metrics.registry.get_sample_value(f"ftrl_examples_{what}_total", {"model": "default"})


@pytest.fixture
async def pair(server_factory: ServerFactory, make_settings: SettingsFactory) -> AsyncIterator[Pair]:
    primary = server_factory(port=free_port())
    replica = server_factory(port=free_port(), replicaof=f"127.0.0.1 {primary.port}")
    async with (
        Proxy(primary.socket_path) as proxy,
        System(make_settings(primary, redis_url=proxy.url, **PATIENT)) as system,
    ):
        model = await system.model(name="default")
        await until_in_thread(lambda: appended(replica) == 0, "the replica follows")
        yield Pair(primary, replica, proxy, system, model)


async def test_an_update_lost_in_a_failover_is_not_answered_as_learned(pair: Pair) -> None:
    pair.stop_replication()
    lost = asyncio.create_task(pair.system.update(pair.model, event_ids=True))
    await until(lambda: counted(pair.system, "appended") == 1, "the append is acknowledged")
    await pair.fail_over()
    (later,) = await pair.system.update(pair.model, start=1, wait=False)
    assert later.status == "appended"
    pair.system.learn()
    with pytest.raises(UpdateUnavailable) as refused:
        await lost
    assert (refused.value.outcome, refused.value.event_ids) == ("unknown", ["event-0"])
    assert counted(pair.system, "lost") == 1
    (again,) = await pair.system.update(pair.model, event_ids=True)
    assert again.status == "learned"
    state = await assert_state_is_a_pass_over_the_log(pair.system.topology, "default")
    assert state.state.t == 2


async def test_an_update_that_survives_a_failover_is_learned(pair: Pair) -> None:
    kept = asyncio.create_task(pair.system.update(pair.model, event_ids=True))
    await until_in_thread(lambda: appended(pair.replica) == 1, "the replica has the update")
    pair.stop_replication()
    await pair.fail_over()
    pair.system.learn()
    assert [result.status for result in await kept] == ["learned"]


async def test_another_example_under_the_same_entry_id_is_not_taken_for_it(pair: Pair) -> None:
    """The clocks of two servers differ, so that ids of entries repeat."""
    pair.stop_replication()
    lost = asyncio.create_task(pair.system.update(pair.model, event_ids=True))
    await until(lambda: counted(pair.system, "appended") == 1, "the append is acknowledged")
    keys = pair.model.mirror.replica.keys
    with pair.primary.client() as client:
        ((entry, _),) = client.xrange(keys.log)
    await pair.fail_over()
    async with System(pair.system.settings) as other:
        await other.update(await other.model(name="default"), start=1, wait=False, event_ids=True)
    with pair.replica.client() as client:
        ((_, fields),) = client.xrange(keys.log)
        client.delete(keys.log)
        client.xadd(keys.log, fields, id=entry)
    pair.system.learn()
    await until(lambda: pair.model.outcomes.held(LogId.parse(entry)), "the other example is learned")
    with pytest.raises(UpdateUnavailable):
        await lost
    (again,) = await pair.system.update(pair.model, event_ids=True)
    assert again.status == "learned"
    assert counted(pair.system, "lost") == 1
