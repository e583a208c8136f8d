"""A challenger learns its champion's log, with another configuration, once the champion has committed it."""

from __future__ import annotations

from typing import Any

from model_core.examples.batch import ExampleBatch
from model_core.learning.state import ModelState
from service.models.aliases import Aliases
from service.models.registry import OpenModel
from service.models.replica import Replica
from service.snapshots.restore.challenge import challenge
from service.snapshots.restore.rebuild import Rebuilt, rebuild
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import open_channel
from tests.support.snapshot_systems import catalogue
from tests.support.system import System, read_log, stored
from tests.support.waiting import until

EMPTY: dict[str, Any] = {"hyper": {"l1": 2.0}, "hashing": {"bits": 16}}


async def challenged(
    system: System, start: str | None = None, name: str = "b", champion: str = "clicks", **body: Any
) -> OpenModel:
    store = SnapshotStore(system.settings)
    models = system.models
    model, created = await challenge(models, Aliases(models), store, name, champion, start, body)
    assert created
    return model


async def caught_up(system: System, name: str = "b", champion: str = "clicks") -> Replica:
    """The challenger, once it has learned what its champion has."""

    async def as_far() -> Replica | None:
        replica, other = await stored(system.topology, name), await stored(system.topology, champion)
        return replica if replica.applied_number == other.applied_number else None

    return await until(as_far, f"{name} has learned what {champion} has")


async def learned_after(system: System, start: ModelState, number: int, replica: Replica) -> ModelState:
    """What one pass with the challenger's configuration makes of a state and the champion's log."""
    for entry in await read_log(system.topology, await stored(system.topology)):
        if number <= (entry.first_number or 0) and entry.id <= replica.applied:
            batch = ExampleBatch.from_records(entry.records)
            replica.config.learn(start, batch, entry.id.milliseconds)
    return start


async def rebuilt(system: System, name: str = "b") -> Rebuilt:
    async with open_channel(system.settings) as channel:
        return await rebuild(channel, catalogue(system, name), None)


async def test_one_that_begins_now_learns_what_comes(system: System, model: OpenModel) -> None:
    await challenged(system, "now", **EMPTY)
    await system.update(model, 40, start=60)
    replica = await caught_up(system)
    assert (replica.state.t, replica.applied_number, replica.config.hashing.bits) == (40, 100, 16)
    expected = await learned_after(system, replica.config.empty_state(), 60, replica)
    assert replica.state.digest() == expected.digest()
    result = await rebuilt(system)
    assert (result.start, result.examples, result.difference) == ("nothing", 40, "")


async def test_one_goes_on_from_the_state_of_its_champion(system: System, model: OpenModel) -> None:
    before = await stored(system.topology)
    challenger = await challenged(system, hyper={"l1": 2.0})
    assert challenger.mirror.replica.state.digest() == before.state.digest()
    await system.update(model, 40, start=60)
    replica = await caught_up(system)
    expected = await learned_after(system, before.state, 60, replica)
    assert (replica.state.t, replica.state.digest()) == (100, expected.digest())
    result = await rebuilt(system)
    assert (result.start, result.examples, result.difference) == (f"snapshot {result.start[9:]}", 40, "")


async def test_one_that_begins_with_the_log_learns_all_of_it(system: System, model: OpenModel) -> None:
    await challenged(system, "log", **EMPTY)
    replica = await caught_up(system)
    expected = await learned_after(system, replica.config.empty_state(), 0, replica)
    assert (replica.state.t, replica.state.digest()) == (60, expected.digest())
    assert (await rebuilt(system)).difference == ""
