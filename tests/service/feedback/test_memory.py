"""What an impression of 39 categories takes of a server, and what `max_bytes` counts for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from service.storage.scripts.models import create_model
from tests.conftest import ServerFactory, SettingsFactory
from tests.service.feedback.conftest import KEYS, META, Bench, benches
from tests.support.servers import Kind

TOGETHER = 500
SIZES = (10_000, 14_000, 15_000, 20_000, 28_000, 29_000, 30_000, 40_000)
"""At 14,336, 28,672, ... one hash would double its table, and take 18 bytes more for each on Valkey."""
LONG = {"window_seconds": 1800, "unshown_seconds": 600, "grace_seconds": 60, "late_seconds": 1800}
Measure = Callable[..., Awaitable["Measured"]]


class Taken(NamedTuple):
    """Bytes a prediction: really, and as counted."""

    used: float
    counted: float


class Measured:
    """A bench on a server of its own, which has run every script before: it keeps something of each."""

    def __init__(self, bench: Bench, exposure: str) -> None:
        self.bench = bench
        self._exposure = exposure
        self._before = self._count = 0

    async def begin(self) -> None:
        channel = self.bench.channel
        await channel.call(
            "CONFIG", "SET", "slowlog-log-slower-than", -1
        )  # it would keep what slow calls carried
        await self.fill(TOGETHER)
        await self.label()
        await self.bench.sweep()
        await self._used()
        await channel.call("FLUSHALL", "SYNC")
        await create_model(channel, KEYS.model, META)
        self._before, self._count = await self._used(), 0

    async def fill(self, count: int) -> None:
        """Until so many are open."""
        while self._count < count:
            numbers = range(self._count, self._count + TOGETHER)
            assert await self.bench.log(*numbers, features=range(38), check=False) == "L" * TOGETHER
            if self._exposure == "explicit":
                assert await self.bench.expose(*numbers) == "S" * TOGETHER
            self._count += TOGETHER

    async def label(self) -> None:
        """All."""
        for start in range(0, self._count, TOGETHER):
            numbers = range(start, start + TOGETHER)
            assert await self.bench.label(*((number, 1) for number in numbers)) == "W" * TOGETHER

    async def taken(self) -> Taken:
        counted = (await self.bench.sweep()).bytes
        return Taken((await self._used() - self._before) / self._count, counted / self._count)

    async def _used(self) -> int:
        """Without the log and the buffers of connections."""
        lines = (await self.bench.channel.call("INFO", "memory")).decode().splitlines()
        info = dict(line.split(":") for line in lines if ":" in line)
        log = await self.bench.channel.call("MEMORY", "USAGE", KEYS.log, "SAMPLES", 0) or 0
        return int(info["used_memory"]) - int(info["mem_clients_normal"]) - int(log)


@pytest.fixture
async def measure(
    server_factory: ServerFactory, make_settings: SettingsFactory
) -> AsyncIterator[Callable[..., Awaitable[Measured]]]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(kind: Kind, exposure: str, **config: Any) -> Measured:
            make_bench = await stack.enter_async_context(
                benches(server_factory(kind=kind, appendonly=False), make_settings)
            )
            bench = make_bench(exposure=exposure, max_bytes=1 << 28, **(LONG | config))
            measured = Measured(bench, exposure)
            await measured.begin()
            return measured

        yield make


def assert_within_250_and_what_is_counted(taken: Taken) -> None:
    assert taken.used <= 250, taken
    assert taken.used <= taken.counted <= 1.1 * taken.used, taken


@pytest.mark.slow
@pytest.mark.parametrize("exposure", ["explicit", "on_predict"])
async def test_an_impression_of_39_categories_takes_at_most_250_bytes(
    measure: Measure, exposure: str
) -> None:
    measured = await measure("valkey", exposure)
    for size in SIZES:
        await measured.fill(size)
        assert_within_250_and_what_is_counted(await measured.taken())
    await measured.label()
    assert_within_250_and_what_is_counted(await measured.taken())


@pytest.mark.slow
async def test_redis_7_takes_a_little_more_than_that(measure: Measure) -> None:
    measured = await measure("redis", "explicit")
    version = (await measured.bench.channel.info("server"))["redis_version"]
    if not version.startswith("7."):
        pytest.skip(f"measured of Redis 7, and this is {version}")
    for size in SIZES:
        await measured.fill(size)
        taken = await measured.taken()
        assert taken.used <= 270, (size, taken)
        assert taken.counted == pytest.approx(taken.used, rel=0.1), (size, taken)


@pytest.mark.parametrize(("late", "most"), [("drop", 75), ("append", 250)])
async def test_a_closed_impression_is_small_unless_late_clicks_are_learned(
    measure: Measure, late: str, most: int
) -> None:
    measured = await measure("valkey", "on_predict", window_seconds=1, late=late)
    await measured.fill(10_000)
    await measured.bench.swept("open")
    taken = await measured.taken()
    assert taken.used <= most, taken
    assert taken.used <= taken.counted, taken
