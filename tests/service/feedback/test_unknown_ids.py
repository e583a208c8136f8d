"""Ids that no model knows are counted once Redis answers, and only for models that exist."""

from __future__ import annotations

from service.feedback.unknown_ids import UnknownIds
from service.models.config.model import ModelConfig
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.system import System

SMALL = ModelConfig.from_json({"hashing": {"bits": 12}})


async def counted(system: System, key: str) -> int:
    return int(await system.client.hget(key, "#unknown") or 0)


async def test_unknown_ids_are_counted_once_after_an_outage(
    fresh_valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(fresh_valkey, redis_timeout_seconds=4)) as system:
        model = await system.model(SMALL)
        keys, ids = model.mirror.replica.keys, UnknownIds(system.topology)
        ids.add(model, ["unknown", "shown", "unknown"])
        fresh_valkey.kill9()
        await ids.report()
        fresh_valkey.start()
        while await counted(system, keys.feedback) == 0:
            await ids.report()
        await ids.report()
        assert await counted(system, keys.feedback) == 2
        ids.add(model, ["unknown"])
        await ids.close()
        assert await counted(system, keys.feedback) == 3


async def test_nothing_is_left_of_a_model_that_was_deleted(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey)) as system:
        model = await system.model(SMALL)
        keys, ids = model.mirror.replica.keys, UnknownIds(system.topology)
        ids.add(model, ["unknown"])
        await system.models.delete(model.name)
        await ids.close()
        assert not await system.client.exists(keys.feedback)
