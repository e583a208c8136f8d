"""Fixtures for the tests of learning."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from service.models.config.model import ModelConfig
from service.models.mirror import Mirror
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.system import System


@pytest.fixture
async def mirror(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[Mirror]:
    """That of an empty model `clicks`."""
    async with System(make_settings(valkey)) as system:
        await system.model(ModelConfig.from_json({"hashing": {"bits": 10}}))
        mirror = await Mirror.open(system.topology, "clicks")
        yield mirror
        await mirror.close()
