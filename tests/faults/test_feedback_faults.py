"""The click simulator while processes are killed and paused, connections break, or the server is full.

`make soak SECONDS=1800` runs it for that long, one half for each way to learn.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from model_core.examples import ExampleBatch
from service.feedback.identity import packed_id
from service.redis_keys import Meta
from service.simulation.traffic import Habits, Traffic
from service.simulation.world import World
from tests.chaos import Service
from tests.commands import ServingProcess
from tests.invariants import assert_mirror_equals, client_of, learned
from tests.system import assert_state_is_a_pass_over_the_log, read_log

pytestmark = pytest.mark.faults

SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "0"))
SECONDS = SOAK_SECONDS / 2 or 12.0
RATE = 40.0
WINDOW = 2.0
FEEDBACK = {"window_seconds": WINDOW, "unshown_seconds": 30, "late_seconds": 120, "grace_seconds": 30}
Event = Callable[[], Awaitable[None]]
TAKEN = {"waiting", "learned", "appended", "duplicate"}


@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.parametrize("learn_at", ["window_close", "arrival"] if SOAK_SECONDS else ["window_close"])
async def test_whatever_happens_each_impression_is_learned_once_and_no_acknowledged_click_is_lost(
    service: Service, learn_at: str
) -> None:
    traffic = await run_with(service, service.events(), learn_at, SECONDS)
    await assert_each_is_learned_once(service, traffic)


async def test_a_server_that_is_full_now_and_then_loses_and_doubles_no_impression(service: Service) -> None:
    """A full server's log is trimmed, so that only the count can be compared."""
    traffic = await run_with(service, [service.fill_the_server], "window_close", 8.0)
    async with client_of(service.server) as client:
        assert (await all_learned(client, traffic)).t == len(traffic.shown)


async def run_with(service: Service, events: list[Event], learn_at: str, seconds: float) -> Traffic:
    """The simulator while the events happen, one after the other."""
    service.drawn.seed(1)
    config = {"hashing": {"bits": 14}, "feedback": FEEDBACK | {"learn_at": learn_at}}
    await asyncio.to_thread(ServingProcess.put, service.apis[0], "/models/soak", config)
    world, habits = World(1, 0.2, 4), Habits(WINDOW / 4, lost=0.02, repeated=0.2)
    traffic = Traffic(service.urls, "soak", world, habits, run="soak")
    sending = asyncio.create_task(asyncio.to_thread(traffic.send, RATE, seconds, seconds / 2))

    async def recovered() -> None:
        goal = len(traffic.shown) + 20
        async with asyncio.timeout(60):
            while len(traffic.shown) < goal and not sending.done():  # noqa: ASYNC110  in another thread
                await asyncio.sleep(0.05)

    await service.run(events, seconds, recovered)
    await sending
    return traffic


async def all_learned(client: Redis, traffic: Traffic) -> Meta:
    async with asyncio.timeout(60):
        while (meta := await learned(client, "soak")).t < len(traffic.shown):  # noqa: ASYNC110  in Redis
            await asyncio.sleep(0.2)
    return meta


async def assert_each_is_learned_once(service: Service, traffic: Traffic) -> None:
    async with client_of(service.server) as client:
        await all_learned(client, traffic)
        replica = await assert_state_is_a_pass_over_the_log(client, "soak")
        entries = await read_log(client, replica)
    examples = ExampleBatch.from_records([record for entry in entries for record in entry.records])
    ids = examples.prediction_ids or []
    assert max(Counter(ids).values()) == 1, "an impression was learned more than once"
    assert set(ids) == {packed_id(text) for text in traffic.shown}
    label_of = dict(zip(ids, examples.labels.tolist(), strict=True))
    for text, status in traffic.clicked.items():
        assert status in TAKEN | {"late"}, (text, status)
        assert label_of[packed_id(text)] == (status in TAKEN), (text, status)
    for api in service.apis:
        await assert_mirror_equals(api.url, replica)
    events = dict(sorted(traffic.record.events.items()))
    print(f"examples {len(ids)}, {events}, {dict(service.happened)}")  # noqa: T201  what a soak reports
