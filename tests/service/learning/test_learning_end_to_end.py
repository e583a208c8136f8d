"""Updates up to the state, the commits and the mirrors, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from model_core.examples.batch import ExampleBatch
from service.errors import ModelConflict, UnknownModel
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.system import (
    System,
    assert_state_is_a_pass_over_the_log,
    examples,
    read_log,
    stored,
)
from tests.support.waiting import until


@pytest.fixture
async def system(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[System]:
    async with System(make_settings(valkey)) as system:
        yield system


def predicted(model: OpenModel) -> float:
    return float(model.predict(ExampleBatch.from_encoded([examples(model, 1)[0].encoded]))[0])


async def test_an_update_is_learned_when_its_reply_arrives(system: System) -> None:
    system.learn()
    model = await system.model()
    before = predicted(model)
    (result,) = await system.update(model)
    assert (result.status, result.probability) == ("learned", before)
    assert result.revision == model.revision
    assert predicted(model) > before


async def test_the_state_equals_a_pass_over_the_log_for_any_batching(system: System) -> None:
    system.learn()
    model = await system.model()
    for start in range(50):
        await system.update(model, 1, start)
    await asyncio.gather(*(system.update(model, 1, start) for start in range(50, 150)))
    await system.update(model, 3000, 150)
    replica = await assert_state_is_a_pass_over_the_log(system.topology)
    assert replica.state.t == 3150
    assert model.mirror.replica.state.digest() == replica.state.digest()


async def test_progressive_probabilities_do_not_depend_on_the_batching(system: System) -> None:
    system.learn()
    one = await system.model(name="one")
    many = await system.model(name="many")
    singly = [(await system.update(one, 1, i))[0].probability for i in range(40)]
    together = [result.probability for result in await system.update(many, 40)]
    assert singly == together


async def test_requests_that_arrive_together_share_an_append(system: System) -> None:
    model = await system.model()
    await asyncio.gather(*(system.update(model, 1, i, wait=False) for i in range(64)))
    entries = await read_log(system.topology, model.mirror.replica)
    assert sum(entry.examples for entry in entries) == 64
    assert len(entries) <= 3


async def test_without_a_learner_an_update_is_durable_but_not_learned(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey, update_timeout_seconds=0.2)) as system:
        model = await system.model()
        (result,) = await system.update(model)
        assert (result.status, result.probability, result.revision) == ("appended", None, None)
        system.learn()
        await until(lambda: model.mirror.replica.state.t == 1)


async def test_a_repeated_event_returns_the_first_probability(system: System) -> None:
    system.learn()
    model = await system.model()
    (first,) = await system.update(model, event_ids=True)
    await system.update(model, 5, start=1)
    (again,) = await system.update(model, event_ids=True)
    assert again.status == "duplicate"
    assert again.probability == first.probability
    assert (await stored(system.topology)).state.t == 6


async def test_a_mirror_of_another_process_ends_up_with_the_same_state(
    valkey: ServerProcess, make_settings: SettingsFactory, system: System
) -> None:
    system.learn()
    model = await system.model()
    await system.update(model, 500)
    async with System(make_settings(valkey)) as other:
        follower = await other.models.get("clicks")
        await system.update(model, 500, start=500)
        await until(lambda: follower.revision == model.revision)
        assert follower.mirror.replica.state.digest() == model.mirror.replica.state.digest()


async def test_commits_change_a_bounded_number_of_slots(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey, commit_slots=1000)) as system:
        model = await system.model()
        await system.update(model, 5000, wait=False)
        system.learn()
        await until(lambda: model.mirror.replica.state.t == 5000)
        assert model.mirror.replica.commit > 5
        await assert_state_is_a_pass_over_the_log(system.topology)


async def test_creating_a_model_again_is_idempotent_or_a_conflict(
    system: System,
) -> None:
    config = ModelConfig.from_json({"hyper": {"l1": 1.0}})
    model, created = await system.models.create("m", config)
    same, again = await system.models.create("m", config)
    assert (created, again) == (True, False)
    assert same.revision == model.revision
    with pytest.raises(ModelConflict, match=r"hyper\.l1 = 1\.0, not 0\.5"):
        await system.models.create("m", ModelConfig.from_json({"hyper": {"l1": 0.5}}))


async def test_a_put_that_created_a_model_before_defaults_changed_is_still_the_same(system: System) -> None:
    body = {"hashing": {"bits": 12}}
    single = {"hyper": {"rate": {"kind": "adaptive"}}}
    before = ModelConfig.from_json(single | {"hashing": {"bits": 12, "prior_probability": None}})
    await system.models.create("m", before)
    model, created = await system.models.create("m", ModelConfig.from_json(body))
    assert (created, model.config) == (False, before)
    other = single | {"hashing": {"bits": 12, "prior_probability": 0.1}}
    with pytest.raises(ModelConflict, match=r"hashing\.prior_probability = null, not 0\.1"):
        await system.models.create("m", ModelConfig.from_json(other))


async def test_a_deleted_model_leaves_only_expiring_keys(system: System) -> None:
    system.learn()
    model = await system.model()
    await system.update(model, 10, event_ids=True)
    await system.models.delete("clicks")
    with pytest.raises(UnknownModel):
        await system.models.get("clicks")
    with pytest.raises(UnknownModel):
        await system.models.delete("clicks")
    await until(lambda: b"ftrl_learner_active{" not in system.metrics.render())
    left = [key for key in await system.client.keys("*") if await system.client.ttl(key) < 0]
    assert left == []


async def test_a_recreated_model_starts_empty(system: System) -> None:
    system.learn()
    await system.update(await system.model(), 10)
    await system.models.delete("clicks")
    model = await system.model()
    assert model.mirror.replica.state.t == 0
    (result,) = await system.update(model)
    assert (result.status, result.probability) == ("learned", 0.5)


async def test_a_deleted_model_leaves_no_connection_open(system: System) -> None:
    async def one_life(name: str) -> None:
        await system.update(await system.model(name=name), wait=False)
        await system.models.delete(name)

    await one_life("first")
    await asyncio.sleep(0.6)
    before = len(await system.client.client_list())
    for i in range(10):
        await one_life(f"model-{i}")

    async def closed() -> bool:
        return len(await system.client.client_list()) <= before

    await until(closed, "the followers have noticed and closed their connections")
