"""A model whose predictions wait, without HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from model_core.examples.batch import ExampleBatch
from service.feedback.store import Label, PendingStore, Swept, entries_of, key_of
from service.models.config.sections import FeedbackConfig
from service.storage.channel import Channel
from service.storage.records import LogEntry, ModelKeys
from service.storage.scripts.feedback import Labelled
from service.storage.scripts.models import create_model
from service.storage.topology import Topology, connect
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.waiting import until

KEYS = ModelKeys("clicks", "0123456789abcdef")
META: dict[str, str | bytes | int] = {"incarnation": KEYS.incarnation, "appended": 0, "applied_number": 0}
SHORT = {"window_seconds": 1, "unshown_seconds": 1, "grace_seconds": 1, "late_seconds": 1}
MARGIN = -1.25


def id_of(number: int) -> bytes:
    return number.to_bytes(12, "big") + (number * 2654435761 % 2**32).to_bytes(4, "little")


def prediction(number: int, features: Sequence[int]) -> list[bytes]:
    """Its key and its value."""
    batch = ExampleBatch.from_encoded([([*features, number], None)])
    return entries_of([id_of(number)], batch, np.array([MARGIN]), 7, b"token")


class Bench:
    """The verbs over one connection; `restart` comes with another configuration."""

    def __init__(self, topology: Topology, settings: Any, **config: Any) -> None:
        self.topology = topology
        self.channel = Channel(topology)
        self._pending = PendingStore(KEYS, FeedbackConfig.from_json(SHORT | config), settings)

    async def log(self, *numbers: int, check: bool = True, features: Sequence[int] = (1, 2, 3)) -> str:
        entries = [part for number in numbers for part in prediction(number, features)]
        return "".join(outcome.value for outcome in await self._pending.log(self.channel, entries, check))

    async def log_batch(self, first: int, batch: ExampleBatch, check: bool = False) -> str:
        """Predictions with these features, numbered from `first`."""
        ids = [id_of(number) for number in range(first, first + len(batch))]
        entries = entries_of(ids, batch, np.full(len(batch), MARGIN), 7, b"token")
        return "".join(outcome.value for outcome in await self._pending.log(self.channel, entries, check))

    async def expose(self, *numbers: int) -> str:
        outcomes = await self._pending.expose(self.channel, [key_of(id_of(number)) for number in numbers])
        return "".join(outcome.value for outcome in outcomes)

    async def label(self, *labels: tuple[int, float], weight: float = 1.0) -> str:
        return "".join(one.outcome.value for one in await self.labelled(*labels, weight=weight))

    async def labelled(self, *labels: tuple[int, float], weight: float = 1.0) -> list[Labelled]:
        asked = [Label(key_of(id_of(number)), label, weight) for number, label in labels]
        return await self._pending.label(self.channel, asked)

    async def sweep(self, max_closed: int = 500) -> Swept:
        return await self._pending.sweep(self.channel, max_closed)

    async def swept(self, stage: str) -> Swept:
        """Sweeps until nothing is left at the stage."""

        async def nothing_left() -> Swept | None:
            swept = await self.sweep()
            return None if swept.pending[stage] else swept

        return await until(nothing_left, f"nothing is left at the stage {stage!r}")

    async def clock(self) -> float:
        """The server's time in seconds."""
        seconds, microseconds = await self.channel.call("TIME")
        return int(seconds) + int(microseconds) / 1e6

    async def pass_time(self, seconds: float) -> None:
        """Wait until the server's clock has advanced so far."""
        began = await self.clock()

        async def has_passed() -> bool:
            return await self.clock() >= began + seconds

        await until(has_passed)

    async def logged(self) -> ExampleBatch:
        """The examples of the log."""
        found = await self.channel.call("XRANGE", KEYS.log, "-", "+")
        entries = [LogEntry.parse(entry, fields) for entry, fields in found]
        numbers = [entry.first_number for entry in entries]
        counts = [entry.examples for entry in entries]
        assert numbers == [sum(counts[:k]) for k in range(len(counts))], "the numbers are dense"
        assert int(await self.channel.call("HGET", KEYS.meta, "appended")) == sum(counts)
        return ExampleBatch.from_bytes(b"".join(entry.records for entry in entries))

    async def lists(self) -> list[str]:
        """Kinds and times of the lists of what waits."""
        found = await self.channel.call("KEYS", f"{KEYS.due_prefix}*")
        return sorted(key.decode().removeprefix(KEYS.due_prefix) for key in found)

    async def keys(self) -> list[bytes]:
        found = [
            await self.channel.call("KEYS", f"{key}*") for key in (KEYS.impressions_prefix, KEYS.due_prefix)
        ]
        return sorted(key for keys in found for key in keys)


@contextlib.asynccontextmanager
async def benches(
    server: ServerProcess, make_settings: SettingsFactory
) -> AsyncIterator[Callable[..., Bench]]:
    topology = connect(make_settings(server), server.url)
    made: list[Bench] = []

    def make(settings: dict[str, Any] | None = None, **config: Any) -> Bench:
        made.append(Bench(topology, make_settings(server, **(settings or {})), **config))
        return made[-1]

    channel = Channel(topology)
    await create_model(channel, KEYS.model, META)
    await channel.close()
    yield make
    for bench in made:
        await bench.channel.close()
    await topology.close()


@pytest.fixture
async def make_bench(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> AsyncIterator[Callable[..., Bench]]:
    async with benches(valkey, make_settings) as make:
        yield make


@pytest.fixture
async def make_bench_on_any(
    any_server: ServerProcess, make_settings: SettingsFactory
) -> AsyncIterator[Callable[..., Bench]]:
    """On a server of the test's own, of each kind."""
    async with benches(any_server, make_settings) as make:
        yield make
