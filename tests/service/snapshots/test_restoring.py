"""A snapshot becomes the state again: exactly, in one step, or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from model_core.examples.batch import ExampleBatch
from model_core.snapshot import unpack_fields
from service.errors import (
    AliasConflict,
    DamagedSnapshot,
    LogIncomplete,
    RestoreConflict,
    ServerFull,
    SnapshotMismatch,
    StateUnavailable,
    UnknownSnapshot,
)
from service.models.aliases import Aliases
from service.models.config.model import ModelConfig
from service.models.evaluation.state import Evaluations
from service.models.registry import OpenModel
from service.snapshots.store.objects import DirectoryStore
from tests.conftest import ServerFactory, SettingsFactory
from tests.support.proxy import Proxy
from tests.support.servers import ServerProcess
from tests.support.snapshot_systems import CONFIG, catalogue, learned_from, restored, take
from tests.support.system import System, assert_state_is_a_pass_over_the_log, checkpointed, examples, stored
from tests.support.waiting import until


@pytest.fixture
async def proxy(valkey: ServerProcess) -> AsyncIterator[Proxy]:
    async with Proxy(valkey.socket_path) as proxy:
        yield proxy


async def digest(system: System) -> str:
    return (await stored(system.topology)).state.digest()


async def base_of(system: System) -> tuple[str, str]:
    """The snapshot that the state began with, and the log entry after which it went on."""
    keys = (await stored(system.topology)).keys
    base, applied = await system.client.hmget(keys.meta, "base", "base_applied")
    assert isinstance(base, bytes)
    assert isinstance(applied, bytes)
    return base.decode(), applied.decode()


async def remove_from_log(system: System, model: OpenModel, after: str) -> None:
    """The entry that comes after this one."""
    log = model.mirror.replica.keys.log
    found = await system.client.xrange(log, f"({after}", "+", 1)
    assert found
    assert isinstance(found[0][0], bytes)
    await system.client.xdel(log, found[0][0])


async def assert_one_state_is_left(client: Redis) -> None:
    keys = [key async for key in client.scan_iter("*:state:*")]
    assert [await client.ttl(key) for key in keys] == [-1]


async def test_from_now_on_the_model_is_the_snapshot(system: System, model: OpenModel) -> None:
    taken, then = await take(system, model), await digest(system)
    await system.update(model, 40, start=60)
    later = await digest(system)
    result = await restored(system, taken["id"])
    after = await stored(system.topology)
    assert (after.state.digest(), after.state.t, after.generation) == (then, 60, 1)
    assert after.applied_number == 100
    assert (result.t, result.replayed) == (60, 0)
    before = catalogue(system).load(catalogue(system).find(str(result.before)))
    assert before.header.reason == "before restore"
    assert before.state().digest() == later
    await assert_one_state_is_left(system.client)


@pytest.mark.parametrize("replay_log", [False, True])
async def test_restoring_the_newest_is_repeatable_and_can_be_undone(
    system: System, model: OpenModel, replay_log: bool
) -> None:
    taken = await take(system, model)
    await system.update(model, 20, start=60)
    bad = await digest(system)
    first = await restored(system, replay_log=replay_log)
    good = await digest(system)
    again = await restored(system, replay_log=replay_log)
    assert (first.snapshot, again.snapshot) == (taken["id"], taken["id"])
    assert await digest(system) == good
    assert first.before is not None
    await restored(system, first.before)
    assert await digest(system) == bad
    await restored(system, replay_log=replay_log)
    assert await digest(system) == good


async def test_a_snapshot_saved_by_a_restore_is_never_the_newest(system: System, model: OpenModel) -> None:
    taken = await take(system, model)
    await restored(system)
    catalogue(system).delete(catalogue(system).find(taken["id"]))
    with pytest.raises(UnknownSnapshot, match="except those that restores may have saved"):
        await restored(system)


async def test_learning_and_predictions_go_on_from_the_snapshot(system: System, model: OpenModel) -> None:
    taken = await take(system, model)
    await system.update(model, 40, start=60)
    applied = (await stored(system.topology)).applied
    await restored(system, taken["id"])
    results = await system.update(model, 10, start=100)
    assert {one.status for one in results} == {"learned"}
    start = catalogue(system).load(catalogue(system).find(taken["id"])).state()
    expected = await learned_from(system, start, applied)
    assert await digest(system) == expected.digest()
    probe = ExampleBatch.from_encoded([examples(model, 1)[0].encoded])
    assert model.predict(probe)[0] == CONFIG.predict(expected, probe)[0]
    await until(lambda: b'ftrl_restores_total{model="clicks"} 1' in system.metrics.render())


async def test_with_the_log_the_model_is_as_if_nothing_had_happened(system: System, model: OpenModel) -> None:
    taken = await take(system, model)
    await system.update(model, 40, start=60)
    before = await digest(system)
    result = await restored(system, taken["id"], replay_log=True)
    assert (result.t, result.replayed) == (100, 40)
    assert await digest(system) == before
    await system.update(model, 10, start=100)
    await assert_state_is_a_pass_over_the_log(system.topology)


async def test_the_log_is_learned_again_with_other_hyperparameters(system: System, model: OpenModel) -> None:
    taken = await take(system, model)
    await system.update(model, 40, start=60)
    other = ModelConfig.from_json({"hyper": {"l1": 2.0}, "hashing": {"bits": 18}})
    await restored(system, taken["id"], replay_log=True, hyper=other.hyper)
    start = catalogue(system).load(catalogue(system).find(taken["id"])).state()
    expected = await learned_from(system, start, taken["applied"], other)
    assert await digest(system) == expected.digest()
    await system.update(model, 10, start=100)
    assert model.config == other
    start = catalogue(system).load(catalogue(system).find(taken["id"])).state()
    expected = await learned_from(system, start, taken["applied"], other)
    assert await digest(system) == expected.digest()


@pytest.mark.parametrize("replay_log", [False, True])
async def test_updates_during_a_restore_are_learned_exactly_once(
    system: System, model: OpenModel, replay_log: bool
) -> None:
    taken = await take(system, model)
    await system.update(model, 500, start=60)
    updating = asyncio.create_task(keep_updating(system, model, 560, 40))
    probing = asyncio.create_task(keep_predicting(model, updating))
    result = await restored(system, taken["id"], replay_log=replay_log)
    sent = await updating
    assert await probing > 0
    await until(lambda: model.mirror.replica.applied_number == 560 + sent)
    after = await stored(system.topology)
    base, base_applied = await base_of(system)
    start = catalogue(system).load(catalogue(system).find(taken["id"])).state()
    expected = await learned_from(system, start, base_applied)
    assert after.state.digest() == expected.digest()
    if replay_log:
        assert after.state.t == 560 + sent
        await assert_state_is_a_pass_over_the_log(system.topology)
    assert base == taken["id"] == result.snapshot


async def keep_updating(system: System, model: OpenModel, start: int, times: int) -> int:
    for i in range(times):
        for one in await system.update(model, 10, start=start + 10 * i):
            assert one.status == "learned"
    return 10 * times


async def keep_predicting(model: OpenModel, until: asyncio.Task[int]) -> int:
    """Every prediction is of one of the states, as the revision says; none fails."""
    probe, count = ExampleBatch.from_encoded([examples(model, 1)[0].encoded]), 0
    while not until.done():
        replica = model.mirror.replica
        assert model.predict(probe)[0] == replica.config.predict(replica.state, probe)[0]
        count += 1
        await asyncio.sleep(0.001)
    return count


async def test_of_two_concurrent_restores_one_is_refused(system: System, model: OpenModel) -> None:
    first, one = await take(system, model), await digest(system)
    await system.update(model, 40, start=60)
    second, two = await take(system, model), await digest(system)
    await system.update(model, 10, start=100)
    done = await asyncio.gather(
        restored(system, first["id"]), restored(system, second["id"]), return_exceptions=True
    )
    refused = [result for result in done if isinstance(result, RestoreConflict)]
    assert len(refused) == 1
    assert "restored, replaced or deleted meanwhile" in refused[0].detail
    assert await digest(system) == (two if done.index(refused[0]) == 0 else one)
    await assert_one_state_is_left(system.client)


async def test_the_next_learner_continues_from_a_restore(
    valkey: ServerProcess, make_settings: SettingsFactory, system: System, proxy: Proxy
) -> None:
    learning = system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 60)
    taken, then = await take(system, model), await digest(system)
    hold = proxy.hold("restore")
    restoring = asyncio.create_task(restored(system, taken["id"], url=proxy.url))
    await hold.reached.wait()
    learning.cancel()
    await asyncio.wait([learning])
    await system.update(model, 30, start=60, wait=False)
    hold.release()
    await restoring
    assert await digest(system) == then
    system.learn()
    await until(lambda: model.mirror.replica.applied_number == 90)
    start = catalogue(system).load(catalogue(system).find(taken["id"])).state()
    assert await digest(system) == (await learned_from(system, start, taken["applied"])).digest()


async def test_what_is_missing_in_the_log_is_named_and_nothing_changed(
    system: System, model: OpenModel
) -> None:
    taken = await take(system, model)
    await system.update(model, 10, start=60)
    await system.update(model, 10, start=70)
    before = await stored(system.topology)
    await remove_from_log(system, model, taken["applied"])
    with pytest.raises(LogIncomplete, match=r"does not hold example 60, the first that is missing"):
        await restored(system, taken["id"], replay_log=True)
    after = await stored(system.topology)
    assert (after.revision, after.state.digest()) == (before.revision, before.state.digest())
    assert len(catalogue(system).entries()) == 1


async def test_a_log_that_is_trimmed_while_it_is_replayed_is_noticed(
    system: System, model: OpenModel, proxy: Proxy
) -> None:
    taken = await take(system, model)
    await system.update(model, 10, start=60)
    hold = proxy.hold("restore")
    restoring = asyncio.create_task(restored(system, taken["id"], url=proxy.url, replay_log=True))
    await hold.reached.wait()
    await system.update(model, 10, start=70)
    await system.update(model, 10, start=80)
    before = await stored(system.topology)
    await system.client.xtrim(before.keys.log, maxlen=1, approximate=False)
    hold.release()
    with pytest.raises(LogIncomplete, match="trimmed meanwhile"):
        await restoring
    assert await digest(system) == before.state.digest()
    await checkpointed(system.topology)
    await assert_one_state_is_left(system.client)


async def test_a_snapshot_of_a_deleted_model_is_restored_without_its_log(
    system: System, model: OpenModel
) -> None:
    taken, then = await take(system, model), await digest(system)
    await system.models.delete("clicks")
    await system.model(CONFIG)
    with pytest.raises(LogIncomplete, match="was deleted, and its log with it"):
        await restored(system, taken["id"], replay_log=True)
    await restored(system, taken["id"])
    assert await digest(system) == then


async def test_a_model_that_is_gone_is_created_from_its_snapshot(system: System, model: OpenModel) -> None:
    taken, then = await take(system, model), await digest(system)
    await system.models.delete("clicks")
    with pytest.raises(LogIncomplete, match="no model 'clicks'"):
        await restored(system, taken["id"], replay_log=True)
    result = await restored(system, taken["id"])
    assert (result.before, result.t) == (None, 60)
    assert await digest(system) == then
    again = await system.models.get("clicks")
    await system.update(again, 5)
    assert (await stored(system.topology)).state.t == 65
    await assert_one_state_is_left(system.client)


async def test_a_model_is_not_created_under_the_name_of_an_alias(system: System, model: OpenModel) -> None:
    taken, _ = await take(system, model), await system.models.create("other", model.config)
    await system.models.delete("clicks")
    await Aliases(system.models).set("clicks", "other")
    with pytest.raises(AliasConflict, match="'clicks' is an alias"):
        await restored(system, taken["id"])
    assert await system.models.names() == ["other"]


OTHERS = [
    ({"hashing": {"bits": 17}}, "its weights would mean other features"),
    (
        {"hyper": {"family": "rda"}, "hashing": {"bits": 18}},
        "of the family 'ftrl', which keeps",
    ),
    ({"hashing": {"bits": 18, "prior_probability": 0.1}}, "would mean other probabilities"),
]


@pytest.mark.parametrize(("config", "why"), OTHERS)
async def test_a_snapshot_of_another_model_is_refused(
    system: System, model: OpenModel, config: dict[str, Any], why: str
) -> None:
    taken = await take(system, model)
    await system.models.delete("clicks")
    await system.model(ModelConfig.from_json(config))
    before = await stored(system.topology)
    with pytest.raises(SnapshotMismatch, match=why):
        await restored(system, taken["id"])
    after = await stored(system.topology)
    assert (after.revision, after.state.digest()) == (before.revision, before.state.digest())


async def test_other_hyperparameters_of_another_family_are_refused(system: System, model: OpenModel) -> None:
    taken = await take(system, model)
    other = ModelConfig.from_json({"hyper": {"family": "rda"}}).hyper
    with pytest.raises(SnapshotMismatch, match="family 'ftrl'"):
        await restored(system, taken["id"], replay_log=True, hyper=other)


async def test_a_damaged_snapshot_is_refused(system: System, model: OpenModel) -> None:
    taken = await take(system, model)
    store = DirectoryStore(system.settings.data_dir / "snapshots" / "clicks")
    name = f"{taken['id']}.safetensors.zst"
    with store.open(name) as file:
        content = bytearray(file.read())
    content[-200] ^= 1
    store.put(name, lambda file: file.write(content))
    with pytest.raises(DamagedSnapshot, match=taken["id"]):
        await restored(system, taken["id"])
    with pytest.raises(UnknownSnapshot):
        await restored(system, "good")


async def test_a_server_without_room_is_named_before_anything_is_done(
    server_factory: ServerFactory, make_settings: SettingsFactory
) -> None:
    server = server_factory(appendonly=False)
    async with System(make_settings(server)) as system:
        learning = system.learn()
        model = await system.model(CONFIG)
        await system.update(model, 2000)
        taken = await take(system, model)
        await checkpointed(system.topology)
        learning.cancel()
        await asyncio.wait([learning])
        used = (await system.client.info("memory"))["used_memory"]
        await system.client.config_set("maxmemory", used + 50_000)
        before = len(catalogue(system).entries())
        with pytest.raises(ServerFull, match="memory limit"):
            await restored(system, taken["id"])
        assert len(catalogue(system).entries()) == before
        await assert_one_state_is_left(system.client)


@pytest.mark.parametrize("verb", ["new_generation", "fill_state", "restore"])
async def test_a_lost_reply_changes_nothing_in_the_end(
    system: System, model: OpenModel, proxy: Proxy, verb: str
) -> None:
    taken, then = await take(system, model), await digest(system)
    await system.update(model, 40, start=60)
    lost = proxy.lose_reply(verb)
    await restored(system, taken["id"], url=proxy.url)
    assert lost.happened == 1
    assert await digest(system) == then
    await assert_one_state_is_left(system.client)


async def test_a_restore_with_unknown_outcome_is_reported_as_unknown(
    system: System, model: OpenModel, proxy: Proxy
) -> None:
    taken = await take(system, model)
    proxy.lose_request("restore", times=100)
    with pytest.raises(StateUnavailable, match="Whether the snapshot was restored is not known"):
        await restored(system, taken["id"], url=proxy.url, patience_seconds=0.2)


async def test_what_is_learned_again_is_not_evaluated_again(
    system: System, model: OpenModel, proxy: Proxy
) -> None:
    taken = await take(system, model)
    await system.update(model, 40, start=60)
    hold = proxy.hold("restore")
    restoring = asyncio.create_task(restored(system, taken["id"], url=proxy.url, replay_log=True))
    await hold.reached.wait()
    await system.update(model, 50, start=100)  # the learner will come to these once more
    hold.release()
    assert (await restoring).t == 100
    await system.update(model, 7, start=150)

    async def all_evaluated() -> bool:
        return await evaluated(system, model) >= 157

    await until(all_evaluated)
    assert await evaluated(system, model) == 157
    assert (await assert_state_is_a_pass_over_the_log(system.topology)).state.t == 157


async def evaluated(system: System, model: OpenModel) -> int:
    packed = await system.client.hget(model.mirror.replica.keys.evaluation, "figures")
    return int(json.loads(packed or "{}")["sources"]["progressive"]["windows"]["all"]["examples"])


async def test_the_state_saved_before_a_restore_is_consistent(system: System, model: OpenModel) -> None:
    taken = await take(system, model)
    updating = asyncio.create_task(keep_updating(system, model, 60, 60))
    done = [await restored(system, taken["id"]) for _ in range(4)]
    await updating
    for one in done:
        saved = catalogue(system).load(catalogue(system).find(str(one.before)))
        evaluations = Evaluations.from_fields(CONFIG.evaluation, unpack_fields(saved.evaluation))
        assert evaluations.progressive.figures("all").examples == saved.header.applied_number
