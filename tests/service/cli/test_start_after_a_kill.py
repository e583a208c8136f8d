"""The start on a data directory whose processes were killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from service.settings import Settings
from service.storage.embedded import EmbeddedServer
from service.storage.records import lease_key
from tests.support.commands import ServingProcess

EXAMPLE = {"features": {"ad": "shoes"}, "label": 1}
FOREVER = ("--lease-seconds", "3600", "--update-timeout-seconds", "60")


@contextmanager
def serving(directory: Path) -> Iterator[ServingProcess]:
    process = ServingProcess("serve", *FOREVER, directory=directory)
    try:
        yield process
    finally:
        process.remove()


@pytest.mark.slow
@pytest.mark.parametrize("server_too", [True, False], ids=["with-server", "without-server"])
def test_the_lease_of_a_killed_process_is_not_awaited(tmp_path: Path, server_too: bool) -> None:
    server = EmbeddedServer(Settings(data_dir=tmp_path / "data"))
    with serving(tmp_path) as service:
        service.wait_until_ready()
        assert service.post("/update", EXAMPLE)["status"] == "learned"
        service.process.kill()
        service.process.wait()
        if server_too:
            os.kill(server.pid, signal.SIGKILL)
    with serving(tmp_path) as service:
        service.wait_until_ready()
        assert service.post("/update", EXAMPLE)["status"] == "learned"
        assert service.stop() == 0


def test_a_start_takes_no_lease_while_another_process_uses_the_server(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    with EmbeddedServer(settings) as server, redis.Redis.from_url(server.url) as client:
        client.sadd("ftrl:models", "clicks")
        client.set(lease_key("clicks"), "its learner")
        with EmbeddedServer(settings):
            assert client.get(lease_key("clicks")) == b"its learner"
    with EmbeddedServer(settings) as server, redis.Redis.from_url(server.url) as client:
        assert client.get(lease_key("clicks")) is None
