"""The click simulator while processes are killed and paused, connections break and the server is full.

`make soak SECONDS=1800` runs it for that long, one half for each way to learn.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest

from model_core.examples import ExampleBatch
from service.feedback.identity import packed_id
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
TAKEN = {"waiting", "learned", "appended", "duplicate"}


@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.parametrize("learn_at", ["window_close", "arrival"] if SOAK_SECONDS else ["window_close"])
async def test_whatever_happens_each_impression_is_learned_once_and_no_acknowledged_click_is_lost(
    service: Service, learn_at: str
) -> None:
    service.drawn.seed(1)
    config = {"hashing": {"bits": 14}, "feedback": FEEDBACK | {"learn_at": learn_at}}
    await asyncio.to_thread(ServingProcess.put, service.apis[0], "/models/soak", config)
    world, habits = World(1, 0.2, 4), Habits(WINDOW / 4, lost=0.02, repeated=0.2)
    traffic = Traffic(service.urls, "soak", world, habits, run="soak")
    sending = asyncio.create_task(asyncio.to_thread(traffic.send, RATE, SECONDS, SECONDS / 2))

    async def recovered() -> None:
        goal = len(traffic.shown) + 20
        async with asyncio.timeout(60):
            while len(traffic.shown) < goal and not sending.done():  # noqa: ASYNC110  in another thread
                await asyncio.sleep(0.05)

    await service.run([*service.events(), service.fill_the_server], SECONDS, recovered)
    await sending
    await assert_each_is_learned_once(service, traffic)


async def assert_each_is_learned_once(service: Service, traffic: Traffic) -> None:
    async with client_of(service.server) as client:
        async with asyncio.timeout(60):
            while (await learned(client, "soak")).t < len(traffic.shown):  # noqa: ASYNC110  in Redis
                await asyncio.sleep(0.2)
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
