"""What a process makes of aliases that others change while it cannot load every model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from service.aliases import Aliases
from service.errors import ContractMismatch, StateUnavailable, UnknownModel
from service.model_config import ModelConfig
from service.models import Models
from service.redis_client import Channel
from service.redis_keys import meta_key
from tests.conftest import SettingsFactory
from tests.servers import ServerProcess
from tests.system import System

SMALL = ModelConfig.from_json({"hashing": {"bits": 12}})


@pytest.fixture
async def system(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[System]:
    async with System(make_settings(valkey, redis_timeout_seconds=30, lease_seconds=120)) as system:
        for name in ("one", "two", "broken"):
            await system.model(SMALL, name)
        yield system


@pytest.fixture
async def channel(system: System) -> AsyncIterator[Channel]:
    channel = Channel(system.client)
    yield channel
    await channel.close()


@pytest.fixture
async def models(system: System) -> AsyncIterator[Models]:
    """Of another process."""
    models = Models(system.client, system.settings)
    yield models
    await models.close()


async def test_while_one_model_cannot_be_loaded_the_other_aliases_are_refreshed(
    system: System, channel: Channel, models: Models
) -> None:
    here, there = Aliases(system.models), Aliases(models)
    for alias in ("live", "test"):
        await here.set(alias, "one")
    assert (await there.open("live")).name == "one"
    state = system.models.opened()[2].mirror.replica.keys.state(0)
    await channel.call("SET", state, "nothing that can be loaded")
    await here.set("live", "broken")
    await here.set("test", "two")
    await here.set("new", "two")
    await here.set("new-too", "broken")
    await there.refresh()
    assert [(await there.open(alias)).name for alias in ("test", "new")] == ["two", "two"]
    assert (await there.open("live")).name == "one", "it answers until the other one can"
    with pytest.raises(StateUnavailable, match="'broken'"):
        await there.open("new-too")
    await channel.call("DEL", state)
    await there.refresh()
    assert [(await there.open(alias)).name for alias in ("live", "new-too")] == ["broken", "broken"]


async def test_who_asks_for_a_new_alias_does_not_wait_for_the_models_of_others(
    system: System, channel: Channel, models: Models
) -> None:
    here, there = Aliases(system.models), Aliases(models)
    await here.set("live", "one")
    await here.set("other", "two")
    assert (await there.open("live")).name == "one"
    assert [model.name for model in models.opened()] == ["one"]
    await there.refresh()
    assert sorted(model.name for model in models.opened()) == ["one", "two"]


async def test_an_alias_of_a_model_that_is_gone_or_unreadable_is_told_as_such_and_not_as_the_one_before(
    system: System, channel: Channel, models: Models
) -> None:
    here, there = Aliases(system.models), Aliases(models)
    for alias in ("live", "test"):
        await here.set(alias, "one")
    assert (await there.open("live")).name == "one"
    await here.set("live", "two")
    await here.set("test", "broken")
    await system.models.delete("two")
    await channel.call("HSET", meta_key("broken"), "format", 1_000)
    await there.refresh()
    with pytest.raises(UnknownModel, match="'two'"):
        await there.open("live")
    with pytest.raises(ContractMismatch):
        await there.open("test")


async def test_a_process_that_cannot_load_what_an_alias_means_by_now_asks_it_nevertheless_for_predictions(
    system: System, channel: Channel, models: Models
) -> None:
    here, there = Aliases(system.models), Aliases(models)
    await here.set("live", "one")
    asked = await there.open("live")
    state = system.models.opened()[2].mirror.replica.keys.state(0)
    await channel.call("SET", state, "nothing that can be loaded")
    await here.set("live", "broken")
    with pytest.raises(StateUnavailable, match="'broken'"):  # and not that nobody knows the prediction
        _ = [model async for model in there.elsewhere("live", asked)]
    await channel.call("HSET", meta_key("broken"), "format", 1_000)
    assert [model async for model in there.elsewhere("live", asked)] == []


async def test_a_former_model_that_this_version_cannot_read_knows_no_prediction(
    system: System, channel: Channel, models: Models
) -> None:
    here = Aliases(system.models)
    for model in ("one", "broken", "two"):
        await here.set("live", model)
    await channel.call("HSET", meta_key("broken"), "format", 1_000)
    there = Aliases(models)
    asked = await there.open("live")
    assert [model.name async for model in there.elsewhere("live", asked)] == ["one"]
