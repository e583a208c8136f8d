"""A rebuild says equal where the state is what the log says, and where it first differs otherwise."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.errors import CommandFailure, LogIncomplete, ModelExists
from service.models.registry import OpenModel
from service.snapshots.restore.create import clone
from service.snapshots.restore.rebuild import Rebuilt, rebuild
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import open_channel
from service.storage.records import changed_type, meta_key
from tests.support.commands import run
from tests.support.proxy import Proxy
from tests.support.servers import ServerProcess
from tests.support.snapshot_systems import CONFIG, catalogue, restored, take
from tests.support.system import System, checkpointed, stored
from tests.support.waiting import until


async def rebuilt(system: System, wanted: str | None = None, model: str = "clicks") -> Rebuilt:
    async with open_channel(system.settings) as channel:
        return await rebuild(channel, catalogue(system, model), wanted)


async def trim(system: System, model: OpenModel, keep: int) -> None:
    await system.client.xtrim(model.mirror.replica.keys.log, maxlen=keep, approximate=False)


async def test_the_whole_log_makes_the_state(system: System, model: OpenModel) -> None:
    result = await rebuilt(system)
    assert (result.start, result.examples, result.t, result.difference) == ("nothing", 60, 60, "")


async def test_a_trimmed_log_rebuilds_from_the_first_snapshot_in_reach(
    system: System, model: OpenModel
) -> None:
    await take(system, model)
    await system.update(model, 10, start=60)
    reached = await take(system, model)
    await system.update(model, 10, start=70)
    await trim(system, model, 1)
    result = await rebuilt(system)
    assert (result.start, result.examples, result.difference) == (f"snapshot {reached['id']}", 10, "")
    with pytest.raises(LogIncomplete):
        await rebuilt(system, "nothing")


@pytest.mark.parametrize("replay_log", [False, True])
async def test_a_restored_state_is_rebuilt_from_its_base(
    system: System, model: OpenModel, replay_log: bool
) -> None:
    taken = await take(system, model)
    await system.update(model, 10, start=60)
    await restored(system, taken["id"], replay_log=replay_log)
    await system.update(model, 10, start=70)
    result = await rebuilt(system)
    assert (result.start, result.difference) == (f"snapshot {taken['id']}", "")
    assert result.examples == (20 if replay_log else 10)


async def cloned(system: System, **changes: dict[str, Any]) -> OpenModel:
    async with open_channel(system.settings) as channel:
        await clone(channel, SnapshotStore(system.settings), "clicks", "copy", changes)
    return await system.models.get("copy")


@pytest.mark.parametrize("changes", [{}, {"hyper": {"l1": 2.0}}, {"feedback": {"window_seconds": 7200}}])
async def test_a_clone_is_made_from_what_it_began_with(
    system: System, model: OpenModel, changes: dict[str, dict[str, Any]]
) -> None:
    source = (await stored(system.topology)).state.digest()
    copy = await cloned(system, **changes)
    assert (await stored(system.topology, "copy")).state.digest() == source
    (origin,) = catalogue(system, "copy").entries()
    assert catalogue(system, "copy").header(origin).reason == "clone of clicks"
    result = await rebuilt(system, model="copy")
    assert (result.start, result.examples, result.difference) == (f"snapshot {origin.id}", 0, "")
    await system.update(copy, 10, start=60)
    result = await rebuilt(system, model="copy")
    assert (result.examples, result.t, result.difference) == (10, 70, "")


async def test_a_clone_is_created_even_if_the_index_refuses_its_name(
    valkey: ServerProcess, system: System, model: OpenModel
) -> None:
    async with Proxy(valkey.socket_path) as proxy:
        cut = proxy.lose_request("SADD")
        await clone_through(proxy, system)
        assert cut.happened == 1
    assert (await rebuilt(system, model="copy")).difference == ""
    await system.models.repair_index()
    assert "copy" in await system.models.names()


async def test_a_clone_keeps_its_base_if_the_reply_was_lost(
    valkey: ServerProcess, system: System, model: OpenModel
) -> None:
    async with Proxy(valkey.socket_path) as proxy:
        held = proxy.hold("create_filled")
        cloning = asyncio.create_task(clone_through(proxy, system))
        await held.reached.wait()
        cloning.cancel()
        await asyncio.wait([cloning])
        proxy.behave()  # what was on its way arrives
        await until(lambda: system.client.exists(meta_key("copy")))
    assert (await rebuilt(system, model="copy")).difference == ""


async def clone_through(proxy: Proxy, system: System) -> None:
    async with open_channel(system.settings.model_copy(update={"redis_url": proxy.url})) as channel:
        await clone(channel, SnapshotStore(system.settings), "clicks", "copy", {})


async def test_a_clone_that_is_refused_leaves_no_snapshot(system: System, model: OpenModel) -> None:
    await cloned(system)
    with pytest.raises(ModelExists):
        await cloned(system)
    assert len(catalogue(system, "copy").entries()) == 1


async def test_a_state_of_which_nothing_is_kept_cannot_be_proved(system: System, model: OpenModel) -> None:
    await cloned(system)
    (origin,) = catalogue(system, "copy").entries()
    catalogue(system, "copy").delete(origin)
    with pytest.raises(CommandFailure, match="nothing to rebuild copy from"):
        await rebuilt(system, model="copy")


@pytest.mark.parametrize("slot", [5, CONFIG.hashing.size])
async def test_the_first_difference_is_named(system: System, model: OpenModel, slot: int) -> None:
    await checkpointed(system.topology)
    replica = await stored(system.topology)
    row = np.zeros(1, changed_type())
    row["slot"], row["row"] = slot, (1.5, 2.5)
    field, value = row["slot"].tobytes(), row["row"].tobytes()
    await system.client.hset(replica.keys.state(0), field, value)
    result = await rebuilt(system)
    name = "the bias" if slot == CONFIG.hashing.size else "slot 5"
    assert f"{name}: Redis has z = 1.5, n = 2.5, rebuilt" in result.difference
    assert "(1 slots differ)" in result.difference


def some_examples(count: int) -> list[dict[str, Any]]:
    return [{"features": {"ad": f"a{i % 7}", "hour": i % 24}, "label": i % 2} for i in range(count)]


def test_a_file_makes_the_state_too(valkey: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in some_examples(50)))

    def ftrl(*words: str) -> tuple[int, str]:
        done = run(*words, "--model", "clicks", FTRL_REDIS_URL=valkey.url, FTRL_DATA_DIR=str(tmp_path))
        return done.returncode, done.stdout + done.stderr

    assert ftrl("replay", str(file), "--offline")[0] == 0
    code, output = ftrl("rebuild", "--snapshot", "nothing", "--file", str(file))
    assert (
        output == "equal: nothing and 50 examples make the state of clicks bit for bit (t = 50, 13 slots)\n"
    )
    file.write_text("".join(json.dumps(one) + "\n" for one in some_examples(49)))
    code, output = ftrl("rebuild", "--snapshot", "nothing", "--file", str(file))
    assert code == 1
    assert "clicks differs from what nothing and 49 examples make:" in output
