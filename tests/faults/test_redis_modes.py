"""A failover in the middle of updates, under Sentinels and in a cluster, with TLS and without."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis

from tests.conftest import Report
from tests.support.caller import caller
from tests.support.certificates import Certificates
from tests.support.failovers import appended, assert_the_lost_are_counted, send_again
from tests.support.invariants import assert_learned_once, assert_mirror_equals
from tests.support.load import Load
from tests.support.processes import Launch, ready
from tests.support.servers import ServerProcess
from tests.support.topologies import ClusterOfServers, SentinelsOfServers, cluster, sentinels
from tests.support.waiting import until, until_in_thread

pytestmark = pytest.mark.faults


async def fail_over(
    deployment: ClusterOfServers | SentinelsOfServers,
    pair: tuple[ServerProcess, ServerProcess],
    launch: Launch,
    promote: Callable[[], Awaitable[None]],
    report: Report,
) -> None:
    """Loses acknowledged updates on the way; everything agrees afterwards, and says how many they were."""
    primary, replica = pair
    api, late, learner = (
        launch(command, deployment.url, **deployment.settings) for command in ("api", "api", "learn")
    )
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
        replica.resume()
        await promote()
        async with caller() as service:
            assert (await service.post(f"{api.url}/predict", {"features": {}})).status == 200
        await lost.more(100)
    assert learner.process.poll() is None
    known = load.acknowledged + lost.acknowledged
    state = await assert_learned_once(replica, lost.acknowledged[-50:], others=True)
    await assert_mirror_equals(api.url, state)
    counted = assert_the_lost_are_counted(api, known, lost.answered_lost, state, report)
    await until(lambda: api.logged(f"lost {counted} examples"), "the log tells")
    state = await send_again(api, replica, known, report)
    await assert_mirror_equals(api.url, state)
    await assert_mirror_equals(late.url, state)


@pytest.fixture(params=["plain", "TLS with client certificates"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> Certificates | None:
    if request.param == "plain":
        return None
    home = tmp_path / "certificates"
    home.mkdir()
    return Certificates(home)


async def test_after_a_sentinel_failover_the_new_master_is_used(
    launch: Launch, tls: Certificates | None, report: Report
) -> None:
    with sentinels(tls) as deployment:

        async def promote() -> None:
            deployment.kill_sentinel()
            await until_in_thread(lambda: is_master(deployment.replica), "the Sentinels promote the replica")

        await fail_over(deployment, (deployment.primary, deployment.replica), launch, promote, report)


async def test_after_a_cluster_failover_the_new_master_is_used(
    launch: Launch, tls: Certificates | None, report: Report
) -> None:
    with cluster(tls=tls) as deployment:
        primary, replica = deployment.pair_of("default")

        async def promote() -> None:
            deployment.order(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
            await until_in_thread(lambda: is_master(replica), "the replica takes over")

        await fail_over(deployment, (primary, replica), launch, promote, report)


def is_master(server: ServerProcess) -> bool:
    with contextlib.suppress(redis.RedisError), server.client() as client:  # a promotion cuts connections
        return bool(client.info("replication")["role"] == "master")
    return False
