"""A name belongs to a model or to an alias, also under concurrency and if a process is killed midway."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from model_core.learning.state import ModelState
from service.errors import AliasConflict, ContractMismatch, ModelConflict, UnknownModel
from service.models.alias_store import read_aliases, take_back_claim
from service.models.aliases import Aliases, UnknownAlias
from service.models.config.model import ModelConfig
from service.models.registry import Models, OpenModel
from service.snapshots.restore.create import clone, create_filled
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import Argument, Channel
from service.storage.records import ALIASES, alias_key, meta_key
from service.storage.scripts.aliases import claim_alias
from service.storage.scripts.models import Creation, create_model
from tests.conftest import SettingsFactory
from tests.support.commands import run
from tests.support.servers import ServerProcess
from tests.support.system import System

SMALL = ModelConfig.from_json({"hashing": {"bits": 12}})
ROUNDS = 60


@pytest.fixture
async def system(
    valkey: ServerProcess, make_settings: SettingsFactory, tmp_path: Path
) -> AsyncIterator[System]:
    async with System(
        make_settings(
            valkey, snapshots=str(tmp_path / "snapshots"), redis_timeout_seconds=30, lease_seconds=120
        )
    ) as system:
        yield system


async def is_both(channel: Channel, name: str) -> bool:
    is_model = await channel.call("EXISTS", meta_key(name))
    return bool(is_model) and name in (await read_aliases(channel)).targets


async def test_an_alias_and_a_model_of_one_name_are_never_made_at_once(
    system: System, channel: Channel
) -> None:
    await system.model(SMALL, "source")
    processes = [Aliases(system.models) for _ in range(3)]
    store = SnapshotStore(system.settings)

    async def as_clone(name: str) -> None:
        errand = Channel(system.topology)
        try:
            await clone(errand, store, "source", name, {})
        finally:
            await errand.close()

    made = dict.fromkeys(("alias", "model"), 0)
    for number in range(ROUNDS):
        name = f"name-{number}"
        attempts: list[Callable[[], Awaitable[object]]] = [
            lambda name=name: system.models.create(name, SMALL),  # type: ignore[misc]
            lambda name=name: as_clone(name),  # type: ignore[misc]
            *(lambda name=name, one=one: one.set(name, "source") for one in processes),
        ]
        random.shuffle(attempts)
        outcomes = await asyncio.gather(*(attempt() for attempt in attempts), return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert all(getattr(one, "status", 0) == 409 for one in refused), refused
        assert not await is_both(channel, name)
        made["alias" if name in (await read_aliases(channel)).targets else "model"] += 1
    assert sum(made.values()) == ROUNDS


@pytest.mark.slow
async def test_concurrent_models_and_aliases_of_one_name_never_coexist(
    system: System, channel: Channel
) -> None:
    await system.model(SMALL, "source")
    expected = (AliasConflict, ModelConflict, UnknownAlias, UnknownModel)
    both: list[str] = []

    async def of_alias() -> None:
        aliases = Aliases(system.models)
        for _ in range(ROUNDS):
            for attempt in (aliases.set("name", "source"), aliases.remove("name")):
                (refused,) = await asyncio.gather(attempt, return_exceptions=True)
                assert refused is None or isinstance(refused, expected), refused

    async def of_model() -> None:
        for _ in range(ROUNDS):
            made = await asyncio.gather(create_bare(system, "name"), return_exceptions=True)
            if made[0] is True and await is_both(channel_of_model, "name"):
                both.append("name")
            (gone,) = await asyncio.gather(system.models.delete("name"), return_exceptions=True)
            assert gone is None or isinstance(gone, expected), gone

    channel_of_model = Channel(system.topology)
    await asyncio.gather(of_model(), *(of_alias() for _ in range(4)))
    await channel_of_model.close()
    assert not both
    assert await channel.call("EXISTS", alias_key("name")) == 0, "no claim is left behind"


async def create_bare(system: System, name: str) -> bool:
    channel = Channel(system.topology)
    try:
        return await create_filled(channel, name, SMALL, ModelState.empty(12), "")
    finally:
        await channel.close()


@pytest.mark.parametrize("way", ["empty", "filled"])
async def test_a_claim_left_by_a_killed_process_gives_way_to_a_model(
    system: System, channel: Channel, way: str
) -> None:
    assert await claim_alias(channel, "name", "of a killed process")
    if way == "empty":
        assert (await system.models.create("name", SMALL))[1]
    else:
        assert await create_bare(system, "name")
    assert await channel.call("EXISTS", alias_key("name")) == 0


async def test_a_late_claim_is_refused_because_the_name_is_a_model(system: System, channel: Channel) -> None:
    """What switch_alias does, with a model made between its two steps."""
    await system.model(SMALL, "source")
    before = (await read_aliases(channel)).changes
    await claim_alias(channel, "name", "a token")
    await system.models.create("name", SMALL)
    assert (await read_aliases(channel)).changes != before, "so the second step is refused, and starts again"
    with pytest.raises(AliasConflict, match="'name' is a model"):
        await Aliases(system.models).set("name", "source")


class Interrupted(Channel):
    """Lets another process act after its first call."""

    def __init__(self, system: System, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(system.topology)
        self._meanwhile = [meanwhile]

    async def call(self, *command: Argument) -> Any:
        reply = await super().call(*command)
        while self._meanwhile:
            await self._meanwhile.pop()()
        return reply


async def test_taking_back_a_claim_leaves_an_alias_made_meanwhile(system: System) -> None:
    await system.model(SMALL, "source")
    aliases = Aliases(system.models)
    interrupted = Interrupted(system, lambda: aliases.set("name", "source"))
    with pytest.raises(AliasConflict, match="'name' is an alias of model 'source'"):
        await take_back_claim(interrupted, "name")
    await interrupted.close()
    assert await aliases.all() == {"name": "source"}


async def test_an_alias_of_an_unreadable_model_does_not_affect_others(
    system: System, channel: Channel
) -> None:
    for alias, model in (("live", "source"), ("of-later", "later")):
        await system.model(SMALL, model)
        await Aliases(system.models).set(alias, model)
    await channel.call("HSET", meta_key("later"), "format", 1_000)
    restarted = Models(system.topology, system.settings)
    aliases = Aliases(restarted)
    assert (await aliases.open("live")).name == "source"
    with pytest.raises(ContractMismatch):
        await aliases.open("of-later")
    await restarted.close()


@pytest.mark.parametrize(
    "words",
    ["snapshot create", "snapshot restore newest --from-now", "rebuild"],
)
async def test_a_command_that_needs_a_model_says_which_one_an_alias_means(system: System, words: str) -> None:
    await system.model(SMALL, "source")
    await Aliases(system.models).set("live", "source")
    url = str(system.settings.redis_url)
    done = await asyncio.to_thread(run, *words.split(), "--model", "live", "--redis-url", url)
    assert done.returncode == 1
    assert "'live' is an alias of model 'source', and nothing was done: name the model" in done.stderr


async def test_an_alias_of_before_there_were_claims_is_one_all_the_same(
    system: System, channel: Channel
) -> None:
    model: OpenModel = await system.model(SMALL, "source")
    await channel.call("HSET", ALIASES, "live", model.name)
    aliases = Aliases(system.models)
    with pytest.raises(AliasConflict, match="'live' is an alias of model 'source'"):
        await system.models.create("live", SMALL)
    await aliases.set("live", "source")
    assert await channel.call("EXISTS", alias_key("live")) == 1
    await aliases.remove("live")
    assert await aliases.all() == {}
    assert await create_model(channel, "live", {"incarnation": "x"}) is Creation.CREATED
