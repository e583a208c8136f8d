"""A process may start with a snapshot and the log since: the same state, or else that in Redis."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from service.example_log.inspect import skip_through
from service.models.registry import OpenModel
from service.settings import Settings
from service.storage.channel import open_channel
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.snapshot_systems import CONFIG, restored, take
from tests.support.system import System, read_log, stored
from tests.support.waiting import until

LOADED = "is loaded from a snapshot and"


@pytest.fixture
def settings(valkey: ServerProcess, make_settings: SettingsFactory) -> Settings:
    return make_settings(valkey, start_from_snapshot=True)


@pytest.fixture
async def system(settings: Settings, caplog: pytest.LogCaptureFixture) -> AsyncIterator[System]:
    caplog.set_level(logging.INFO)
    async with System(settings) as system:
        yield system


async def assert_a_new_process_has_the_state(system: System) -> None:
    replica = await stored(system.topology)
    async with System(system.settings) as other:
        mirror = (await other.models.get("clicks")).mirror
        assert mirror.replica.state.digest() == replica.state.digest()
        assert mirror.replica.revision == replica.revision
        await system.update(await system.models.get("clicks"), 5, start=900)
        await until(lambda: mirror.replica.state.t == replica.state.t + 5)
        assert mirror.replica.state.digest() == (await stored(system.topology)).state.digest()
        assert mirror.loads == 1


async def test_it_begins_with_the_snapshot_and_learns_the_log_since(
    system: System, model: OpenModel, caplog: pytest.LogCaptureFixture
) -> None:
    await take(system, model)
    await system.update(model, 40, start=60)
    await assert_a_new_process_has_the_state(system)
    assert f"clicks {LOADED} 40 examples" in caplog.text


async def test_without_a_snapshot_it_begins_with_the_state_in_redis(
    system: System, model: OpenModel, caplog: pytest.LogCaptureFixture
) -> None:
    await assert_a_new_process_has_the_state(system)
    assert LOADED not in caplog.text


async def test_a_snapshot_of_a_state_that_was_replaced_is_not_taken(
    system: System, model: OpenModel, caplog: pytest.LogCaptureFixture
) -> None:
    taken = await take(system, model)
    await system.update(model, 40, start=60)
    await restored(system, taken["id"])
    await assert_a_new_process_has_the_state(system)
    assert LOADED not in caplog.text


async def test_a_log_that_was_trimmed_sends_it_to_redis(
    system: System, model: OpenModel, caplog: pytest.LogCaptureFixture
) -> None:
    await take(system, model)
    for start in (60, 70, 80):
        await system.update(model, 10, start=start)
    await system.client.xtrim(model.mirror.replica.keys.log, maxlen=1, approximate=False)
    await assert_a_new_process_has_the_state(system)
    assert "clicks is read from Redis: The log does not hold example 60" in caplog.text


async def test_skipped_entries_are_skipped_again(
    system: System, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    learning = system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 60)
    await take(system, model)
    learning.cancel()
    await until(learning.done)
    await system.update(model, 10, start=60, wait=False)
    entries = await read_log(system.topology, model.mirror.replica)
    async with open_channel(settings) as channel:
        await skip_through(channel, "clicks", str(entries[-1].id))
    system.learn()
    await assert_a_new_process_has_the_state(system)
    assert LOADED in caplog.text


async def test_a_store_that_fails_sends_it_to_redis(
    valkey: ServerProcess, make_settings: SettingsFactory, caplog: pytest.LogCaptureFixture
) -> None:
    settings = make_settings(valkey, start_from_snapshot=True)
    settings.data_dir.mkdir()
    (settings.data_dir / "snapshots").write_text("no directory")
    caplog.set_level(logging.INFO)
    async with System(settings) as system:
        system.learn()
        await system.update(await system.model(CONFIG), 10)
        await assert_a_new_process_has_the_state(system)
    assert "clicks is read from Redis: Cannot list the snapshot store" in caplog.text
