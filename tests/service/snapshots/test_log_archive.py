"""Archived log entries serve rebuilds and restores like the log itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.errors import DamagedLogSegment, LogIncomplete
from service.models.registry import OpenModel
from service.snapshots.restore.rebuild import Rebuilt, rebuild
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.store.formats import LogArchive, RawEntry, Segment
from service.snapshots.store.objects import open_store
from service.snapshots.take.archiver import LogArchiver
from service.storage.channel import open_channel
from service.storage.records import LogId
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.snapshot_systems import CONFIG, catalogue, restored, take
from tests.support.system import System
from tests.support.waiting import until

DAY = 86_400.0


@pytest.fixture
async def system(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[System]:
    async with System(make_settings(valkey)) as system:
        system.learn()
        yield system


def archive(system: System, model: OpenModel) -> LogArchive:
    return LogArchive(
        open_store(system.settings.snapshot_store), model.name, model.mirror.replica.keys.incarnation
    )


async def archived(
    system: System, model: OpenModel, seconds: float = DAY, kept: int | None = None
) -> list[Segment]:
    """All that the mirror has, as a learner that has just begun to lead archives it; `kept`: how many
    segments are left when the old ones have gone.
    """
    settings = system.settings.model_copy(update={"log_archive_seconds": seconds})
    archiver = LogArchiver(system.topology, model.name, settings, SnapshotStore(settings), system.metrics)
    replica = model.mirror.replica
    archiver.start_if_due(replica)
    await until(lambda: archiver.through >= replica.applied)
    store = archive(system, model)
    await until(lambda: kept in (None, len(store.segments())))
    await archiver.close()
    return store.segments()


async def trimmed(system: System, model: OpenModel) -> None:
    await system.client.xtrim(model.mirror.replica.keys.log, maxlen=1, approximate=False)


async def rebuilt(system: System) -> Rebuilt:
    async with open_channel(system.settings) as channel:
        return await rebuild(channel, catalogue(system), None)


async def test_a_rebuild_reads_the_archive_and_then_the_log(system: System) -> None:
    model = await system.model(CONFIG)
    for start in range(0, 60, 10):
        await system.update(model, 10, start=start)
    (first,) = await archived(system, model)
    await system.update(model, 10, start=60)
    _, second = await archived(system, model)
    assert [(first.first, first.end), (second.first, second.end)] == [(0, 60), (60, 70)]
    await system.update(model, 10, start=70)
    await trimmed(system, model)
    result = await rebuilt(system)
    assert (result.start, result.examples, result.difference) == ("nothing", 80, "")


async def test_a_restore_learns_the_archived_log_again(system: System) -> None:
    model = await system.model(CONFIG)
    await system.update(model, 20)
    taken = await take(system, model)
    for start in range(20, 60, 10):
        await system.update(model, 10, start=start)
    digest = model.mirror.replica.state.digest()
    await archived(system, model)
    await trimmed(system, model)
    await restored(system, taken["id"], replay_log=True)
    await until(lambda: model.mirror.replica.generation > 0)
    assert model.mirror.replica.state.digest() == digest


async def test_a_damaged_segment_is_refused(system: System) -> None:
    model = await system.model(CONFIG)
    for start in (0, 30):
        await system.update(model, 30, start=start)
    (segment,) = await archived(system, model)
    await trimmed(system, model)
    incarnation = model.mirror.replica.keys.incarnation
    file = Path(system.settings.snapshot_store) / model.name / f"log-{incarnation}" / segment.name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedLogSegment, match=r"Log segment .* is not what was written"):
        await rebuilt(system)


async def test_old_segments_go(system: System) -> None:
    model = await system.model(CONFIG)
    for start in (0, 10, 20):
        await system.update(model, 10, start=start)
        await asyncio.sleep(0.02)
        await archived(system, model, seconds=0.001, kept=1)
    assert [(one.first, one.end) for one in archive(system, model).segments()] == [(20, 30)]


async def test_old_segments_of_a_deleted_model_are_removed(system: System) -> None:
    model = await system.model(CONFIG)
    await system.update(model, 10)
    deleted = LogArchive(open_store(system.settings.snapshot_store), model.name, "0123456789abcdef")
    newest = model.mirror.replica.applied
    for first, age in ((0, 2 * DAY), (5, DAY / 2)):
        written = LogId(newest.milliseconds - round(age * 1000), 0)
        deleted.write(first, first + 5, [RawEntry(written, [b"n", b"0", b"e", b""])])
    settings = system.settings.model_copy(update={"log_archive_seconds": DAY})
    archiver = LogArchiver(system.topology, model.name, settings, SnapshotStore(settings), system.metrics)
    archiver.start_if_due(model.mirror.replica)
    await until(lambda: [one.first for one in deleted.segments()] == [5])
    await archiver.close()
    assert [(one.first, one.end) for one in archive(system, model).segments()] == [(0, 10)]


async def test_entries_appended_after_a_loss_replace_archived_ones(system: System) -> None:
    model = await system.model(CONFIG)
    await system.update(model, 10)
    entries = [RawEntry(model.mirror.replica.applied.before(), [b"n", b"5", b"e", b""])]
    archive(system, model).write(5, 6, entries)  # as of a log that is no more
    segments = await archived(system, model)
    assert [(one.first, one.end) for one in segments] == [(0, 10)]


async def test_without_an_archive_a_trimmed_log_is_reported(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey)) as system:
        system.learn()
        model = await system.model(CONFIG)
        taken = await take(system, model)
        for start in range(0, 60, 10):
            await system.update(model, 10, start=start)
        await trimmed(system, model)
        with pytest.raises(LogIncomplete, match="does not hold example 0"):
            await restored(system, taken["id"], replay_log=True)


@pytest.mark.parametrize("reachable", [True, False])
async def test_nothing_is_trimmed_before_it_is_archived(
    valkey: ServerProcess, make_settings: SettingsFactory, tmp_path: Path, reachable: bool
) -> None:
    store = tmp_path / "store"
    if not reachable:
        store.write_text("a file where a directory should be")
    async with System(
        make_settings(valkey, snapshots=str(store), log_archive_seconds=DAY, log_retention_seconds=0.001)
    ) as system:
        system.learn()
        model = await system.model(CONFIG)
        log = model.mirror.replica.keys.log
        for start in range(250):
            await system.update(model, start=start)
        if not reachable:
            assert await system.client.xlen(log) == 250
            return
        await until(lambda: bool(archive(system, model).segments()))
        segments = archive(system, model).segments()
        await system.update(model, start=250)
        async with open_channel(system.settings) as channel:
            ((_, fields),) = await channel.call("XRANGE", log, "-", "+", "COUNT", 1)
        assert int(fields[1]) <= segments[-1].end
