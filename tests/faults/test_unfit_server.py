"""A server that may evict keys would lose a model without a word: it is refused."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import ServerFactory
from tests.support.processes import Launch, ready
from tests.support.servers import ServerProcess
from tests.support.waiting import until

pytestmark = pytest.mark.faults


@pytest.fixture
def evicting(server_factory: ServerFactory) -> ServerProcess:
    return server_factory(start=False, maxmemory="100mb", maxmemory_policy="allkeys-lru")


def test_an_api_process_does_not_start_on_an_evicting_server(evicting: ServerProcess, launch: Launch) -> None:
    evicting.start()
    # Patient: a process that gets no answer in time waits for the server instead.
    process = launch("api", evicting.url, redis_timeout_seconds=5, lease_seconds=11)
    assert process.wait() == 1
    (line,) = [line for line in process.errors if line.startswith("ftrl: ")]
    assert "maxmemory-policy allkeys-lru" in line
    assert "Set `maxmemory-policy noeviction` there" in line
    with evicting.client() as client:
        assert client.keys("*") == []


async def test_a_process_waits_until_the_server_no_longer_evicts(
    evicting: ServerProcess, launch: Launch
) -> None:
    service = launch("serve", evicting.url)
    await until(lambda: service.logged("Redis is not ready"), "it waits")
    await asyncio.to_thread(evicting.start)
    await until(lambda: service.logged("maxmemory-policy allkeys-lru"), "it says why it does not begin")
    assert service.process.poll() is None
    with evicting.client() as client:
        assert client.keys("*") == []
        client.config_set("maxmemory-policy", "noeviction")
    await ready(service)
    assert service.post("/update", {"features": {}, "label": 1})["status"] in ("learned", "appended")
