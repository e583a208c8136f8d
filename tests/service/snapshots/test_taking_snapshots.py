"""The learner takes snapshots by schedule, on request and at its end, and goes on learning meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest

from service.errors import NoLearner, StoreUnavailable
from service.models.registry import OpenModel
from service.snapshots.restore.create import clone
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.take.origin import ReplicaPosition, earlier_snapshots
from service.snapshots.take.requests import SnapshotRequest, request_snapshot
from service.snapshots.take.schedule import Schedule
from service.snapshots.take.snapshotter import Snapshotter
from service.storage.channel import open_channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import LogId
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.snapshot_systems import CONFIG, catalogue, restored, take
from tests.support.system import System, pass_over, read_log, stored
from tests.support.waiting import until


async def assert_equals_the_state(system: System) -> None:
    replica = await stored(system.topology)
    snapshot = catalogue(system).load(catalogue(system).find("newest"))
    assert snapshot.state().digest() == replica.state.digest()
    header = snapshot.header
    assert (header.generation, header.commit) == (replica.generation, replica.commit)
    assert (header.applied, header.applied_number) == (str(replica.applied), replica.applied_number)
    assert header.nonzero == replica.state.nonzero(replica.config.hyper)


async def test_a_requested_snapshot_is_the_current_state(system: System) -> None:
    system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 50)
    stored_figures = await figures_of(system, model, 50)
    taken = await take(system, model, "good")
    await assert_equals_the_state(system)
    assert (taken["t"], taken["tags"], taken["reason"]) == (50, ["good"], "request")
    assert taken["evaluation"]["sources"] == stored_figures["sources"]
    assert json.loads(json.dumps(taken)) == taken
    await system.update(model, 10, start=50)
    assert (await take(system, model))["t"] == 60
    assert [entry.tags for entry in catalogue(system).entries()] == [("good",), ()]


async def figures_of(system: System, model: OpenModel, t: int) -> dict[str, Any]:
    """Wait until the learner has published the figures of round t."""

    async def figures() -> dict[str, Any] | None:
        packed = await system.client.hget(model.mirror.replica.keys.evaluation, "figures")
        found: dict[str, Any] = json.loads(packed or "{}")
        return found if found.get("t") == t else None

    return await until(figures)


async def test_leading_again_cancels_the_earlier_lookup(
    system: System,
) -> None:
    model = await system.model(CONFIG)
    store = SnapshotStore(system.settings)
    snapshots = Snapshotter(system.topology, model.name, system.settings, store, system.metrics)
    before = asyncio.all_tasks()
    for _ in range(3):
        snapshots.lead(model.mirror.replica)
        await asyncio.sleep(0)
    await snapshots.close()
    await until(lambda: asyncio.all_tasks() <= before)


async def test_requests_at_once_share_a_snapshot(system: System) -> None:
    system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 5)
    keys = model.mirror.replica.keys
    requests = [SnapshotRequest(f"request-{k}", "request", None) for k in range(5)]
    await system.client.rpush(keys.snapshot_requests, *(request.packed() for request in requests))

    async def all_answered() -> bool:
        replies = [await system.client.llen(keys.snapshot_reply(request.id)) for request in requests]
        return replies == [1] * 5

    await until(all_answered)
    (only,) = catalogue(system).entries()
    replies = [await system.client.lrange(keys.snapshot_reply(request.id), 0, -1) for request in requests]
    assert [json.loads(reply)["id"] for (reply,) in replies] == [only.id] * 5


@pytest.mark.slow
async def test_snapshots_under_load_each_equal_a_pass_over_the_log(system: System) -> None:
    system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 1)
    loading = asyncio.create_task(keep_updating(system, model, 40))
    taken = [await take(system, model) for _ in range(4)]
    await loading
    entries = await read_log(system.topology, await stored(system.topology))
    for one in taken:
        snapshot = catalogue(system).load(catalogue(system).find(one["id"]))
        state = pass_over([e for e in entries if e.id <= LogId.parse(one["applied"])], CONFIG)
        assert snapshot.state().digest() == state.digest()


async def keep_updating(system: System, model: OpenModel, times: int) -> None:
    for i in range(times):
        await system.update(model, 20, start=20 * i)


async def test_snapshots_come_after_so_many_examples_and_the_oldest_go(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    settings = make_settings(valkey, snapshot_seconds=0, snapshot_examples=10, snapshots_kept=2)
    async with System(settings) as system:
        system.learn()
        model = await system.model(CONFIG)
        for i in range(4):
            await system.update(model, 10, start=10 * i)
            await until(lambda i=i: newest_t(system) == 10 * i + 10)  # type: ignore[misc]
        await until(lambda: len(catalogue(system).entries()) == 2)


def newest_t(system: System) -> int:
    entries = catalogue(system).entries()
    return catalogue(system).header(entries[-1]).t if entries else 0


async def test_snapshots_are_taken_at_intervals_if_anything_changed(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey, snapshot_seconds=0.1)) as system:
        system.learn()
        model = await system.model(CONFIG)
        await system.update(model, 10)
        await until(lambda: newest_t(system) == 10)
        await asyncio.sleep(0.6)
        assert len(catalogue(system).entries()) <= 2
        await system.update(model, 10, start=10)
        await until(lambda: newest_t(system) == 20)


async def test_leading_again_does_not_restart_the_interval(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey, snapshot_examples=1_000)) as system:
        system.learn()
        await system.update(await system.model(CONFIG), 10)
        replica = await stored(system.topology)
        by_time, by_examples = Schedule(system.settings), Schedule(system.settings)
        for schedule in (by_time, by_examples):
            schedule.begin(replica)
            assert not schedule.is_due(replica)
        by_time.count_from(system.settings.snapshot_seconds)
        later = replace(replica, applied_number=replica.applied_number + 1_000)
        by_examples.begin(later)
        by_time.begin(replica)
        assert by_time.is_due(replica)
        assert by_examples.is_due(later)


async def test_without_a_snapshot_the_oldest_example_counts(system: System) -> None:
    system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 10)
    replica = await stored(system.topology)
    async with open_channel(system.settings) as channel:
        ((entry, _),) = await channel.call("XRANGE", replica.keys.log, "-", "+", "COUNT", 1)
        found = await earlier_snapshots(channel, SnapshotStore(system.settings), ReplicaPosition.of(replica))
    assert (found.newest, found.saved) == (None, False)
    assert found.unsaved_since is not None
    assert round(found.unsaved_since.timestamp() * 1000) == LogId.parse(entry).milliseconds


async def test_a_learner_that_is_stopped_saves_what_it_learned_once(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey)) as system:
        system.learn()
        model = await system.model(CONFIG)
        await system.update(model, 30)
    async with System(make_settings(valkey)) as system:
        await assert_equals_the_state(system)
        (saved,) = catalogue(system).entries()
        snapshots = Snapshotter(
            system.topology, "clicks", system.settings, SnapshotStore(system.settings), system.metrics
        )
        snapshots.lead(await stored(system.topology))
        await until(lambda: snapshots.newest == saved.id)
        await snapshots.close()
        system.learn()
        model = await system.model(CONFIG)
        await take(system, model)
    assert reasons(system) == ["shutdown", "request"]


async def test_an_unchanged_clone_is_not_saved_again(system: System) -> None:
    learning = system.learn()
    await system.update(await system.model(CONFIG), 20)
    store, sparser = SnapshotStore(system.settings), {"hyper": {"l1": 3.0}}
    async with open_channel(system.settings) as channel:
        for name, changes in (("still", {}), ("learning", {}), ("sparser", sparser)):
            await clone(channel, store, "clicks", name, changes)
    for name in ("still", "learning", "sparser"):
        await led(system, name)
    await system.update(await system.models.get("learning"), 5)
    learning.cancel()
    await asyncio.wait([learning])
    assert reasons(system, "still") == ["clone of clicks"]
    assert reasons(system, "learning") == ["clone of clicks", "shutdown"]
    assert reasons(system, "sparser") == ["clone of clicks", "shutdown"], "no snapshot has its configuration"


async def test_an_unchanged_restored_model_is_not_saved_again(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey)) as system:
        system.learn()
        model = await system.model(CONFIG)
        await system.update(model, 20)
        taken = await take(system, model)
        await system.update(model, 5, start=20)
    await restored(system, taken["id"])
    async with System(make_settings(valkey)) as system:
        learning = system.learn()
        await led(system, "clicks")
        learning.cancel()
        await asyncio.wait([learning])
        assert reasons(system) == ["request", "shutdown", "before restore"]


async def led(system: System, model: str) -> None:
    """Returns when a learner leads it."""
    line = f'ftrl_learner_active{{model="{model}"}} 1.0'
    await until(lambda: line in system.metrics.render().decode())


def reasons(system: System, model: str = "clicks") -> list[str]:
    """Of all snapshots, oldest first."""
    kept = catalogue(system, model)
    return [kept.header(entry).reason for entry in kept.entries()]


async def test_a_learner_without_a_schedule_saves_nothing_at_its_end(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey, snapshot_seconds=0)) as system:
        system.learn()
        await system.update(await system.model(CONFIG), 30)
    assert catalogue(system).entries() == []


async def test_a_deleted_model_is_not_saved(system: System) -> None:
    system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 5)
    await system.models.delete("clicks")
    await until(lambda: b"ftrl_learner_active{" not in system.metrics.render())
    assert catalogue(system).entries() == []


@pytest.mark.slow
async def test_without_a_learner_a_request_fails(system: System) -> None:
    model = await system.model(CONFIG)
    with pytest.raises(NoLearner, match="No learner of model 'clicks' took the snapshot"):
        await take(system, model)
    assert not await system.client.exists(model.mirror.replica.keys.snapshot_requests)


@pytest.mark.slow
async def test_without_a_learner_a_request_fails_with_short_timeouts_too(system: System) -> None:
    keys = (await system.model(CONFIG)).mirror.replica.keys
    impatient = system.settings.model_copy(
        update={"redis_timeout_seconds": 1.0}
    )  # as long as a request may block
    async with asyncio.timeout(60), open_channel(impatient) as channel:
        refused = False
        while not refused:
            with contextlib.suppress(*CONNECTION_FAILURES):  # of a busy machine
                with pytest.raises(NoLearner):
                    await request_snapshot(channel, keys, "request")
                refused = True


async def test_a_failing_store_is_reported_and_learning_continues(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    settings = make_settings(valkey)
    settings.data_dir.mkdir()
    (settings.data_dir / "snapshots").write_text("no directory")
    async with System(settings) as system:
        system.learn()
        model = await system.model(CONFIG)
        await system.update(model, 5)
        with pytest.raises(StoreUnavailable, match="snapshot store"):
            await take(system, model)
        assert b'ftrl_snapshot_failures_total{model="clicks",reason="store"} 1' in system.metrics.render()
        await system.update(model, 5, start=5)
        assert (await stored(system.topology)).state.t == 10


async def test_the_metrics_describe_the_newest_snapshot(system: System) -> None:
    system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 5)
    taken = await take(system, model)
    text = system.metrics.render().decode()
    assert f'ftrl_snapshot_bytes{{model="clicks"}} {float(taken["bytes"])}' in text
    assert f'ftrl_snapshot_slots{{model="clicks"}} {float(taken["features_seen"] + 1)}' in text
    assert 'ftrl_snapshot_duration_seconds_count{model="clicks"} 1' in text
    assert 'ftrl_snapshot_success_timestamp_seconds{model="clicks"}' in text
