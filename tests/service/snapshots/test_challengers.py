"""A challenger learns its champion's log, with another configuration, once the champion has committed it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from model_core.errors import FormatError
from model_core.evaluation.comparison import PairedComparison
from model_core.examples.batch import ExampleBatch
from model_core.learning.state import ModelState
from service.example_log.inspect import skip_through
from service.learning.learner import learn_model
from service.models.aliases import Aliases
from service.models.challengers import forget_follower, report_follower
from service.models.evaluation.comparison import Comparison
from service.models.registry import OpenModel
from service.models.replica import Replica
from service.snapshots.restore.challenge import challenge
from service.snapshots.restore.rebuild import Rebuilt, rebuild
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import open_channel
from service.storage.records import LOG_START, Follower, meta_key
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.snapshot_systems import CONFIG, catalogue, restored, take
from tests.support.system import System, read_log, stored, stored_evaluation
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
            batch = ExampleBatch.from_bytes(entry.records)
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


async def first_in_log(system: System) -> int:
    entries = await read_log(system.topology, await stored(system.topology))
    return entries[0].first_number or 0


@pytest.mark.parametrize("held_bytes", [1 << 28, 0])
async def test_the_log_is_kept_for_a_challenger_within_a_bound(
    valkey: ServerProcess, make_settings: SettingsFactory, held_bytes: int
) -> None:
    """One that has stopped learning, and has reported that lately."""
    limits = {"log_retention_seconds": 0, "log_retention_bytes": 0, "followers_log_bytes": held_bytes}
    async with System(make_settings(valkey, **limits)) as system:
        model = await system.model(CONFIG)
        keys = model.mirror.replica.keys
        async with open_channel(system.settings) as channel:
            stopped = Follower("0" * 16, LOG_START, channel.clock.milliseconds())
            await report_follower(channel, keys, "stopped", stopped)
            system.learn()
            for start in range(0, 1000, 100):
                await system.update(model, 100, start=start)
            is_kept = held_bytes > 0
            assert (await first_in_log(system) == 0) is is_kept
            await forget_follower(channel, keys, "stopped")

            async def is_trimmed() -> bool:
                await system.update(model, 100)
                return await first_in_log(system) > 0

            await until(is_trimmed, "the log is trimmed")


async def ended(learners: asyncio.Task[Replica | None]) -> None:
    learners.cancel()
    await asyncio.wait([learners])


@contextlib.asynccontextmanager
async def only_the_champion_learns(system: System) -> AsyncIterator[None]:
    settings, store = system.settings, SnapshotStore(system.settings)
    learning = learn_model(
        system.topology, "clicks", settings, system.health, system.metrics, store, "holder"
    )
    task = asyncio.create_task(learning)
    try:
        yield
    finally:
        await ended(task)


async def learning_pair(
    system: System, start: str | None = None, **body: Any
) -> tuple[OpenModel, asyncio.Task[None]]:
    """A champion with a challenger that has learned as much, and what runs their learners."""
    learners = system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 60)
    await challenged(system, start, **body)
    await caught_up(system)
    return model, learners


async def test_one_that_is_cut_off_starts_again_from_its_champion(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    model, learners = await learning_pair(system, hyper={"l1": 2.0})
    before = await stored(system.topology, "b")
    await ended(learners)
    async with only_the_champion_learns(system):
        await system.update(model, 30, start=60)
        await system.update(model, 30, start=90)
    await system.client.xtrim(model.mirror.replica.keys.log, maxlen=1, approximate=False)
    champion = await stored(system.topology)
    system.learn()
    replica = await caught_up(system)
    assert (replica.generation, replica.state.t) == (before.generation + 1, 120)
    assert replica.state.digest() == champion.state.digest()
    assert replica.config.canonical() == before.config.canonical()
    assert "challenger b of clicks starts again (cut_off)" in caplog.text
    await system.update(model, 30, start=120)
    await caught_up(system)
    result = await rebuilt(system)
    assert (result.examples, result.difference) == (30, "")


async def test_one_whose_champion_has_another_log_than_it_learned_starts_again(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    _, learners = await learning_pair(system, **EMPTY)
    await ended(learners)
    await system.client.hset(meta_key("b"), "learned_digest", "0" * 40)
    system.learn()

    async def has_started_again() -> bool:
        return (await stored(system.topology, "b")).generation == 1

    await until(has_started_again)
    replica = await caught_up(system)
    assert (replica.state.t, replica.state.features_seen) == (0, 0)
    assert "challenger b of clicks starts again (lost)" in caplog.text


async def test_what_an_operator_skips_is_skipped_by_all(system: System) -> None:
    model, learners = await learning_pair(system, "log", **EMPTY)
    await ended(learners)
    keys = model.mirror.replica.keys
    await system.update(model, 10, start=60, wait=False)
    await system.client.xadd(keys.log, {"foreign": "entry"})
    *_, foreign = await read_log(system.topology, await stored(system.topology))
    async with open_channel(system.settings) as channel:
        await skip_through(channel, "clicks", str(foreign.id))
    system.learn()
    await system.update(model, 40, start=70)
    replica = await caught_up(system)
    assert (replica.state.t, replica.applied_number) == (100, 110)
    assert (await rebuilt(system)).difference == ""
    assert (await rebuilt(system, "clicks")).difference == ""


async def test_a_restored_champion_is_followed_on(system: System) -> None:
    model, _ = await learning_pair(system, **EMPTY)
    snapshot = (await take(system, model))["id"]
    await system.update(model, 20, start=60)
    await caught_up(system)
    await restored(system, snapshot, replay_log=True)
    await system.update(model, 20, start=80)
    replica = await caught_up(system)
    assert (replica.generation, replica.applied_number) == (0, 100)
    assert (await rebuilt(system)).difference == ""


async def compared(system: System, name: str = "b") -> Comparison:
    """The stored comparison."""
    evaluations = await stored_evaluation(system.topology, await stored(system.topology, name))
    assert evaluations.comparison is not None
    return evaluations.comparison


async def test_it_is_compared_with_its_champion_on_what_both_predicted_before_they_learned(
    system: System, model: OpenModel
) -> None:
    champions_state = (await stored(system.topology)).state
    await challenged(system, "now", **EMPTY)
    await system.update(model, 10, start=60)
    await caught_up(system)  # its learner may begin only now
    for count, start in ((90, 70), (70, 160)):
        await system.update(model, count, start=start)
    challenger = await caught_up(system)
    found, expected = await compared(system), PairedComparison()
    champion = await stored(system.topology)
    states = champions_state, challenger.config.empty_state()
    first = 230 - found.paired.figures().pairs
    for entry in await read_log(system.topology, champion):
        batch, number, time = (
            ExampleBatch.from_bytes(entry.records),
            entry.first_number or 0,
            entry.id.milliseconds,
        )
        if number >= 60:
            ours, theirs = (
                replica.config.learn(state, batch, time).margins
                for replica, state in zip((champion, challenger), states, strict=True)
            )
            if number >= first:
                expected.add(ours, theirs, batch, time)
    assert found.paired.to_bytes() == expected.to_bytes()
    assert found.compared == (champion.generation, challenger.generation)
    assert first in (60, 70)


async def test_a_comparison_goes_on_after_a_restart_and_begins_again_after_a_restore(system: System) -> None:
    learning = system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 60)
    first = await take(system, model)
    await challenged(system, **EMPTY)
    for start in (60, 70):
        await system.update(model, 10 if start == 60 else 40, start=start)
        await caught_up(system)
    before = await compared(system)
    learning.cancel()
    await asyncio.wait([learning])
    system.learn()
    await system.update(model, 40, start=110)
    await caught_up(system)
    pairs, figures = before.paired.figures().pairs, (await compared(system)).paired.figures()
    assert pairs in (40, 50)
    assert figures.pairs + figures.unpaired == pairs + 40
    await restored(system, first["id"])
    await system.update(model, 30, start=150)

    await caught_up(system)
    await system.update(model, 30, start=180)
    await caught_up(system)
    again = await compared(system)
    assert again.compared != before.compared
    assert again.paired.figures().pairs in (30, 60)


def test_a_stored_comparison_that_is_damaged_is_refused() -> None:
    for stored_bytes in (b"", b"\1" * 16, b"\0" * 17):
        with pytest.raises(FormatError, match="not a comparison"):
            Comparison.parse(stored_bytes)
