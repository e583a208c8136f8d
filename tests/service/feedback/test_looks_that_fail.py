"""Predictions that are looked for elsewhere before they are kept, and what may happen meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from model_core.examples.batch import ExampleBatch
from service.feedback.labels import keep_predictions
from service.feedback.recorder import Keeper
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.system import System
from tests.support.waiting import until

BATCH = ExampleBatch.from_encoded([([1, 2], None)])


def config(*, wait: bool) -> ModelConfig:
    return ModelConfig.from_json({"hashing": {"bits": 12}, "feedback": {"log": True, "wait": wait}})


async def keep(system: System, model: OpenModel, elsewhere: Callable[[], Awaitable[str]]) -> bool:
    _, logged = await keep_predictions(system.feedback, model, BATCH, np.zeros(1), ["a"], {}, elsewhere)
    return logged[0]


def is_idle(keeper: Keeper) -> bool:
    return keeper._requests._working is None and not keeper._channel.connected


@pytest.mark.parametrize("wait", [True, False])
async def test_a_model_that_is_deleted_meanwhile_keeps_none_and_has_no_connection_left(
    fresh_valkey: ServerProcess, make_settings: SettingsFactory, wait: bool
) -> None:
    async with System(make_settings(fresh_valkey)) as system:
        model = await system.model(config(wait=wait))
        keeper = system.feedback.of(model).predictions
        found = asyncio.Event()

        async def look() -> str:
            await found.wait()
            return "U"

        keeping = asyncio.create_task(keep(system, model, look))
        await system.models.delete(model.name)
        await until(lambda: keeper._closed)
        found.set()
        assert await keeping is not wait, "whoever does not wait was told before"
        await until(lambda: is_idle(keeper))


async def test_what_nobody_foresaw_is_logged_and_takes_no_memory_for_good(
    fresh_valkey: ServerProcess, make_settings: SettingsFactory, caplog: pytest.LogCaptureFixture
) -> None:
    async with System(make_settings(fresh_valkey)) as system:
        model = await system.model(config(wait=False))
        keeper = system.feedback.of(model).predictions

        async def look() -> str:
            raise ZeroDivisionError

        assert await keep(system, model, look)
        assert keeper._pending_bytes > 0
        await until(lambda: keeper._pending_bytes == 0)
        await until(lambda: "are not kept" in caplog.text)
