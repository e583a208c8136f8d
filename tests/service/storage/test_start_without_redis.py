"""A process that starts before its Redis is ready."""

from __future__ import annotations

import asyncio
import logging

import pytest

from service.app import build_services
from service.telemetry.metrics import Metrics
from tests.conftest import SettingsFactory
from tests.support.waiting import until


async def test_the_reason_is_logged_once(
    make_settings: SettingsFactory, caplog: pytest.LogCaptureFixture
) -> None:
    commands = 0

    async def load(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal commands
        while await reader.read(4096):
            commands += 1
            writer.write(b"-LOADING Redis is loading the dataset in memory\r\n")
        writer.close()

    loading = await asyncio.start_server(load, "127.0.0.1", 0)
    port = loading.sockets[0].getsockname()[1]
    settings = make_settings(redis_url=f"redis://127.0.0.1:{port}")
    _, lifecycle = build_services(settings, Metrics(), run_learner=False)
    with caplog.at_level(logging.WARNING, "service.api.services"):
        async with loading, lifecycle.run():
            await until(lambda: commands >= 3)
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == ["Redis is not ready"]
