"""Many models in a cluster: one node each, followed wherever it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from redis.crc import key_slot

from model_core.examples.batch import ExampleBatch
from service.errors import AliasConflict, StateUnavailable, UpdateUnavailable
from service.feedback.reconfigure import change_feedback
from service.feedback.store import PendingStore, entries_of
from service.models.aliases import Aliases
from service.models.config.model import ModelConfig
from service.models.registry import Models, OpenModel
from service.settings import Settings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import MODELS, meta_key
from service.storage.topology import connect
from tests.support.proxy import Proxy
from tests.support.system import System, assert_state_is_a_pass_over_the_log
from tests.support.topologies import ClusterOfServers, cluster

SMALL_MODEL = ModelConfig.from_json({"hashing": {"bits": 16}})
NAMES = [f"model-{i}" for i in range(8)]

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def servers() -> Iterator[ClusterOfServers]:
    with cluster(appendonly=False) as made:
        yield made


@pytest.fixture
def settings(servers: ClusterOfServers) -> Settings:
    """For the cluster, which is empty."""
    for master, _ in servers.pairs:
        with master.client() as client:
            client.flushall()
    return settings_for(servers)


def settings_for(servers: ClusterOfServers) -> Settings:
    return Settings(redis_url=servers.url, update_timeout_seconds=20, redis_timeout_seconds=3)


async def update_all(system: System, models: list[OpenModel], start: int) -> None:
    answers = await asyncio.gather(*(system.update(model, 20, start) for model in models))
    assert {result.status for results in answers for result in results} == {"learned"}


async def test_models_spread_over_the_masters_and_each_is_on_one(
    servers: ClusterOfServers, settings: Settings
) -> None:
    async with System(settings) as system:
        system.learn()
        models = [await system.model(SMALL_MODEL, name) for name in NAMES]
        await update_all(system, models, 0)
        holders: dict[str, set[int]] = {name: set() for name in NAMES}
        for number, (master, _) in enumerate(servers.pairs):
            with master.client() as client:
                for key in client.scan_iter("ftrl:{*}:*"):
                    holders[key.decode().split("{")[1].split("}")[0]].add(number)
        assert all(len(nodes) == 1 for nodes in holders.values()), holders
        assert len(set.union(*holders.values())) == len(servers.pairs)
        for name in NAMES:
            await assert_state_is_a_pass_over_the_log(system.topology, name)


async def test_the_index_of_models_is_repaired_from_all_masters(settings: Settings) -> None:
    async with System(settings) as system:
        for name in NAMES:
            await system.model(SMALL_MODEL, name)
        channel = Channel(system.topology)
        await channel.call("DEL", MODELS)
        await channel.close()
        assert await system.models.names() == []
        await system.models.repair_index()
        assert await system.models.names() == NAMES


async def test_an_unreadable_list_of_nodes_is_an_ended_connection(
    servers: ClusterOfServers, settings: Settings
) -> None:
    async with Proxy(servers.pairs[0][0].socket_path) as proxy:
        url = proxy.url.replace("redis://", "redis+cluster://")
        proxy.rewrite["CLUSTER"] = lambda _: b"?\r\n"
        async with asyncio.timeout(30):
            topology = connect(settings, url)
            models = Models(topology, settings)
            with pytest.raises(CONNECTION_FAILURES):
                await topology.masters()
            with pytest.raises(StateUnavailable):
                await models.repair_index()
            proxy.behave()
            assert len(await topology.masters()) == len(servers.pairs)
            await models.close()
            await topology.close()


async def test_a_name_is_a_model_or_an_alias_wherever_their_keys_are(settings: Settings) -> None:
    async with System(settings) as system:
        await system.model(SMALL_MODEL, NAMES[0])
        aliases = Aliases(system.models)
        for name in (f"either-{i}" for i in range(8)):
            attempts = (aliases.set(name, NAMES[0]), system.models.create(name, SMALL_MODEL))
            outcomes = await asyncio.gather(*attempts, return_exceptions=True)
            assert sum(isinstance(outcome, AliasConflict) for outcome in outcomes) == 1, outcomes
            is_alias = name in await aliases.all()
            assert is_alias == (name not in await system.models.names())
            await (aliases.remove(name) if is_alias else system.models.delete(name))
            await system.models.create(name, SMALL_MODEL)
            await system.models.delete(name)


async def test_pending_predictions_are_due_by_new_times_on_every_node(settings: Settings) -> None:
    config = ModelConfig.from_json({"hashing": {"bits": 16}, "feedback": {"exposure": "on_predict"}})
    batch = ExampleBatch.from_encoded([([1], None)])
    async with System(settings) as system:
        for name in (f"waiting-{i}" for i in range(4)):
            model, channel = await system.model(config, name), Channel(system.topology)
            waiting = PendingStore(model.mirror.replica.keys, config.feedback, settings)
            await waiting.log(channel, entries_of([bytes(16)], batch, np.zeros(1), 7, b"token"), check=False)
            lists = f"{model.mirror.replica.keys.due_prefix}*"
            (before,) = await channel.call("KEYS", lists)
            changed = await change_feedback(channel, name, {"window_seconds": 300, "max_bytes": 1 << 16})
            swept = await waiting.sweep(channel, 500)
            assert (swept.pending["open"], waiting.config) == (1, changed)
            (after,) = await channel.call("KEYS", lists)
            assert int(after.rpartition(b":i")[2]) - int(before.rpartition(b":i")[2]) == 300 - 1800
            await channel.close()


async def test_a_slot_that_migrates_takes_its_model_along(
    servers: ClusterOfServers, settings: Settings
) -> None:
    async with System(settings) as system:
        system.learn()
        model = await system.model(SMALL_MODEL, "wanderer")
        await update_all(system, [model], 0)
        slot = key_slot(meta_key("wanderer").encode())
        source, target = (
            servers.pair_of("wanderer")[0],
            next(master for master, _ in servers.pairs if master is not servers.pair_of("wanderer")[0]),
        )
        servers.order(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", servers.id_of(source))
        servers.order(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", servers.id_of(target))
        waiting = asyncio.create_task(system.update(model, 20, 20, event_ids=True))
        with source.client() as client:
            while keys := client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
                await asyncio.sleep(0.2)
                assert not waiting.done()  # an append may not look for its event ids in two places
                await asyncio.to_thread(
                    client.execute_command, *("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
                )
                await asyncio.sleep(0.2)
                assert not waiting.done()
        for node in (target, source):
            servers.order(node, "CLUSTER", "SETSLOT", slot, "NODE", servers.id_of(target))
        assert {result.status for result in await waiting} == {"learned"}
        state = await assert_state_is_a_pass_over_the_log(system.topology, "wanderer")
        assert state.state.t == 40
        with target.client() as client:
            assert client.exists(state.keys.log)


async def test_the_models_of_a_killed_master_are_followed_after_the_vote() -> None:
    with cluster(appendonly=False) as servers:
        async with System(settings_for(servers)) as system:
            system.learn()
            models = [await system.model(SMALL_MODEL, name) for name in NAMES]
            await update_all(system, models, 20)
            servers.pair_of(NAMES[0])[0].kill9()
            while True:
                try:
                    await update_all(system, models, 40)
                    break
                except UpdateUnavailable:
                    pass
            for name in NAMES:
                await assert_state_is_a_pass_over_the_log(system.topology, name)
