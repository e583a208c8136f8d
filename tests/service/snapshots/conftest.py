"""A model that a learner in the test's own loop has learned 60 examples of."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from service.models.registry import OpenModel
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.snapshot_systems import CONFIG
from tests.support.system import System


@pytest.fixture
async def system(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[System]:
    """Nothing learns until the test, or `model`, lets it."""
    async with System(make_settings(valkey)) as system:
        yield system


@pytest.fixture
async def model(system: System) -> OpenModel:
    system.learn()
    model = await system.model(CONFIG)
    await system.update(model, 60)
    return model
