"""What a server refuses is found before anything depends on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from service.settings import Settings
from service.storage.channel import open_channel
from service.storage.fitness import refusals
from tests.conftest import ServerFactory
from tests.support.servers import Kind, ServerProcess
from tests.support.shared_data import REPOSITORY

PASSWORD = "only-for-this-test"
OPTIONAL = {"+bgrewriteaof", "+info", "+memory|usage"}  # INFO is sent before, and the others are not needed
OF_NAMES = re.compile(r"\+z")  # without sorted sets only the names of features are missing


async def refused_by(server: ServerProcess, **settings: str) -> list[str]:
    found = Settings(redis_url=server.url, redis_timeout_seconds=4, **settings)  # type: ignore[arg-type]
    async with open_channel(found) as channel:
        return await refusals(channel)


def documented_rights() -> list[str]:
    found = re.search(r"^ACL SETUSER ftrl (.*)$", (REPOSITORY / "docs/redis.md").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].replace("PASSWORD", PASSWORD).split()


@contextmanager
def user_with(server: ServerProcess, *rights: str) -> Iterator[dict[str, str]]:
    """Yields the settings of a user of that server."""
    with server.client() as admin:
        admin.execute_command("ACL SETUSER ftrl reset", *rights)
        yield {"redis_username": "ftrl", "redis_password": PASSWORD}


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_a_server_with_all_commands_refuses_nothing(server_factory: ServerFactory, kind: Kind) -> None:
    server = server_factory(kind=kind)
    assert await refused_by(server) == []
    with server.client() as client:
        assert client.keys("*") == []


async def test_a_full_server_refuses_nothing(server_factory: ServerFactory) -> None:
    assert await refused_by(server_factory(maxmemory=1)) == []


async def test_each_right_that_a_user_lacks_is_named(fresh_valkey: ServerProcess) -> None:
    rights = documented_rights()
    for right in {one for one in rights if one.startswith("+") and not OF_NAMES.match(one)} - OPTIONAL:
        with user_with(fresh_valkey, *rights, "-" + right[1:]) as user:
            refused = await refused_by(fresh_valkey, **user)
        name = right[1:].partition("|")[0].upper()
        assert refused, right
        assert all(name in one.upper() for one in refused), (right, refused)


async def test_keys_that_scripts_derive_must_be_allowed(fresh_valkey: ServerProcess) -> None:
    declared = ("~ftrl:{-}:probe", "on", f">{PASSWORD}", "+@all")
    with user_with(fresh_valkey, *declared) as user:
        assert any(one.startswith("EXISTS in a script") for one in await refused_by(fresh_valkey, **user))
