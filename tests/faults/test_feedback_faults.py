"""The click simulator while processes are killed and paused, connections break, or the server is full.

`make soak SECONDS=1800` runs it for that long, one half for each way to learn; SEED repeats what was drawn.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lab.simulation.traffic import Habits, Traffic
from lab.simulation.world import World
from service.models.replica import Replica
from service.storage.channel import Channel
from service.storage.topology import Topology
from tests.support.chaos import Service
from tests.support.commands import ServingProcess
from tests.support.invariants import assert_mirror_equals, learned, meta_of, topology_of
from tests.support.load import Load
from tests.support.log_tap import LogTap
from tests.support.peak_memory import PeakMemory
from tests.support.soak import Audit, audit
from tests.support.system import assert_state_is_a_pass_over, stored
from tests.support.waiting import until

pytestmark = pytest.mark.faults

SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "0"))
SECONDS = SOAK_SECONDS / 2 or 14.0
SEED = int(os.environ.get("SOAK_SEED") or 1)
RATE = 40.0
OVERLAPPING = 0.25  # share of what happens during which the network is bad, too
WINDOW = 2.0
TIMES = {"window_seconds": WINDOW, "unshown_seconds": 30, "late_seconds": 120, "grace_seconds": 30}
AT_CLOSE = TIMES | {"learn_at": "window_close", "late": "drop", "negative_sample_rate": 1.0}
AT_ARRIVAL = TIMES | {"learn_at": "arrival", "late": "append", "negative_sample_rate": 0.5}
STATE = """  the state equals, bit for bit, a clean pass over the log: {} examples in {} entries
  peak memory  {}"""
HABITS = Habits(WINDOW / 4, lost=0.02, repeated=0.2, early=0.1, retried=0.1)
Event = Callable[[], Awaitable[None]]


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize(
    "feedback",
    [pytest.param(AT_CLOSE, id="close"), pytest.param(AT_ARRIVAL, id="arrival")][: 2 if SOAK_SECONDS else 1],
)
async def test_whatever_happens_each_impression_is_learned_once(
    service: Service, feedback: dict[str, Any]
) -> None:
    events = [*service.events(), service.fill_the_server, service.restart_everything]
    events += [service.change_the_times] * 3
    await run_and_check(service, events, feedback, SECONDS)


async def test_a_server_full_at_times_loses_and_doubles_nothing(service: Service) -> None:
    await run_and_check(service, [service.fill_the_server, service.change_the_times], AT_ARRIVAL, 8.0)


async def run_and_check(
    service: Service, events: list[Event], feedback: dict[str, Any], seconds: float
) -> None:
    """Sends while the events happen, one after the other; then everything has to be there, and once."""
    service.drawn.seed(f"{SEED} {feedback['learn_at']}")
    service.model = "soak"
    config = {"hashing": {"bits": 14}, "feedback": feedback}
    await asyncio.to_thread(ServingProcess.put, service.apis[0], "/models/soak", config)
    async with topology_of(service.server) as topology:
        replica = await stored(topology, "soak")
        with LogTap(service.server, replica.keys.log) as tap, PeakMemory(service.pids) as peak:
            traffic, updates = await send_meanwhile(service, events, seconds)
            await closed(topology, replica)
            replica = await stored(topology, "soak")
            await until(lambda: tap.through >= replica.applied, "the log is read to its end")
        found = audit(tap.entries, traffic.answers, updates, feedback)
        print(report(service, traffic, found, feedback, seconds))  # noqa: T201  what a soak reports
        assert not tap.gaps()[:1]
        assert not found.problems, found.problems
        await assert_state_is_a_pass_over(topology, replica, tap.entries)
        assert (await meta_of(topology, "soak")).appended == found.examples == replica.state.t
    for api in service.apis:
        await assert_mirror_equals(api.url, replica)
    print(STATE.format(found.examples, len(tap.entries), peak))  # noqa: T201


async def send_meanwhile(service: Service, events: list[Event], seconds: float) -> tuple[Traffic, list[str]]:
    """Predictions, impressions and clicks of a simulated audience, and updates, whose ids are returned."""
    traffic = Traffic(service.urls, "soak", World(SEED, 0.2, 4), HABITS, run="soak", timeout=1.0)
    sending = asyncio.create_task(asyncio.to_thread(traffic.send, RATE, math.inf, seconds / 2))

    async def recovered() -> None:
        goal = traffic.record.events["impressions"] + 20
        await until(lambda: traffic.record.events["impressions"] >= goal or sending.done())
        if sending.done():
            sending.result()

    async with Load(service.urls, clients=1, examples=2, model="soak", rest_seconds=0.1) as load:
        try:
            await service.run(events, seconds, recovered, OVERLAPPING)
        finally:
            traffic.ending = True
    await sending
    return traffic, load.acknowledged


async def closed(topology: Topology, replica: Replica) -> None:
    """Waits until every window is closed and everything is learned."""
    channel = Channel(topology)

    async def none_is_open() -> bool:
        buckets = await channel.call("HKEYS", replica.keys.feedback)
        return not any(bucket[:1] in b"ig" for bucket in buckets)

    await until(none_is_open)
    await channel.close()
    await learned(topology, "soak", seconds=60)


def report(service: Service, traffic: Traffic, found: Audit, feedback: dict[str, Any], seconds: float) -> str:
    events, happened = traffic.record.events, service.happened
    kills = sum(count for name, count in happened.items() if name.startswith("kill"))
    everything = happened["restart_everything"]
    pauses = sum(count for name, count in happened.items() if name.startswith("pause"))
    clicks = {name: count for name, count in sorted(events.items()) if name.startswith("click")}
    return f"""
{seconds:g} s, seed {SEED}, learn_at {feedback["learn_at"]}, late {feedback["late"]}, \
labels 0 {feedback["negative_sample_rate"]:.0%}
  events       {events["predictions"]} predictions, {events["not_logged"]} of them not logged
               {events["impressions"]} impressions; {clicks}
  acknowledged {found.acknowledged}; {found.examples} examples in the log
  kills        {kills + 5 * everything}, of them {5 * everything} by killing everything at once
  pauses       {pauses}
  full server  {happened["fill_the_server"]} times
  connections  {service.proxy.dropped} dropped
  all faults   {dict(sorted(happened.items()))}
  retries      {events["retries"]} after failures, {events["sent_again"]} after answers
  lost {len(found.lost)}, doubled {len(found.doubled)}, wrong {len(found.wrong)}"""
