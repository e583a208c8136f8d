"""A replica that lacks the newest writes takes the place of its primary."""

from __future__ import annotations

import pytest

from service.redis_keys import Meta, meta_key
from tests.caller import caller
from tests.conftest import Report, ServerFactory
from tests.invariants import assert_learned_once, assert_mirror_equals
from tests.load import Load, example
from tests.processes import Launch, ready, until
from tests.proxy import Proxy
from tests.servers import ServerProcess, free_port

pytestmark = pytest.mark.faults


def appended(server: ServerProcess) -> int:
    with server.client() as client:
        fields = client.hgetall(meta_key("default"))
    return Meta.parse(fields).appended if fields else -1


async def test_after_a_failover_that_lost_writes_everything_agrees_and_what_is_sent_again_is_learned_once(
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
        await until(lambda: appended(replica) == appended(primary), "the replica follows")
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
        missing = len(everything) - state.state.t
        counted = api.metric("ftrl_examples_lost_total", model="default")
        report(
            f"{len(everything)} examples acknowledged, {state.state.t} learned, {missing} lost;"
            f" the service reports {counted:g} lost"
        )
        assert missing > 0, "nothing was lost: the test does not test"
        assert counted == missing
        async with caller() as service:
            bodies = [example(int(event_id.rpartition("-")[2])) for event_id in everything]
            answer = await service.post(f"{api.url}/update", {"examples": bodies})
            assert answer.status in (200, 202)
        state = await assert_learned_once(replica, everything)
        report(f"all {len(everything)} sent again: {state.state.t} learned, each once")
        await assert_mirror_equals(api.url, state)
        await assert_mirror_equals(late.url, state)
