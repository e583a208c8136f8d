"""A server that may evict keys, and so lose a model silently, or that lacks commands is refused."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.conftest import ServerFactory
from tests.support.processes import Launch, ready
from tests.support.servers import ServerProcess
from tests.support.waiting import until

pytestmark = pytest.mark.faults

USER = "ACL SETUSER ftrl on >only-for-this-test ~ftrl:* +@all"


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


def test_a_start_names_the_commands_that_a_server_lacks(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory(rename_command='XTRIM ""')
    process = launch("api", server.url, redis_timeout_seconds=5, lease_seconds=11)
    assert process.wait() == 1
    (line,) = [line for line in process.errors if line.startswith("ftrl: ")]
    assert "XTRIM (unknown command 'XTRIM')" in line
    assert "docs/redis.md" in line


async def test_readiness_names_what_a_server_refuses(fresh_valkey: ServerProcess, launch: Launch) -> None:
    fresh_valkey.pause()
    service = launch("serve", fresh_valkey.url, redis_username="ftrl", redis_password="only-for-this-test")
    await until(lambda: service.logged("Redis is not ready"), "it waits for the server")
    fresh_valkey.resume()
    with fresh_valkey.client() as admin:
        admin.execute_command(f"{USER} -xtrim")
        await until(lambda: service.logged("refuses what the service needs"), "it says why it waits")
        reply = await asyncio.to_thread(httpx.get, f"{service.url}/readyz")
        assert reply.status_code == 503
        assert any("XTRIM" in reason for reason in reply.json()["reasons"])
        admin.execute_command(USER)
        await ready(service)
