"""A seeded sequence of whatever can happen, under load."""

from __future__ import annotations

import pytest

from tests.support.caller import caller
from tests.support.chaos import Service
from tests.support.invariants import assert_learned_once, assert_mirror_equals, learned, topology_of
from tests.support.load import Load, example
from tests.support.system import assert_state_is_a_pass_over_the_log

pytestmark = pytest.mark.faults

SECONDS = 10


@pytest.mark.parametrize("seed", [1])
async def test_whatever_happens_each_update_is_learned_once(service: Service, seed: int) -> None:
    service.drawn.seed(seed)
    async with Load(service.urls, clients=4) as load:
        await service.run(service.events(), SECONDS, lambda: load.more(20))
    replica = await assert_learned_once(service.server, load.acknowledged)
    for api in service.apis:
        await assert_mirror_equals(api.url, replica)


@pytest.mark.parametrize("seed", [1])
async def test_examples_lost_by_a_server_are_learned_once_when_resent(service: Service, seed: int) -> None:
    service.drawn.seed(seed)
    async with Load(service.urls, clients=4) as load:
        await load.more(400)  # so that the end that is lost does not begin before the model
        events = [*service.events(), service.lose_the_end_of_the_file]
        await service.run(events, SECONDS, lambda: load.more(20))
    async with topology_of(service.server) as topology:
        await learned(topology)
        before = await assert_state_is_a_pass_over_the_log(topology, "default")
    for api in service.apis:
        await assert_mirror_equals(api.url, before)
    async with caller() as again:
        for event_ids in batched(load.acknowledged, 200):
            bodies = [example(int(event_id.rpartition("-")[2])) for event_id in event_ids]
            answer = await again.post(f"{service.urls[0]}/update", {"examples": bodies})
            assert answer.status in (200, 202)
    replica = await assert_learned_once(service.server, load.acknowledged)
    for api in service.apis:
        await assert_mirror_equals(api.url, replica)


def batched(items: list[str], size: int) -> list[list[str]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
