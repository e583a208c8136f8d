"""A model that forgets, or a mixture, is a pass over its log, whatever was restarted, restored or copied."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from model_core.examples.batch import ExampleBatch
from model_core.learning.state import Discount, Mixture
from service.example_log.incoming import NewExamples
from service.models.bulk_load import bulk_load
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from service.models.replica import Replica
from service.settings import Settings
from service.snapshots.export import export
from service.snapshots.restore.create import clone
from service.snapshots.restore.rebuild import Rebuilt, rebuild
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import open_channel
from service.storage.records import LOG_START, changed_records, stored_rows
from service.storage.scripts.commit import write_behind
from service.storage.streams import read_stream
from tests.conftest import SettingsFactory
from tests.support.commands import run
from tests.support.servers import ServerProcess
from tests.support.snapshot_systems import catalogue, learned_from, restored, take
from tests.support.system import (
    System,
    assert_state_is_a_pass_over_the_log,
    checkpointed,
    examples,
    stored,
)
from tests.support.waiting import until

FIRST = 1_600_000_000_000


def mixture(experts: list[dict[str, float]]) -> dict[str, Any]:
    return {"rate": {"kind": "mixture", "experts": experts}}


def with_half_life(config: ModelConfig, examples: float | None) -> dict[str, Any]:
    """Changes to `hyper`: another half-life, for the first expert of a mixture."""
    half_life = {} if examples is None else {"half_life_examples": examples}
    count = config.hyper.number_of_experts
    if count == 1:
        return {"forgetting": half_life or None}
    drops = config.hyper.drop_below if half_life else None
    return mixture([SLOW | half_life, *[SLOW] * (count - 1)]) | {"drop_below": drops}


SLOW = {"alpha": 0.1, "l1": 0.01}
HYPERS: dict[str, dict[str, Any]] = {
    "seconds": {"l1": 0.01, "forgetting": {"half_life_seconds": 10.0}},
    "examples": {"l1": 0.01, "forgetting": {"half_life_examples": 2.0}},
    "mixture-of-3": mixture([SLOW | {"half_life_seconds": 10.0}, SLOW, {"half_life_seconds": 500.0}]),
    "dropping": mixture([SLOW, SLOW | {"half_life_seconds": 50.0}]) | {"drop_below": 1e-3},
    "mixture-of-8": mixture([{"alpha": 0.3, "half_life_examples": 2.0}] * 3 + [SLOW] * 5),
}


def config_of(hyper: dict[str, Any]) -> ModelConfig:
    return ModelConfig.from_json({"hyper": hyper, "hashing": {"bits": 10 if "drop_below" in hyper else 14}})


@pytest.fixture(params=HYPERS)
def config(request: pytest.FixtureRequest) -> ModelConfig:
    return config_of(HYPERS[request.param])


@pytest.fixture
def settings(valkey: ServerProcess, make_settings: SettingsFactory) -> Settings:
    return make_settings(valkey)


@pytest.fixture
async def system(settings: Settings) -> AsyncIterator[System]:
    async with System(settings) as system:
        system.learn()
        yield system


@pytest.fixture
async def model(system: System, config: ModelConfig) -> OpenModel:
    return await system.model(config)


async def update(system: System, model: OpenModel, start: int, count: int = 40, wait: bool = True) -> None:
    """Examples 25 s apart, some of them late: rows are folded every 80 of them, or every 400."""
    made = [
        one._replace(event_time_ms=FIRST + 25_000 * (start + i) - (90_000 if i % 7 == 0 else 0))
        for i, one in enumerate(examples(model, count, start))
    ]
    await system.submit(model, NewExamples.of(made), wait)


async def rebuilt(system: System, wanted: str | None = None, model: str = "clicks") -> Rebuilt:
    async with open_channel(system.settings) as channel:
        return await rebuild(channel, catalogue(system, model), wanted)


async def learn_beyond_a_fold(system: System, model: OpenModel, start: int = 0) -> None:
    for part in range(start, start + 480, 40):
        await update(system, model, part)
    assert (await stored(system.topology)).state.discount.folded


async def test_the_state_is_a_pass_over_the_log(system: System, model: OpenModel) -> None:
    await learn_beyond_a_fold(system, model)
    replica = await assert_state_is_a_pass_over_the_log(system.topology)
    mirrored = model.mirror.replica.state
    await until(lambda: mirrored.t == replica.state.t)
    assert mirrored.digest() == replica.state.digest()
    assert (await rebuilt(system)).difference == ""


async def test_an_example_without_a_time_is_of_its_log_entry(system: System) -> None:
    model = await system.model(config_of({"forgetting": {"half_life_seconds": 1e9}}))
    await update(system, model, 0)
    await system.update(model, 10)
    replica = await assert_state_is_a_pass_over_the_log(system.topology)
    discount = replica.state.discount
    assert isinstance(discount, Discount)
    assert discount.time == replica.applied.milliseconds
    assert 0.4 < discount.scale < 0.95


async def test_rows_stored_before_a_fold_are_folded_when_read(system: System, model: OpenModel) -> None:
    await update(system, model, 0)
    await checkpointed(system.topology)
    await learn_beyond_a_fold(system, model, 40)
    await checkpointed(system.topology)
    replica = await stored(system.topology)
    values = [value for _, value in sorted((await system.client.hgetall(replica.keys.state(0))).items())]
    experts = replica.config.hyper.number_of_experts
    older = set() if replica.config.hyper.drop_below else {16 * experts}  # which are dropped by then
    assert {len(value) for value in values} == {20 * experts} | older
    assert replica.state.digest() == model.mirror.replica.state.digest()


async def test_dropped_features_leave_redis(system: System) -> None:
    model = await system.model(config_of(HYPERS["dropping"]))
    for part in range(0, 480, 40):
        await update(system, model, part)
    await checkpointed(system.topology)
    replica = await stored(system.topology)
    assert await stored_slots(system, replica) == replica.state.seen_slots().tolist()
    assert replica.state.discount.dropped > replica.state.features_seen
    assert any(b"dropped" in fields for fields in await fields_of_commits(system, replica))


@pytest.mark.slow
async def test_a_checkpoint_that_stopped_halfway_brings_no_dropped_feature_back(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    settings, never = make_settings(valkey), make_settings(valkey, checkpoint_seconds=3600)
    async with System(settings) as system:
        system.learn()
        await learn_beyond_a_fold(system, await system.model(config_of(HYPERS["dropping"])))
        await checkpointed(system.topology)
        before = await stored_slots(system, await stored(system.topology))
    async with System(never) as system, open_channel(never) as channel:
        system.learn()
        await update(system, await system.models.get("clicks"), 480, 400)
        replica = await stored(system.topology)
        assert await stored_slots(system, replica) == before
        half = np.arange(0, replica.state.size, 2, dtype=np.uint32)
        slots, rows, dropped = replica.state.changes_at(half)
        written = changed_records(slots, rows, replica.state.discount)
        last = await channel.call("HGET", replica.keys.meta, "written")
        chunk = (written, dropped.tobytes(), None)
        assert await write_behind(
            channel, replica.keys, 0, replica.token, *chunk, previous=last, name=b"half"
        )
        assert await stored_slots(system, replica) not in (before, replica.state.seen_slots().tolist())
        assert (await stored(system.topology)).state.digest() == replica.state.digest()
    async with System(settings) as system:
        system.learn()
        await update(system, await system.models.get("clicks"), 880)
        await checkpointed(system.topology)
        replica = await assert_state_is_a_pass_over_the_log(system.topology)
        assert await stored_slots(system, replica) == replica.state.seen_slots().tolist()


async def stored_slots(system: System, replica: Replica) -> list[int]:
    """The fields of ``state``, ascending."""
    async with open_channel(system.settings) as channel:
        fields: list[bytes] = await channel.call("HKEYS", replica.keys.state(0))
    return sorted(int.from_bytes(slot, "little") for slot in fields)


async def test_what_is_stored_of_a_model_that_drops_nothing_is_as_before(system: System) -> None:
    model = await system.model(config_of(HYPERS["mixture-of-3"]))
    await learn_beyond_a_fold(system, model)
    replica = await stored(system.topology)
    assert {name for fields in await fields_of_commits(system, replica) for name in fields[::2]} == {
        *(b"previous", b"token", b"commit", b"t", b"applied", b"applied_number", b"skipped_total"),
        *(b"changed", b"entries", b"margins", b"skipped", b"discount"),
    }
    assert "drop" not in replica.config.canonical() + replica.state.discount.text()


async def fields_of_commits(system: System, replica: Replica) -> list[list[bytes]]:
    async with open_channel(system.settings) as channel:
        return [fields for _, fields in await read_stream(channel, replica.keys.commits, LOG_START, 1000)]


async def test_another_process_goes_on_where_one_has_ended(settings: Settings, config: ModelConfig) -> None:
    async with System(settings) as system:
        system.learn()
        await learn_beyond_a_fold(system, await system.model(config))
    async with System(settings) as system:
        system.learn()
        await learn_beyond_a_fold(system, await system.model(config), 480)
        await assert_state_is_a_pass_over_the_log(system.topology)


@pytest.mark.slow
@pytest.mark.parametrize("replay_log", [False, True])
async def test_a_restore_goes_on_with_the_discount_of_the_snapshot(
    system: System, model: OpenModel, replay_log: bool
) -> None:
    await update(system, model, 0)
    taken, then = await take(system, model), await stored(system.topology)
    await learn_beyond_a_fold(system, model, 40)
    await restored(system, taken["id"], replay_log=replay_log)
    if not replay_log:
        assert (await stored(system.topology)).state.digest() == then.state.digest()
    await learn_beyond_a_fold(system, model, 520)
    replica = await stored(system.topology)
    assert (await rebuilt(system)).difference == ""
    if replay_log:
        start = replica.config.empty_state()
        whole = await learned_from(system, start, LOG_START, replica.config)
        assert replica.state.digest() == whole.digest()


async def test_a_snapshot_beyond_a_fold_is_the_state(
    system: System, model: OpenModel, tmp_path: Path
) -> None:
    await learn_beyond_a_fold(system, model)
    taken, replica = await take(system, model), await stored(system.topology)
    snapshot = catalogue(system).load(catalogue(system).find(taken["id"]))
    assert snapshot.state().digest() == replica.state.digest()
    weights = replica.state.weights(snapshot.slots, replica.config.hyper)
    assert np.array_equal(snapshot.weights(replica.config.hyper), weights)
    assert snapshot.header.nonzero == replica.state.nonzero(replica.config.hyper)
    export(snapshot, tmp_path / "all.npz", "npz")
    exported, experts = np.load(tmp_path / "all.npz"), replica.config.hyper.number_of_experts
    z = replica.state.rows_at(snapshot.slots)[:, :experts].T
    discount = replica.state.discount
    if isinstance(discount, Mixture):
        assert np.array_equal(exported["z"], z * discount.scales[:, np.newaxis])
        assert np.array_equal(exported["weights"], snapshot.weights_of_experts(replica.config.hyper))
        assert np.array_equal(exported["log_weights"], discount.log_weights)
    else:
        assert np.array_equal(exported["z"], z[0] * discount.scale)
        assert np.array_equal(exported["weights"], weights)
    await restored(system, taken["id"])
    assert (await stored(system.topology)).state.digest() == replica.state.digest()


@pytest.mark.parametrize("half_life", ["same", None, 7.0])
async def test_a_clone_goes_on_from_what_is_left(
    system: System, model: OpenModel, half_life: Literal["same"] | float | None
) -> None:
    hyper = {} if half_life == "same" else with_half_life(model.config, half_life)
    await learn_beyond_a_fold(system, model)
    async with open_channel(system.settings) as channel:
        await clone(channel, SnapshotStore(system.settings), "clicks", "copy", {"hyper": hyper})
    copy = await system.models.get("copy")
    assert copy.mirror.replica.state.digest() == (await stored(system.topology)).state.digest()
    await update(system, copy, 480)
    result = await rebuilt(system, model="copy")
    assert (result.examples, result.difference) == (40, "")


async def test_a_state_that_was_loaded_goes_on(system: System, model: OpenModel) -> None:
    await learn_beyond_a_fold(system, model)
    base = await stored(system.topology)
    encoded = [example.encoded for example in examples(model, 300, 10_000)]
    times = [FIRST + 25_000 * (480 + i) for i in range(300)]
    more = ExampleBatch.from_encoded(encoded, [i % 2 for i in range(300)], None, times)
    base.config.learn(base.state, more)
    async with open_channel(system.settings) as channel:
        await bulk_load(channel, base, base.state)
    assert (await stored(system.topology)).state.digest() == base.state.digest()
    await update(system, model, 780)
    after = await stored(system.topology)
    await learned_from(system, base.state, base.applied, base.config)
    assert after.state.digest() == base.state.digest()


async def test_a_process_may_start_from_a_snapshot(
    valkey: ServerProcess, make_settings: SettingsFactory, config: ModelConfig
) -> None:
    settings = make_settings(valkey, start_from_snapshot=True)
    async with System(settings) as system:
        system.learn()
        model = await system.model(config)
        await update(system, model, 0)
        await take(system, model)
        await learn_beyond_a_fold(system, model, 40)
        async with System(settings) as other:
            mirror = (await other.models.get("clicks")).mirror
            assert mirror.replica.state.digest() == (await stored(system.topology)).state.digest()


def test_a_row_that_is_newer_than_the_meta_waits_for_its_commit() -> None:
    old, new = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    values = [old.tobytes(), new.tobytes() + (2).to_bytes(4, "little")]
    assert stored_rows(values, Discount(folds=0)).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert stored_rows(values, Discount(folds=2)).tolist() == [[2.0**-400, 2.0 * 2.0**-800], [3.0, 4.0]]
    assert stored_rows(values, Discount(folds=1)).tolist() == [[2.0**-200, 2.0 * 2.0**-400], [3.0, 4.0]]


@pytest.mark.parametrize("hyper_name", ["seconds", "mixture-of-3"])
def test_files_need_times_where_seconds_are_forgotten(
    valkey: ServerProcess, tmp_path: Path, hyper_name: str
) -> None:
    """A file without times is refused, and nothing is learned."""
    lines = [
        {"features": {"ad": f"a{i % 7}"}, "label": i % 2, "event_time": FIRST // 1000 + 25 * i}
        for i in range(200)
    ]
    with_times, without = tmp_path / "times.jsonl", tmp_path / "none.csv"
    with_times.write_text("".join(json.dumps(line) + "\n" for line in lines))
    without.write_text("label,ad\n1,a\n")
    hyper = json.dumps(HYPERS[hyper_name])

    def ftrl(*words: str) -> tuple[int, str]:
        done = run(*words, FTRL_REDIS_URL=valkey.url, FTRL_DATA_DIR=str(tmp_path))
        return done.returncode, done.stdout + done.stderr

    options = ("--model", "clicks", "--hyper", hyper)
    code, output = ftrl("replay", str(without), "--offline", *options)
    assert code == 1
    assert "forgets by seconds, and the file has examples without a time" in output
    assert ftrl("replay", str(with_times), "--offline", *options)[0] == 0
    code, output = ftrl("rebuild", "--model", "clicks", "--snapshot", "nothing", "--file", str(with_times))
    assert (code, output[:5]) == (0, "equal")
