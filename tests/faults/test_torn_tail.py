"""A crash cuts the append-only file inside a transaction. Some servers leave the first half of that in the
file, and run it at the restart after next.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from service.settings import Settings
from service.storage.records import meta_key
from tests.conftest import PATIENT, ServerFactory, SettingsFactory
from tests.support.append_only_file import cut_after_last
from tests.support.invariants import assert_learned_once
from tests.support.servers import ServerProcess
from tests.support.system import System
from tests.support.waiting import until

pytestmark = pytest.mark.faults

NEVER_REWRITTEN = {"rename_command": 'BGREWRITEAOF ""'}


@pytest.fixture
def server(server_factory: ServerFactory) -> ServerProcess:
    """One that has the defect, and does not let the service mend its file."""
    return server_factory(kind="redis", appendfsync="always", **NEVER_REWRITTEN)


@pytest.fixture
def settings(server: ServerProcess, make_settings: SettingsFactory) -> Settings:
    return make_settings(server, **PATIENT)


async def append(settings: Settings, start: int, *, learn: bool = False) -> None:
    """Adds one example, in a process of its own."""
    async with System(settings) as system:
        if learn:
            system.learn()
        model = await system.model(name="default")
        (result,) = await system.update(model, 1, start, wait=learn, event_ids=True)
        assert result.status == ("learned" if learn else "appended")


def entries_of(server: ServerProcess) -> Sequence[object]:
    with server.client() as client:
        (log,) = client.scan_iter("ftrl:{default}:*:log")
        return client.xrange(log)


async def assert_learned(settings: Settings, server: ServerProcess, *events: int) -> None:
    async with System(settings) as system:
        system.learn()
        await until(lambda: len(entries_of(server)) == len(events), "the half is removed")
        await assert_learned_once(server, [f"event-{event}" for event in events])


@pytest.mark.parametrize("learned", [False, True], ids=["before it is learned", "after it was learned"])
async def test_half_an_append_that_runs_later_is_removed(
    server: ServerProcess, settings: Settings, learned: bool
) -> None:
    await append(settings, 0)
    await append(settings, 1)
    await cut_after_last(server, b"XADD")
    assert len(entries_of(server)) == 1
    await append(settings, 1, learn=learned)
    await append(settings, 2, learn=learned)
    server.restart()
    assert len(entries_of(server)) == 4, "this server does not have the defect"
    await assert_learned(settings, server, 0, 1, 2)


async def test_an_event_claimed_by_a_torn_append_is_learned_on_retry(
    server: ServerProcess, settings: Settings
) -> None:
    await append(settings, 0)
    await append(settings, 1)
    await cut_after_last(server, b"HSET")  # the claims; the number of examples comes later
    await append(settings, 2)
    server.restart()
    assert len(entries_of(server)) == 3, "this server does not have the defect"
    async with System(settings) as system:
        system.learn()
        model = await system.model(name="default")

        async def is_learned() -> bool:
            results = await system.update(model, 2, 1, event_ids=True)
            return [result.status for result in results] == ["learned", "duplicate"]

        await until(lambda: len(entries_of(server)) == 2, "the half is removed")
        await until(is_learned, "it is learned")
        await assert_learned_once(server, ["event-0", "event-1", "event-2"])


async def test_half_an_append_at_the_end_of_the_log_is_removed(
    server: ServerProcess, settings: Settings
) -> None:
    await append(settings, 0)
    await append(settings, 1)
    await cut_after_last(server, b"XADD")
    with server.client() as client:
        client.eval(
            "redis.call('HSET', KEYS[1], 'a', 1) redis.call('HDEL', KEYS[1], 'a')", 1, meta_key("default")
        )
    server.restart()
    assert len(entries_of(server)) == 2, "this server does not have the defect"
    await assert_learned(settings, server, 0)


async def test_the_file_is_rewritten_after_a_start(
    server: ServerProcess, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    await append(settings, 0)
    await append(settings, 1)
    for option in NEVER_REWRITTEN:  # from the next start on, so that there is one file to cut
        del server.config[option.replace("_", "-")]
    await cut_after_last(server, b"XADD")
    async with System(settings):
        assert "may run half of a transaction" in caplog.text
        with server.client() as client:
            await until(
                lambda: client.info("persistence")["aof_last_rewrite_time_sec"] >= 0, "it is rewritten"
            )
    await append(settings, 1)
    server.restart()
    assert len(entries_of(server)) == 2
    await assert_learned(settings, server, 0, 1)
