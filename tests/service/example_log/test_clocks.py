"""Event ids and the ids of log entries while clocks jump."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from service.example_log.stream import ExampleLog
from service.storage.channel import Channel
from service.storage.records import LogId
from service.storage.scripts.log import read_lag
from service.storage.scripts.models import create_model, delete_model
from service.storage.topology import Topology, connect
from tests.conftest import PATIENT, ServerFactory, SettingsFactory
from tests.service.example_log.test_example_log import KEYS, META, batch_of, soon
from tests.support.server_clock import CallerClock, ServerClock

HOUR = 3600


class Log:
    """The log of a model on a server whose clock the test sets."""

    def __init__(self, topology: Topology, clock: ServerClock, make: Callable[[float], ExampleLog]) -> None:
        self._topology = topology
        self._make = make
        self.clock = clock
        self.channel = Channel(topology)
        self.caller = CallerClock()
        topology.clock = self.caller

    def remember(self, seconds: float) -> None:
        self._log = self._make(seconds)

    async def is_new(self, event_id: str) -> bool:
        (place,) = await self._log.append(batch_of(event_id), soon())
        return not place.duplicate

    async def jump(self, seconds: int) -> None:
        """Both clocks are set, or time has passed."""
        self.caller.ahead_seconds = seconds
        await self.clock.jump(self.channel, seconds)

    async def buckets(self) -> int:
        return len(await self.channel.call("KEYS", f"{KEYS.events_prefix}*"))

    async def entries(self) -> list[LogId]:
        return [LogId.parse(entry) for entry, _ in await self.channel.call("XRANGE", KEYS.log, "-", "+")]


@pytest.fixture
async def log(
    server_factory: ServerFactory,
    make_settings: SettingsFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Log]:
    clock = ServerClock(tmp_path)
    with monkeypatch.context() as environment:
        for name, value in clock.environment.items():
            environment.setenv(name, value)
        server = server_factory(appendonly=False)
    topology = connect(make_settings(server), server.url)
    made: list[ExampleLog] = []

    def make(seconds: float) -> ExampleLog:
        settings = make_settings(server, event_id_retention_seconds=seconds, **PATIENT)
        made.append(ExampleLog(topology, KEYS, settings))
        return made[-1]

    log = Log(topology, clock, make)
    log.remember(HOUR)
    await create_model(log.channel, KEYS.model, META | {"generation": 0, "applied": "0-0"})
    yield log
    for one in made:
        await one.close()
    await log.channel.close()
    await topology.close()


@pytest.mark.parametrize("hours", [1, 24, 24 * 90])
async def test_event_ids_are_kept_in_few_buckets_for_long_enough(log: Log, hours: int) -> None:
    log.remember(HOUR * hours)
    assert await log.is_new("first")
    step = max(1, hours // 12)
    for passed in range(step, hours, step):
        await log.jump(HOUR * passed)
        assert await log.is_new(f"{passed}")
        assert not await log.is_new("first")
        assert await log.buckets() <= 10
    await log.jump(HOUR * (hours + step) + HOUR * 3)
    assert await log.is_new("the last bucket of its time ends")
    await log.jump(HOUR * 3 * (hours + 2))
    assert await log.is_new("later")
    assert await log.is_new("first")
    assert await log.buckets() <= 2


async def test_an_event_id_is_known_after_the_server_was_ahead(log: Log) -> None:
    assert await log.is_new("before")
    await log.clock.jump(log.channel, 2 * HOUR)
    assert await log.is_new("meanwhile")
    assert not await log.is_new("before")
    await log.clock.jump(log.channel, 0)
    assert [await log.is_new(one) for one in ("before", "meanwhile")] == [False, False]


@pytest.mark.parametrize("days", [3, -3], ids=["set ahead and back", "set back"])
async def test_an_event_id_is_known_after_all_clocks_were_set(log: Log, days: int) -> None:
    if days > 0:
        await log.jump(24 * HOUR * days)
    assert await log.is_new("click")
    await log.jump(min(0, 24 * HOUR * days))
    assert not await log.is_new("click")


async def test_times_of_entries_follow_no_jump_of_the_server_and_never_go_back(log: Log) -> None:
    for number, ahead in enumerate((0, 72 * HOUR, 0, -3 * HOUR, 0)):
        await log.clock.jump(log.channel, ahead)
        assert await log.is_new(f"{number}")
    entries = await log.entries()
    assert entries == sorted(set(entries))
    assert entries[-1].milliseconds - entries[0].milliseconds < 60 * 1000
    assert (await read_lag(log.channel, KEYS)).oldest_ms < 60 * 1000


async def test_times_of_entries_do_not_stand_still_after_all_clocks_were_set_back(log: Log) -> None:
    await log.jump(72 * HOUR)
    assert await log.is_new("before")
    for number, seconds in enumerate((0, 600, 1200)):
        await log.jump(seconds)
        assert await log.is_new(f"{number}")
    before, *after = await log.entries()
    assert after[0].milliseconds - before.milliseconds < 60 * 1000
    assert [later.milliseconds - one.milliseconds >= 5000 for one, later in pairwise(after)] == [True, True]


async def test_entries_go_on_after_one_that_is_ahead_of_the_time(log: Log) -> None:
    """As a version wrote it that took its ids from a server that was ahead."""
    await log.channel.call("XADD", KEYS.log, "99999999999999-7", "foo", "bar")
    assert await log.is_new("click")
    assert (await log.entries())[1] == LogId(99999999999999, 8)


async def test_event_ids_go_with_their_model(log: Log) -> None:
    assert await log.is_new("click")
    assert await delete_model(log.channel, KEYS)
    assert await log.buckets() == 0
