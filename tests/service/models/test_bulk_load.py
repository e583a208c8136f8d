"""A whole state at once: all of it or nothing, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from model_core.examples.batch import ExampleBatch
from service.errors import ServerFull, StateUnavailable
from service.models.bulk_load import UNFINISHED_EXPIRES_SECONDS, ModelMoved, bulk_load
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from service.models.replica import Replica
from service.settings import Settings
from service.storage.channel import open_channel
from service.storage.records import SLOTS_A_CHUNK
from tests.conftest import ServerFactory, SettingsFactory
from tests.support.proxy import Fault, Proxy, Request
from tests.support.servers import ServerProcess
from tests.support.system import System, checkpointed, examples, pass_over, read_log, stored
from tests.support.waiting import until

CONFIG = ModelConfig.from_json({"hashing": {"bits": 18}})


@pytest.fixture
async def system(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[System]:
    async with System(make_settings(valkey)) as system:
        yield system


@pytest.fixture
async def model(system: System) -> OpenModel:
    return await system.model(CONFIG)


@pytest.fixture
async def proxy(valkey: ServerProcess) -> AsyncIterator[Proxy]:
    async with Proxy(valkey.socket_path) as proxy:
        yield proxy


async def taught(system: System, model: OpenModel, count: int = 300, start: int = 10_000) -> Replica:
    """A copy of the model that has learned more since."""
    base = await stored(system.topology)
    encoded = [example.encoded for example in examples(model, count, start)]
    base.config.learn(base.state, ExampleBatch.from_encoded(encoded, [i % 2 for i in range(count)]))
    return base


async def load(settings: Settings, base: Replica, url: str | None = None, patience: float = 30.0) -> None:
    if url is not None:
        settings = settings.model_copy(update={"redis_url": url})
    async with open_channel(settings) as channel:
        await bulk_load(channel, base, base.state, patience)


async def state_keys(client: Redis) -> dict[str, int]:
    """The states there are, each with the seconds until it expires, or -1."""
    keys = sorted([key async for key in client.scan_iter("*:state:*")])
    return {key.decode().rpartition(":")[2]: await client.ttl(key) for key in keys}


async def assert_unharmed(system: System, before: Replica) -> None:
    after = await stored(system.topology)
    assert after.revision == before.revision
    assert after.state.digest() == before.state.digest()


async def test_the_new_state_replaces_the_old_bit_for_bit(system: System, model: OpenModel) -> None:
    system.learn()
    await system.update(model, 50)
    base = await taught(system, model, SLOTS_A_CHUNK + 1)
    await load(system.settings, base)
    after = await stored(system.topology)
    assert after.state.t == 50 + SLOTS_A_CHUNK + 1
    assert after.state.digest() == base.state.digest()
    assert (after.generation, after.commit) == (base.generation + 1, base.commit + 1)
    assert await state_keys(system.client) == {"1": -1}


async def test_a_state_without_features_can_be_loaded(system: System) -> None:
    config = ModelConfig.from_json({"hashing": {"bits": 18, "bias": False}})
    await system.model(config)
    base = await stored(system.topology)
    config.learn(base.state, ExampleBatch.from_encoded([([], None)], [1]))
    await load(system.settings, base)
    after = await stored(system.topology)
    assert (after.state.t, after.state.features_seen) == (1, 0)


async def test_mirrors_load_again_while_predictions_go_on(
    valkey: ServerProcess, make_settings: SettingsFactory, system: System, model: OpenModel
) -> None:
    system.learn()
    await system.update(model, 100)
    probe = ExampleBatch.from_encoded([examples(model, 1)[0].encoded])
    async with System(make_settings(valkey)) as other:
        mirrors = [model, await other.models.get("clicks")]
        base = await taught(system, model, 2000)
        old, new = model.predict(probe)[0], base.config.predict(base.state, probe)[0]
        seen = set()
        loading = asyncio.create_task(load(system.settings, base))
        async with asyncio.timeout(60):
            while not loading.done() or any(mirror.mirror.replica.generation == 0 for mirror in mirrors):
                seen |= {mirror.predict(probe)[0] for mirror in mirrors}
                await asyncio.sleep(0)
        await loading
        assert seen <= {old, new}
        assert {mirror.predict(probe)[0] for mirror in mirrors} == {new}
        assert {mirror.mirror.replica.state.digest() for mirror in mirrors} == {base.state.digest()}


async def test_learning_goes_on_from_the_new_state(system: System, model: OpenModel) -> None:
    system.learn()
    await system.update(model, 10)
    base = await taught(system, model)
    await load(system.settings, base)
    await system.update(model, 1, start=10)
    await until(lambda: model.mirror.replica.state.t == 311)
    encoded = examples(model, 1, start=10)[0].encoded
    base.config.learn(base.state, ExampleBatch.from_encoded([encoded], [0]))
    assert (await stored(system.topology)).state.digest() == base.state.digest()


async def test_examples_that_wait_in_the_log_are_learned_on_top(system: System, model: OpenModel) -> None:
    await system.update(model, 70, wait=False)
    base = await taught(system, model)
    await load(system.settings, base)
    system.learn()
    await until(lambda: model.mirror.replica.state.t == 300 + 70)
    waited = b"".join(entry.records for entry in await read_log(system.topology, base))
    base.config.learn(base.state, ExampleBatch.from_bytes(waited))
    assert (await stored(system.topology)).state.digest() == base.state.digest()


async def test_a_model_that_learned_meanwhile_stays(system: System, model: OpenModel) -> None:
    system.learn()
    base = await taught(system, model)
    await system.update(model, 5)
    before = await stored(system.topology)
    with pytest.raises(ModelMoved, match="'clicks' learned or was replaced"):
        await load(system.settings, base)
    await assert_unharmed(system, before)
    assert before.state.digest() == pass_over(await read_log(system.topology, before), CONFIG).digest()
    await checkpointed(system.topology)
    assert await state_keys(system.client) == {"0": -1}


async def test_a_model_that_learned_during_the_filling_stays(
    system: System, model: OpenModel, proxy: Proxy
) -> None:
    system.learn()
    base = await taught(system, model)
    hold = proxy.hold("switch_generation")
    loading = asyncio.create_task(load(system.settings, base, proxy.url))
    await hold.reached.wait()
    await system.update(model, 5)
    before = await stored(system.topology)
    await checkpointed(system.topology)
    hold.release()
    with pytest.raises(ModelMoved):
        await loading
    await assert_unharmed(system, before)
    assert await state_keys(system.client) == {"0": -1}


async def test_a_deleted_model_does_not_come_back(system: System, model: OpenModel) -> None:
    base = await taught(system, model)
    await system.models.delete("clicks")
    with pytest.raises(ModelMoved):
        await load(system.settings, base)
    assert await system.client.keys("*") == [b"ftrl:{clicks}:deleted"]


async def test_a_model_recreated_meanwhile_stays_empty(system: System, model: OpenModel) -> None:
    base = await taught(system, model)
    await system.models.delete("clicks")
    await system.model(CONFIG)
    with pytest.raises(ModelMoved):
        await load(system.settings, base)
    assert (await stored(system.topology)).state.t == 0


async def test_of_two_loads_at_once_one_wins_and_nothing_is_mixed(system: System, model: OpenModel) -> None:
    bases = [await taught(system, model, 3000, start) for start in (10_000, 20_000)]
    done = await asyncio.gather(*(load(system.settings, base) for base in bases), return_exceptions=True)
    assert {type(result) for result in done} == {type(None), ModelMoved}
    winner = bases[done.index(None)]
    assert (await stored(system.topology)).state.digest() == winner.state.digest()
    (key,) = (await state_keys(system.client)).items()
    assert key in {("1", -1), ("2", -1)}


async def test_an_unfinished_filling_expires_unread(system: System, model: OpenModel, proxy: Proxy) -> None:
    base = await taught(system, model)
    before = await stored(system.topology)
    hold = proxy.hold("switch_generation")
    loading = asyncio.create_task(load(system.settings, base, proxy.url))
    await hold.reached.wait()
    await proxy.cut_all()  # the process is gone
    loading.cancel()
    await asyncio.wait([loading])
    await assert_unharmed(system, before)
    (ttl,) = (await state_keys(system.client)).values()
    assert 0 < ttl <= UNFINISHED_EXPIRES_SECONDS


async def test_a_filling_that_is_called_off_is_removed(
    system: System, model: OpenModel, proxy: Proxy
) -> None:
    base = await taught(system, model, 3 * SLOTS_A_CHUNK)
    chunks: list[Request] = []

    def call_off(request: Request) -> Fault | None:
        if request.verb != "fill_state":
            return None
        chunks.append(request)
        if len(chunks) < 3:  # the first may have been sent twice, the second time with the script
            return None
        loading.cancel()
        return Fault.LOSE_REQUEST

    proxy.chaos = call_off
    loading = asyncio.create_task(load(system.settings, base, proxy.url))
    await asyncio.wait([loading])
    assert loading.cancelled()
    assert await state_keys(system.client) == {}


@pytest.mark.parametrize("verb", ["new_generation", "fill_state", "switch_generation"])
async def test_a_lost_reply_changes_nothing_in_the_end(
    system: System, model: OpenModel, proxy: Proxy, verb: str
) -> None:
    base = await taught(system, model)
    lost = proxy.lose_reply(verb)
    await load(system.settings, base, proxy.url)
    assert lost.happened == 1
    after = await stored(system.topology)
    assert after.state.digest() == base.state.digest()
    assert await state_keys(system.client) == {str(after.generation): -1}


async def test_a_filling_that_the_server_lost_is_not_taken_up(
    system: System, model: OpenModel, proxy: Proxy
) -> None:
    base = await taught(system, model)
    before = await stored(system.topology)
    hold = proxy.hold("switch_generation")
    loading = asyncio.create_task(load(system.settings, base, proxy.url))
    await hold.reached.wait()
    key = base.keys.state(1)
    await system.client.hdel(key, (await system.client.hkeys(key))[0])
    hold.release()
    with pytest.raises(StateUnavailable, match="lost part of the new state"):
        await loading
    await assert_unharmed(system, before)
    assert await state_keys(system.client) == {}


async def test_patience_with_a_server_that_is_away_ends(
    system: System, model: OpenModel, proxy: Proxy
) -> None:
    base = await taught(system, model)
    before = await stored(system.topology)
    proxy.lose_request("fill_state", times=100)
    with pytest.raises(StateUnavailable, match="Redis does not answer"):
        await load(system.settings, base, proxy.url, patience=0.2)
    await assert_unharmed(system, before)


async def test_an_unanswered_switch_is_unknown_and_its_filling_expires(
    system: System, model: OpenModel, proxy: Proxy
) -> None:
    base = await taught(system, model)
    proxy.lose_request("switch_generation", times=100)
    with pytest.raises(StateUnavailable, match="The new state may or may not be in use"):
        await load(system.settings, base, proxy.url, patience=0.2)
    (ttl,) = (await state_keys(system.client)).values()
    assert ttl > 0


async def test_a_server_at_its_memory_limit_is_named_and_left_with_its_room(
    server_factory: ServerFactory, make_settings: SettingsFactory
) -> None:
    server = server_factory(appendonly=False)
    async with System(make_settings(server)) as system:
        model = await system.model(CONFIG)
        base = await taught(system, model, 20_000)
        before = await stored(system.topology)
        used = (await system.client.info("memory"))["used_memory"]
        await system.client.config_set("maxmemory", used + (1 << 20))
        with pytest.raises(ServerFull, match="memory limit"):
            await load(system.settings, base)
        await assert_unharmed(system, before)
        assert await state_keys(system.client) == {}
        system.learn()
        await system.update(model)
        await until(lambda: model.mirror.replica.state.t == 1)
