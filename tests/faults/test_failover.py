"""A replica that lacks the newest writes takes the place of its primary."""

from __future__ import annotations

import pytest

from tests.conftest import Report, ServerFactory
from tests.support.caller import caller
from tests.support.failovers import appended, assert_the_lost_are_counted, send_again
from tests.support.invariants import assert_learned_once, assert_mirror_equals
from tests.support.load import Load, example
from tests.support.processes import Launch, ready
from tests.support.proxy import Proxy
from tests.support.servers import free_port
from tests.support.waiting import until_in_thread

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
        assert_the_lost_are_counted(api, everything, state, report)
        state = await send_again(api, replica, everything, report)
        await assert_mirror_equals(api.url, state)
        await assert_mirror_equals(late.url, state)
