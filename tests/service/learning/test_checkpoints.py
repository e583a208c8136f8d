"""Checkpoints, step by step on a real server: what is written behind the commits, and what is lost of it.

That no order of steps breaks them is checked on a model, in test_checkpoint_model.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from service.example_log.stream import decode
from service.learning.checkpoint import Checkpointer, Chunk
from service.learning.commit import Committer, Work
from service.learning.history import HistoryWriter
from service.learning.live_evaluation import LiveEvaluation
from service.models.mirror import Mirror
from service.models.replica import Replica, read_meta
from service.settings import Settings
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.take.archiver import LogArchiver
from service.storage.channel import Channel
from service.storage.records import Meta
from tests.conftest import ServerFactory, SettingsFactory
from tests.support.append_only_file import copy_aof, roll_back
from tests.support.servers import ServerProcess
from tests.support.system import (
    System,
    assert_state_is_a_pass_over_the_log,
    read_log,
)

EXAMPLES = 4_500
"""They change more slots than one chunk holds."""


class Leader:
    """A learner of the model `clicks` that takes one step at a time."""

    def __init__(self, system: System, mirror: Mirror, committer: Committer) -> None:
        self.system = system
        self.mirror = mirror
        self.committer = committer
        self.behind = committer.behind
        self.checkpoints = Checkpointer(mirror, system.settings)

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
        leader = cls(system, mirror, committer)
        leader.evaluation = evaluation
        await leader.checkpoints.follow(leader.behind)
        yield leader
        await archiver.close()
        await mirror.close()

    evaluation: LiveEvaluation

    async def learn(self, count: int = EXAMPLES, start: int = 0) -> None:
        """Appends examples, and learns them in one commit."""
        model = await self.system.model()
        await self.system.update(model, count, start, wait=False)
        replica, work = self.mirror.replica, Work()
        number = replica.applied_number
        for entry in await read_log(self.system.topology, replica):
            if entry.id > replica.applied:
                batch = decode(entry, number)
                learned = replica.config.learn(replica.state, batch, entry.id.milliseconds)
                self.evaluation.add(entry, batch, learned)
                work.add(entry, batch, learned)
                number += len(batch)
        prepared = self.committer.prepare(work)
        assert await self.committer.conclude(prepared, await self.committer.send(prepared))

    async def write(self, chunks: Sequence[Chunk]) -> bool:
        return await self.checkpoints.write(chunks, self.mirror.replica.token, self.behind)

    async def checkpoint(self) -> None:
        await self.checkpoints.follow(self.behind)
        await self.checkpoints.write_all(self.behind)


@pytest.fixture
def settings(valkey: ServerProcess, make_settings: SettingsFactory) -> Settings:
    return make_settings(valkey, checkpoint_seconds=0)


async def is_complete(system: System) -> bool:
    meta = await meta_of(system)
    return meta.checkpoint is not None and meta.checkpoint.token == meta.token


async def meta_of(system: System) -> Meta:
    async with channel_of(system) as channel:
        return await read_meta(channel, "clicks")


@contextlib.asynccontextmanager
async def channel_of(system: System) -> AsyncIterator[Channel]:
    channel = Channel(system.topology)
    yield channel
    await channel.close()


async def assert_complete(system: System) -> Replica:
    """The rows in Redis alone are the state of a pass over the log."""
    assert await is_complete(system)
    replica = await assert_state_is_a_pass_over_the_log(system.topology)
    await system.client.delete(replica.keys.commits)
    return await assert_state_is_a_pass_over_the_log(system.topology)


async def test_a_server_that_loses_a_chunk_and_no_commit_refuses_the_next(
    server_factory: ServerFactory, make_settings: SettingsFactory, tmp_path: Path
) -> None:
    server = server_factory(appendfsync="always")
    async with System(make_settings(server, checkpoint_seconds=0)) as system, Leader.open(system) as leader:
        await leader.learn()
        older = copy_aof(server, tmp_path)
        assert await leader.write(leader.checkpoints.take(leader.behind, 1))
        last = leader.checkpoints.take(leader.behind, EXAMPLES * 10)
        assert last[-1].complete
        await roll_back(server, older)
        await leader.learn(count=0)  # over a new connection
        assert not await leader.write(last)
        assert not await is_complete(system)
        await assert_state_is_a_pass_over_the_log(system.topology)
        await leader.checkpoint()
        await assert_complete(system)
