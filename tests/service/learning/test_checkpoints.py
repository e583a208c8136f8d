"""Checkpoints, step by step on a real server: what is written behind the commits, and what is lost of it.

test_checkpoint_model.py runs through all orders in which such things can happen.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from redis.exceptions import OutOfMemoryError

from service.errors import ContractMismatch, IncompleteState
from service.example_log.stream import decode
from service.learning.checkpoint import REST, SLOTS_A_STEP, Checkpointer, Chunk
from service.learning.commit import Committer, Work
from service.learning.history import HistoryWriter
from service.learning.live_evaluation import LiveEvaluation
from service.models.mirror import Mirror
from service.models.replica import Replica, load_replica, parsed, read_meta
from service.settings.groups import MIB
from service.snapshots.restore.restore import RestorePlan, restore
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.take.archiver import LogArchiver
from service.snapshots.take.capture import capture_stored, write_and_retain
from service.storage.channel import Channel
from service.storage.records import FORMAT_VERSION, LOG_START, SLOTS_A_CHUNK, Checkpoint, meta_key
from service.storage.scripts.commit import write_behind
from service.storage.streams import read_stream
from tests.conftest import ServerFactory, SettingsFactory
from tests.support.append_only_file import copy_aof, roll_back
from tests.support.proxy import Hold, Proxy
from tests.support.servers import ServerProcess
from tests.support.system import (
    System,
    assert_state_is_a_pass_over_the_log,
    checkpointed,
    read_log,
    stored,
)
from tests.support.waiting import until

EXAMPLES = 4_500
"""They change more slots than an idle learner writes in two steps."""


class Leader:
    """A learner of the model `clicks` that takes one step at a time."""

    def __init__(self, system: System, committer: Committer, evaluation: LiveEvaluation, mirror: Mirror):
        self._system = system
        self._committer = committer
        self._evaluation = evaluation
        self._mirror = mirror
        self._behind = committer.behind
        self._checkpoints = Checkpointer(mirror, system.settings, system.health, system.metrics)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, system: System) -> AsyncIterator[Leader]:
        await system.model()
        mirror = await Mirror.open(system.topology, "clicks")
        evaluation = LiveEvaluation("clicks", system.metrics, HistoryWriter("clicks", str))
        store = SnapshotStore(system.settings)
        archiver = LogArchiver(system.topology, "clicks", system.settings, store, system.metrics)
        committer = await Committer.start(mirror, system.settings, system.health, evaluation, archiver)
        await evaluation.follow(mirror)
        leader = cls(system, committer, evaluation, mirror)
        await leader._checkpoints.follow(leader._behind)
        try:
            yield leader
        finally:
            await archiver.close()
            await mirror.close()

    async def learn(self, count: int = EXAMPLES, start: int = 0) -> None:
        """Appends examples, and learns them in one commit."""
        if count:
            await self._system.update(await self._system.model(), count, start, wait=False)
        replica, work = self._mirror.replica, Work()
        number = replica.applied_number
        for entry in await read_log(self._system.topology, replica):
            if entry.id > replica.applied:
                batch = decode(entry, number)
                learned = replica.config.learn(replica.state, batch, entry.id.milliseconds)
                self._evaluation.add(entry, batch, learned)
                work.add(entry, batch, learned)
                number += len(batch)
        prepared = self._committer.prepare(work)
        assert await self._committer.conclude(prepared, await self._committer.send(prepared))

    async def begin_again(self) -> None:
        """As after a failure: what is behind is read again."""
        self._behind.forget()
        await self._checkpoints.follow(self._behind)

    def take(self, slots: int) -> list[Chunk]:
        return self._checkpoints.take(self._behind, slots)

    async def write(self, chunks: Sequence[Chunk]) -> bool:
        return await self._checkpoints.write(chunks, self._mirror.replica.token, self._behind)

    async def checkpoint(self) -> None:
        """Writes all that is behind; again from the start after a failure."""

        async def is_complete() -> bool:
            await self._checkpoints.follow(self._behind)
            await self.write(self.take(10 * EXAMPLES))
            return await is_checkpointed(self._system)

        await until(is_complete)


@pytest.fixture
async def system(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[System]:
    async with System(make_settings(valkey, checkpoint_seconds=0)) as system:
        yield system


@pytest.fixture
async def leader(system: System) -> AsyncIterator[Leader]:
    async with Leader.open(system) as leader:
        yield leader


@contextlib.asynccontextmanager
async def channel_of(system: System) -> AsyncIterator[Channel]:
    channel = Channel(system.topology)
    try:
        yield channel
    finally:
        await channel.close()


async def checkpoint_of(system: System) -> Checkpoint | None:
    async with channel_of(system) as channel:
        return (await read_meta(channel, "clicks")).checkpoint


async def is_checkpointed(system: System) -> bool:
    async with channel_of(system) as channel:
        meta = await read_meta(channel, "clicks")
        return meta.checkpoint is not None and meta.checkpoint.token == meta.token


async def assert_rows_are_a_pass_over_the_log(system: System) -> Replica:
    """Also without the commits."""
    assert await is_checkpointed(system)
    replica = await assert_state_is_a_pass_over_the_log(system.topology)
    await system.client.delete(replica.keys.commits)
    return await assert_state_is_a_pass_over_the_log(system.topology)


async def test_small_chunks_have_each_changed_slot_once(system: System, leader: Leader) -> None:
    await leader.learn()
    chunks = leader.take(10 * EXAMPLES)
    assert len(chunks) > 2
    assert all(len(chunk.slots) == chunk.size <= SLOTS_A_CHUNK for chunk in chunks)
    slots = np.sort(np.concatenate([chunk.slots["slot"] for chunk in chunks]))
    assert slots.tolist() == (await stored(system.topology)).state.seen_slots().tolist()
    assert await leader.write(chunks)
    await assert_rows_are_a_pass_over_the_log(system)


async def test_a_server_that_lost_a_chunk_and_no_commit_refuses_the_next(
    server_factory: ServerFactory, make_settings: SettingsFactory, tmp_path: Path
) -> None:
    server = server_factory()
    async with System(make_settings(server, checkpoint_seconds=0)) as system, Leader.open(system) as leader:
        await leader.learn()
        older = copy_aof(server, tmp_path)
        assert await leader.write(leader.take(1))
        last = leader.take(10 * EXAMPLES)
        assert last[-1].complete
        await roll_back(server, older)
        await leader.learn(count=0)  # until there is a connection
        assert not await leader.write(last)
        assert not await is_checkpointed(system)
        await leader.checkpoint()
        await assert_rows_are_a_pass_over_the_log(system)


async def test_a_server_that_lost_a_whole_checkpoint_gets_it_again(
    server_factory: ServerFactory, make_settings: SettingsFactory, tmp_path: Path
) -> None:
    server = server_factory()
    async with System(make_settings(server, checkpoint_seconds=0)) as system, Leader.open(system) as leader:
        await leader.learn(20)
        older = copy_aof(server, tmp_path)
        await leader.checkpoint()
        await roll_back(server, older)
        await leader.learn(20, start=20)
        await leader.checkpoint()
        await assert_rows_are_a_pass_over_the_log(system)


async def test_a_learner_does_not_take_what_a_lost_restore_had_written_for_its_own(
    server_factory: ServerFactory, make_settings: SettingsFactory, tmp_path: Path
) -> None:
    server = server_factory()
    async with System(make_settings(server, checkpoint_seconds=0)) as system, Leader.open(system) as leader:
        async with channel_of(system) as channel:
            untrained = await capture_stored(channel, "clicks")
            store = SnapshotStore(system.settings)
            await asyncio.to_thread(write_and_retain, store, untrained, "manual", ["first"])
            await leader.learn(20)
            older = copy_aof(server, tmp_path)
            await restore(channel, store, RestorePlan("clicks", "first"))
        await leader.begin_again()
        await roll_back(server, older)
        await leader.learn(20, start=20)
        await leader.checkpoint()
        await assert_rows_are_a_pass_over_the_log(system)


async def test_a_checkpoint_whose_chunk_has_no_reply_begins_again(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with Proxy(valkey.socket_path) as proxy:
        settings = make_settings(valkey, checkpoint_seconds=0, redis_url=proxy.url)
        async with System(settings) as system, Leader.open(system) as leader:
            await leader.learn()
            lost = proxy.lose_reply("checkpoint")
            assert not await leader.write(leader.take(1))
            assert lost.happened == 1
            await leader.learn(100, start=EXAMPLES)
            await leader.checkpoint()
            await assert_rows_are_a_pass_over_the_log(system)


class SecondHeld:
    """Holds each chunk after the first, from the reply to that on."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.hold: Hold | None = None

    def __call__(self, reply: bytes) -> bytes:
        self.hold = self.hold or self._proxy.hold("checkpoint")
        return reply


async def test_the_next_learner_writes_what_one_that_died_between_two_chunks_has_left(
    valkey: ServerProcess, system: System, make_settings: SettingsFactory
) -> None:
    async with (
        Proxy(valkey.socket_path) as proxy,
        System(make_settings(valkey, checkpoint_seconds=0, redis_url=proxy.url)) as dying,
    ):
        model = await dying.model()
        chunks = proxy.rewrite["checkpoint"] = SecondHeld(proxy)
        learning = dying.learn()
        await dying.update(model, EXAMPLES)
        await until(lambda: chunks.hold and chunks.hold.reached.is_set(), "a second chunk is sent")
        learning.cancel()
        await proxy.cut_all()
        assert not await is_checkpointed(system)
        system.learn()
        await system.update(await system.model(), 100, start=EXAMPLES)
        await checkpointed(system.topology)
        await assert_rows_are_a_pass_over_the_log(system)


async def test_examples_that_arrive_during_a_checkpoint_are_learned_before_it_is_complete(
    valkey: ServerProcess, system: System, leader: Leader, make_settings: SettingsFactory
) -> None:
    await leader.learn()
    async with (
        Proxy(valkey.socket_path) as proxy,
        System(make_settings(valkey, checkpoint_seconds=0, redis_url=proxy.url)) as other,
    ):
        written: list[str] = []
        delivered = asyncio.Event()

        def note(verb: str) -> Callable[[bytes], bytes]:
            def noted(reply: bytes) -> bytes:
                written.append(verb)
                return reply

            return noted

        def note_delivery(reply: bytes) -> bytes:
            if b":log" in reply:
                delivered.set()
            return reply

        proxy.rewrite |= {"checkpoint": note("chunk"), "commit": note("commit"), "XREAD": note_delivery}
        chunk = proxy.hold("checkpoint")
        other.learn()
        await chunk.reached.wait()
        await system.update(await system.model(), start=EXAMPLES, wait=False)
        await delivered.wait()
        chunk.release()
        await checkpointed(system.topology)
        two_steps = 2 * SLOTS_A_STEP // SLOTS_A_CHUNK
        assert "commit" in written[: two_steps + 1], "there are three steps"


async def test_a_model_is_loaded_while_its_commits_are_written_and_trimmed(
    valkey: ServerProcess, system: System, leader: Leader, make_settings: SettingsFactory
) -> None:
    async with (
        Proxy(valkey.socket_path) as proxy,
        System(make_settings(valkey, redis_url=proxy.url)) as other,
    ):
        for start in range(0, 60, 20):
            await leader.learn(20, start)
        scan = proxy.hold("HSCAN")
        loading = asyncio.create_task(stored(other.topology))
        await scan.reached.wait()
        await leader.checkpoint()
        complete = await checkpoint_of(system)
        assert complete is not None
        await leader.learn(20, start=60)
        commits = (await stored(system.topology)).keys.commits
        trimmed = await system.client.xtrim(commits, minid=str(complete.position), approximate=False)
        assert trimmed == 2, "as many as a commit may trim, and the load has to read"
        scan.release()
        replica = await assert_state_is_a_pass_over_the_log(system.topology)
        assert (await loading).state.digest() == replica.state.digest()


async def test_a_load_during_which_the_server_goes_back_is_of_the_state_that_it_went_back_to(
    server_factory: ServerFactory, make_settings: SettingsFactory, tmp_path: Path
) -> None:
    server = server_factory()
    async with System(make_settings(server, checkpoint_seconds=0)) as system, Leader.open(system) as leader:
        await leader.learn(20)
        older = copy_aof(server, tmp_path)
        await leader.learn(20, start=20)
        revisions: list[str] = []

        async def go_back(replica: Replica, channel: Channel) -> bool:
            """In the place of a snapshot, after the load has read which commit it is of."""
            if not revisions:
                await roll_back(server, older)
                await until(lambda: not channel.connected)
            revisions.append(replica.revision)
            return False

        async with channel_of(system) as channel:
            loaded = await load_replica(channel, "clicks", go_back)
        assert len(set(revisions)) == 2
        assert loaded.revision == revisions[-1]
        replica = await assert_state_is_a_pass_over_the_log(system.topology)
        assert loaded.state.digest() == replica.state.digest()


async def test_a_checkpoint_is_completed_on_a_full_server(
    server_factory: ServerFactory, make_settings: SettingsFactory
) -> None:
    server = server_factory()
    async with System(make_settings(server, checkpoint_seconds=0)) as system, Leader.open(system) as leader:
        await leader.learn()
        await system.client.config_set("maxmemory", 1)
        with pytest.raises(OutOfMemoryError):
            await system.client.set("foreign", "x")
        await leader.checkpoint()
        await assert_rows_are_a_pass_over_the_log(system)


async def test_a_server_that_needs_memory_gets_a_checkpoint_at_once_and_its_commits_are_trimmed(
    server_factory: ServerFactory, make_settings: SettingsFactory
) -> None:
    server = server_factory()
    settings = make_settings(server, checkpoint_seconds=3600, commits_bytes=MIB)
    async with System(settings) as system, channel_of(system) as channel:
        await system.update(await system.model(), 600, wait=False)
        await system.client.config_set("maxmemory", 1)
        system.learn()
        keys = (await stored(system.topology)).keys

        async def is_trimmed() -> bool:
            commits = parsed(await read_stream(channel, keys.commits, LOG_START, 1))
            return bool(commits) and commits[0][1].number > 1

        await until(is_trimmed, "the first commit is gone")
        replica = await assert_state_is_a_pass_over_the_log(system.topology)
        assert await system.client.hlen(keys.state(0)) == len(replica.state.seen_slots())


async def test_the_server_rests_from_checkpoints_for_longer_than_it_writes_them(
    valkey: ServerProcess, make_settings: SettingsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic() + 3600  # by the checkpoints' clock

    async def slow(*arguments: Any, **options: Any) -> bool:
        nonlocal now
        now += 4.0
        return await write_behind(*arguments, **options)

    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("service.learning.checkpoint.time", clock)
    monkeypatch.setattr("service.learning.checkpoint.write_behind", slow)
    async with System(make_settings(valkey, checkpoint_seconds=0)) as system, Leader.open(system) as leader:
        await leader.learn(100)
        assert await leader.write(leader.take(1))
        assert await is_checkpointed(system)
        await leader.learn(100, start=100)
        assert not leader.take(1)
        now += REST * 4.0
        assert await leader.write(leader.take(1))
        assert await is_checkpointed(system)


async def test_a_model_without_its_commits_since_the_checkpoint_is_not_loaded_but_restored(
    system: System, leader: Leader
) -> None:
    await leader.learn(20)
    store = SnapshotStore(system.settings)
    async with channel_of(system) as channel:
        copied = await capture_stored(channel, "clicks")
        await asyncio.to_thread(write_and_retain, store, copied, "manual")
        await leader.learn(20, start=20)
        await system.client.delete(copied.keys.commits)
        with pytest.raises(IncompleteState, match="ftrl snapshot restore"):
            await load_replica(channel, "clicks")
        restored = await restore(channel, store, RestorePlan("clicks", "newest", replay_log=True))
    assert (restored.before, restored.t, restored.replayed) == (None, 40, 20)
    system.learn()
    await system.update(await system.model(), 20, start=40)
    await checkpointed(system.topology)
    await assert_rows_are_a_pass_over_the_log(system)


async def test_a_learner_that_has_the_state_in_memory_makes_up_for_missing_commits(
    system: System, leader: Leader
) -> None:
    await leader.learn(20)
    async with Leader.open(system) as successor:
        await system.client.delete((await stored(system.topology)).keys.commits)
        await successor.begin_again()
        await successor.checkpoint()
        await assert_rows_are_a_pass_over_the_log(system)


async def test_a_model_of_the_format_before_is_learned_on(system: System, leader: Leader) -> None:
    """There every commit wrote the state, and none was behind."""
    await leader.learn(20)
    await leader.checkpoint()
    await system.client.hdel(meta_key("clicks"), "checkpoint", "checkpoint_token", "written")
    await system.client.hset(meta_key("clicks"), "format", 1)
    async with Leader.open(system) as successor:
        await successor.learn(20, start=20)
        assert await system.client.hget(meta_key("clicks"), "format") == b"%d" % FORMAT_VERSION
        await assert_state_is_a_pass_over_the_log(system.topology)
        await successor.checkpoint()
        await assert_rows_are_a_pass_over_the_log(system)


async def test_a_model_of_a_later_format_is_refused(system: System, leader: Leader) -> None:
    await system.client.hset(meta_key("clicks"), "format", FORMAT_VERSION + 1)
    with pytest.raises(ContractMismatch, match=f"format {FORMAT_VERSION + 1}"):
        await stored(system.topology)


async def test_the_metrics_show_what_is_written_behind_and_what_waits_for_that(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    def shown(system: System, name: str) -> float | None:
        found = re.search(rf'^{name}{{model="clicks"}} (.+)$', system.metrics.render().decode(), re.MULTILINE)
        return float(found[1]) if found else None

    async with System(make_settings(valkey, checkpoint_seconds=3600)) as system:
        model = await system.model()
        system.learn()
        await system.update(model, 20)
        await until(lambda: shown(system, "ftrl_checkpoint_behind_seconds"))
        assert shown(system, "ftrl_checkpoint_slots_total") == 0
    async with System(make_settings(valkey, checkpoint_seconds=0)) as system:
        system.learn()
        await until(lambda: shown(system, "ftrl_checkpoint_behind_seconds") == 0)
        replica = await assert_rows_are_a_pass_over_the_log(system)
        assert shown(system, "ftrl_checkpoint_slots_total") == len(replica.state.seen_slots())
