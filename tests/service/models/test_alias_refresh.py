"""What a process makes of aliases that others change while it cannot load every model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from service.errors import ContractMismatch, StateUnavailable, UnknownModel
from service.models.alias_store import read_aliases
from service.models.aliases import Aliases
from service.models.config.model import ModelConfig
from service.models.registry import Models
from service.storage.channel import Channel
from service.storage.records import ALIASES, meta_key
from service.storage.topology import connect
from tests.conftest import SettingsFactory
from tests.support.proxy import Proxy
from tests.support.servers import ServerProcess
from tests.support.system import System
from tests.support.waiting import until

SMALL = ModelConfig.from_json({"hashing": {"bits": 12}})


@pytest.fixture
async def system(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[System]:
    async with System(make_settings(valkey, redis_timeout_seconds=30, lease_seconds=120)) as system:
        for name in ("one", "two", "broken"):
            await system.model(SMALL, name)
        yield system


@pytest.fixture
async def models(system: System) -> AsyncIterator[Models]:
    """Of another process."""
    models = Models(system.topology, system.settings)
    yield models
    await models.close()


async def test_an_unloadable_model_does_not_stop_the_refresh_of_others(
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
    await asyncio.gather(*await there.refresh())
    assert [(await there.open(alias)).name for alias in ("test", "new")] == ["two", "two"]
    assert (await there.open("live")).name == "one", "it answers until the other one can"
    with pytest.raises(StateUnavailable, match="'broken'"):
        await there.open("new-too")
    await channel.call("DEL", state)
    await asyncio.gather(*await there.refresh())
    assert [(await there.open(alias)).name for alias in ("live", "new-too")] == ["broken", "broken"]


async def test_a_new_alias_does_not_wait_for_models_of_other_aliases(
    system: System, channel: Channel, models: Models
) -> None:
    here, there = Aliases(system.models), Aliases(models)
    await here.set("live", "one")
    await here.set("other", "two")
    assert (await there.open("live")).name == "one"
    assert [model.name for model in models.opened()] == ["one"]
    await asyncio.gather(*await there.refresh())
    assert sorted(model.name for model in models.opened()) == ["one", "two"]


async def test_without_its_former_model_an_alias_loads_the_new_or_says_why(
    system: System, channel: Channel, valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    settings = make_settings(valkey, redis_timeout_seconds=4)  # half of it until it sees that one is gone
    topology = connect(settings, valkey.url)
    models = Models(topology, settings)
    here, there = Aliases(system.models), Aliases(models)
    await here.set("live", "one")
    assert (await there.open("live")).name == "one"
    state = system.models.opened()[2].mirror.replica.keys.state(0)
    await channel.call("SET", state, "nothing that can be loaded")
    await here.set("live", "broken")
    await system.models.delete("one")
    await until(lambda: not models.opened())
    with pytest.raises(StateUnavailable, match="'broken'"):
        await there.open("live")
    await channel.call("DEL", state)
    assert (await there.open("live")).name == "broken"
    assert there.resolve("live") == "broken"
    await models.close()
    await topology.close()


async def test_while_one_model_is_being_loaded_other_aliases_are_switched(
    system: System, valkey: ServerProcess
) -> None:
    here = Aliases(system.models)
    for alias, model in (("live", "one"), ("test", "one"), ("else", "two")):
        await here.set(alias, model)
    async with Proxy(valkey.socket_path) as proxy:
        topology = connect(system.settings, proxy.url)
        models = Models(topology, system.settings)
        there = Aliases(models)
        assert [(await there.open(alias)).name for alias in ("live", "else")] == ["one", "two"]
        held = proxy.hold("HSCAN")
        await here.set("test", "broken")
        loads = await there.refresh()
        await asyncio.wait_for(held.reached.wait(), 30)
        await here.set("live", "two")
        assert await there.refresh() == loads, "it is not loaded twice"
        assert [there.resolve(alias) for alias in ("live", "test")] == ["two", "one"]
        proxy.behave()
        await asyncio.gather(*loads)
        assert there.resolve("test") == "broken"
        await models.close()
        await topology.close()


async def test_a_longer_window_of_a_former_model_changes_the_aliases(
    system: System, channel: Channel
) -> None:
    here = Aliases(system.models)
    for model in ("one", "two"):
        await here.set("live", model)
    before = (await read_aliases(channel)).changes
    await here.remember_former("one", 3600.0)
    assert (await read_aliases(channel)).changes != before, "a switch at the same time is refused"


async def test_former_models_are_in_the_order_of_the_switches(system: System, channel: Channel) -> None:
    here = Aliases(system.models)
    for model in ("two", "one", "broken"):
        await here.set("live", model)
    until = int(await channel.call("HGET", ALIASES, "live/one"))
    await channel.call("HSET", ALIASES, "live/two", until - 10)  # as if the switches were further apart
    await here.refresh()
    newest, middle = await here.open("live"), await system.models.get("one")
    assert here.former("live", newest) == here.switched("live", newest) == ["two", "one"]
    assert (here.former("live", middle), here.switched("live", middle)) == (["two"], ["two", "broken"])
    assert here.former("one", middle) == here.switched("one", middle) == []


async def test_a_missing_or_unreadable_model_of_an_alias_is_reported(
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
    await asyncio.gather(*await there.refresh())
    with pytest.raises(UnknownModel, match="'two'"):
        await there.open("live")
    with pytest.raises(ContractMismatch):
        await there.open("test")


async def test_an_unloadable_model_of_an_alias_is_asked_for_predictions(
    system: System, channel: Channel, models: Models
) -> None:
    here, there = Aliases(system.models), Aliases(models)
    await here.set("live", "one")
    asked = await there.open("live")
    state = system.models.opened()[2].mirror.replica.keys.state(0)
    await channel.call("SET", state, "nothing that can be loaded")
    await here.set("live", "broken")
    with pytest.raises(StateUnavailable, match="'broken'"):  # and not that the prediction is unknown
        _ = [model async for model in there.elsewhere("live", asked, time.monotonic() + 30)]
    await channel.call("HSET", meta_key("broken"), "format", 1_000)
    assert [model async for model in there.elsewhere("live", asked, time.monotonic() + 30)] == []


async def test_an_unreadable_former_model_has_no_predictions(
    system: System, channel: Channel, models: Models
) -> None:
    here = Aliases(system.models)
    for model in ("one", "broken", "two"):
        await here.set("live", model)
    await channel.call("HSET", meta_key("broken"), "format", 1_000)
    there = Aliases(models)
    asked = await there.open("live")
    assert [model.name async for model in there.elsewhere("live", asked, time.monotonic() + 30)] == ["one"]
