"""A model is deleted and recreated at the worst moment: nothing of the old one leaks into the new one."""

from __future__ import annotations

import asyncio

import pytest

from service.storage.records import meta_key
from tests.support.invariants import assert_learned_once, assert_mirror_equals
from tests.support.problem_replies import problem
from tests.support.steered import Steered
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.asyncio(loop_scope="module")]

OTHER = {"hashing": {"bits": 15, "seed": 7}, "hyper": {"l1": 0}}


async def create_anew(steered: Steered) -> None:
    await steered.delete()
    await steered.create(OTHER)


def names(start: int, stop: int) -> list[str]:
    return [f"event-{i}" for i in range(start, stop)]


async def test_a_commit_for_the_old_model_changes_nothing_of_the_new(steered: Steered) -> None:
    held = steered.before_learner.hold("commit")
    assert (await steered.update(steered.far, 20, wait=False)).status_code == 202
    await held.reached.wait()
    await create_anew(steered)
    held.release()
    description = (await steered.http.get(steered.far.url + steered.path)).json()
    assert (description["t"], description["features_seen"]) == (0, 0)
    results = await steered.update_until_learned(steered.far, 20, start=100)
    assert results[0]["probability"] in (0.5, None)  # None: learned by an attempt that had to stop waiting
    replica = await assert_learned_once(steered.server, names(100, 120), steered.model)
    await assert_mirror_equals(steered.far.url, replica)


@pytest.mark.parametrize("heard", [False, True], ids=["before it heard of it", "after it heard of it"])
async def test_an_update_for_the_old_model_is_not_appended_to_the_new(steered: Steered, heard: bool) -> None:
    held = steered.before_api.hold("append")
    update = asyncio.create_task(steered.update(steered.near, 20))
    await held.reached.wait()
    await create_anew(steered)
    if heard:
        await until(lambda: steered.near.logged(f"model {steered.model} was deleted"), "it has heard of it")
    held.release()
    answer = await update
    problem(answer, 503, "state_unavailable")
    await steered.update_until_learned(steered.near, 20)
    replica = await assert_learned_once(steered.server, names(0, 20), steered.model)
    await assert_mirror_equals(steered.near.url, replica)


async def test_a_mirror_about_to_load_a_deleted_model_hashes_again(
    steered: Steered,
) -> None:
    held = steered.before_api.hold("HGETALL")
    with steered.server.client() as client:
        client.hset(meta_key(steered.model), "token", b"restored")  # so that the mirror has to load again
    await held.reached.wait()
    await create_anew(steered)
    held.release()
    await steered.update_until_learned(steered.near, 50)
    replica = await assert_learned_once(steered.server, names(0, 50), steered.model)
    await assert_mirror_equals(steered.near.url, replica)
    await assert_mirror_equals(steered.far.url, replica)


async def test_a_model_deleted_before_a_commit_leaves_no_lasting_keys(steered: Steered) -> None:
    held = steered.before_learner.hold("commit")
    await steered.update(steered.far, 20, wait=False)
    await held.reached.wait()
    await steered.delete()
    held.release()
    await until(lambda: steered.learner.logged(f"learner of {steered.model} ends"), "the learner ends")
    with steered.server.client() as client:
        left = [key for key in client.keys(f"ftrl:{{{steered.model}}}*") if client.ttl(key) < 0]
    assert left == []
