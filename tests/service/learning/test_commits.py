"""What a commit is refused for: the log must hold what was learned."""

from __future__ import annotations

from service.example_log.stream import decode, examples_of
from service.learning.commit import Committer, Work
from service.learning.history import HistoryWriter
from service.learning.live_evaluation import LiveEvaluation
from service.models.mirror import Mirror
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.take.archiver import LogArchiver
from service.storage.channel import Channel
from service.storage.records import FORMAT_VERSION, LogEntry, LogId
from service.storage.scripts.log import Found, LoggedExample, find_examples
from tests.conftest import SettingsFactory
from tests.support.invariants import learned as learned_all
from tests.support.servers import ServerProcess
from tests.support.system import System, assert_state_is_a_pass_over_the_log, read_log
from tests.support.waiting import until

READ_BOTH = """
return {redis.call('HMGET', KEYS[1], 'applied', 'backlog_bytes'), redis.call('XRANGE', KEYS[2], '-', '+')}
"""


async def committed(system: System, mirror: Mirror, entry: LogEntry) -> bool:
    """Learns the first entry of the log, and tries to commit that."""
    evaluation = LiveEvaluation("clicks", system.metrics, HistoryWriter("clicks", str))
    store = SnapshotStore(system.settings)
    archiver = LogArchiver(system.topology, "clicks", system.settings, store, system.metrics)
    committer = await Committer.start(mirror, system.settings, system.health, evaluation, archiver)
    await evaluation.follow(mirror)
    work, batch = Work(), decode(entry, 0)
    learned = mirror.replica.config.learn(mirror.replica.state, batch)
    evaluation.add(entry, batch, learned)
    work.add(entry, batch, learned)
    try:
        prepared = committer.prepare(work)
        return await committer.conclude(prepared, await committer.send(prepared))
    finally:
        await archiver.close()


async def test_a_commit_of_an_entry_whose_id_is_anothers_is_refused(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    """Both primaries of a failover have given the same id, with the same numbers."""
    async with System(make_settings(valkey)) as system:
        model = await system.model()
        await system.update(model, wait=False)
        await system.update(model, start=1, wait=False)
        mirror = await Mirror.open(system.topology, "clicks")
        keys = mirror.replica.keys
        learned, other = await read_log(system.topology, mirror.replica)
        await system.client.delete(keys.log)
        await system.client.xadd(keys.log, {"n": 0, "c": 1, "e": other.records}, id=str(learned.id))
        await system.client.hset(keys.meta, "appended", 1)
        assert not await committed(system, mirror, learned)
        assert (mirror.replica.state.t, mirror.loads) == (0, 2)
        await mirror.close()
        system.learn()
        await learned_all(system.topology, "clicks")
        state = await assert_state_is_a_pass_over_the_log(system.topology)
        assert state.state.t == 1


async def test_the_bytes_of_the_backlog_are_those_that_no_commit_has(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey, learner_read_examples=20)) as system:
        model, channel = await system.model(), Channel(system.topology)
        keys = model.mirror.replica.keys

        async def is_learned() -> bool:
            """Compares the bytes in meta with those in the log, at one moment."""
            (applied, size), found = await channel.call("EVAL", READ_BOTH, 2, keys.meta, keys.log)
            entries = [LogEntry.parse(entry, fields) for entry, fields in found]
            left = [entry for entry in entries if entry.id > LogId.parse(applied)]
            assert int(size) == sum(len(entry.records) for entry in left)
            return not left

        for start in range(0, 1000, 10):
            await system.update(model, 10, start=start, wait=False)
        assert not await is_learned()
        system.learn()
        await until(is_learned)
        await system.update(model, 10, start=1000)
        assert await is_learned()
        await channel.close()


async def test_a_log_with_a_field_for_each_example_is_learned_and_found(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    """As a version before wrote it."""
    async with System(make_settings(valkey)) as system:
        model, channel = await system.model(), Channel(system.topology)
        keys = model.mirror.replica.keys
        await system.update(model, 30, wait=False)
        (entry,) = await read_log(system.topology, model.mirror.replica)
        records = examples_of(entry).to_records()
        await channel.call("DEL", keys.log)
        await channel.call(
            "XADD", keys.log, str(entry.id), "n", 0, *(part for one in records for part in ("e", one))
        )
        ids = examples_of(entry).event_ids or ()
        logged = [
            LoggedExample(entry.id, ids[0]),
            LoggedExample(entry.id, bytes(16)),
            LoggedExample(entry.id, ids[29]),
        ]
        assert await find_examples(channel, keys, logged) == [Found.IN_LOG, Found.LOST, Found.IN_LOG]
        system.learn()
        await learned_all(system.topology, "clicks")
        await system.update(model, 5, start=30)
        state = await assert_state_is_a_pass_over_the_log(system.topology)
        assert state.state.t == 35
        assert await channel.call("HGET", keys.meta, "format") == b"%d" % FORMAT_VERSION
        await channel.close()
