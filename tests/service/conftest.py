"""What tests with a `system` of their own share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from service.storage.channel import Channel
from tests.support.system import System


@pytest.fixture
async def channel(system: System) -> AsyncIterator[Channel]:
    """A connection for the test's own looks."""
    channel = Channel(system.topology)
    yield channel
    await channel.close()
