"""What a failover that lost acknowledged updates has to leave behind, whatever kind it was."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import redis

from service.models.replica import Replica
from service.storage.records import Meta, meta_key
from tests.conftest import Report
from tests.support.caller import caller
from tests.support.invariants import assert_learned_once
from tests.support.load import example
from tests.support.processes import ServiceProcess
from tests.support.servers import ServerProcess


def appended(server: ServerProcess) -> int:
    """How many examples its log has had; -1 where it knows no model."""
    with server.client() as client:
        with contextlib.suppress(redis.ResponseError):  # only a replica in a cluster needs it
            client.execute_command("READONLY")
        fields = client.hgetall(meta_key("default"))
    return Meta.parse(fields).appended if fields else -1


def assert_the_lost_are_counted(
    api: ServiceProcess,
    acknowledged: Sequence[str],
    answered_lost: Sequence[str],
    state: Replica,
    report: Report,
) -> int:
    """Compare the count of lost examples with the acknowledged updates that are not in the state.

    The service also counts those that only Redis had acknowledged: they were answered as lost, and their
    retries are learned. Returns what it counts.
    """
    missing = len(acknowledged) - state.state.t
    counted = api.metric("ftrl_examples_lost_total", model="default")
    report(
        f"{len(acknowledged)} examples acknowledged, {state.state.t} learned, {missing} lost,"
        f" {len(answered_lost)} answered as lost and sent again;"
        f" the service reports {counted:g} lost"
    )
    assert missing > 0, "nothing was lost: the test does not test"
    assert missing <= counted <= missing + len(answered_lost)
    return int(counted)


async def send_again(
    api: ServiceProcess, server: ServerProcess, acknowledged: Sequence[str], report: Report
) -> Replica:
    """The state after that: it has each of them once."""
    async with caller() as service:
        bodies = [example(int(event_id.rpartition("-")[2])) for event_id in acknowledged]
        answer = await service.post(f"{api.url}/update", {"examples": bodies})
        assert answer.status in (200, 202)
    state = await assert_learned_once(server, acknowledged)
    report(f"all {len(acknowledged)} sent again: {state.state.t} learned, each once")
    return state
