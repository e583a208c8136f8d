"""Requests that share an append do not share their fate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from redis.asyncio import Redis

from model_core.examples.batch import ExampleBatch
from service.errors import UpdateUnavailable
from service.example_log.appender import EXAMPLES_PER_TURN, Appender, Placed
from service.example_log.incoming import NewExamples
from service.storage.channel import Channel
from service.storage.records import LogEntry, ModelKeys
from service.storage.topology import Topology, connect
from service.telemetry.metrics import Metrics
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess

KEYS = ModelKeys("clicks", "0123456789abcdef")
META: dict[str, str | bytes | int] = {"incarnation": KEYS.incarnation, "appended": 0, "applied_number": 0}
LONG = 60.0


class Setting(NamedTuple):
    """`client`: for the test's own reads."""

    server: ServerProcess
    client: Redis
    topology: Topology
    appender: Appender

    def start(self, event_id: str, seconds: float) -> asyncio.Task[Placed]:
        """Requests that are started in one turn of the loop share an append."""
        new = NewExamples(ExampleBatch.from_encoded([([1, 2], None)], [1]), [event_id])
        return asyncio.create_task(self.appender.append(new, time.monotonic() + seconds))

    async def appended(self) -> int:
        return int(await self.client.hget(KEYS.meta, "appended") or 0)


@pytest.fixture
async def setting(fresh_valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[Setting]:
    settings = make_settings(fresh_valkey, redis_timeout_seconds=0.1)
    topology, own = connect(settings, fresh_valkey.url), fresh_valkey.async_client()
    await own.hset(KEYS.meta, mapping=dict(META.items()))
    appender = Appender(topology, KEYS, settings, Metrics())
    yield Setting(fresh_valkey, own, topology, appender)
    await appender.close()
    await topology.close()
    await own.aclose()


async def test_who_has_time_left_is_appended_without_those_who_had_none(setting: Setting) -> None:
    setting.server.stop()
    hasty, patient, other = (setting.start(*who) for who in (("a", 0.3), ("b", LONG), ("c", LONG)))
    with pytest.raises(UpdateUnavailable) as refused:
        await hasty
    assert (refused.value.outcome, refused.value.event_ids) == ("not_appended", ["a"])
    setting.server.start()
    assert [placed.event_ids for placed in await asyncio.gather(patient, other)] == [["b"], ["c"]]
    assert await setting.appended() == 2
    (again,) = (await setting.start("a", LONG)).places
    assert not again.duplicate


async def test_a_large_request_is_appended_in_order_and_each_event_once(setting: Setting) -> None:
    size = 3 * EXAMPLES_PER_TURN
    event_ids = [None if k % 3 else f"event {k % (size // 2)}" for k in range(size)]
    batch = ExampleBatch.from_encoded([([k], None) for k in range(size)])
    placed = await setting.appender.append(NewExamples(batch, event_ids), time.monotonic() + LONG)
    assert len(set(placed.event_ids)) == size - size // 6
    assert all(sent in (None, answered) for sent, answered in zip(event_ids, placed.event_ids, strict=True))
    channel = Channel(setting.topology)  # redis-py merges equal fields of an entry
    entries = [LogEntry.parse(*entry) for entry in await channel.call("XRANGE", KEYS.log, "-", "+")]
    await channel.close()
    logged = ExampleBatch.from_bytes(b"".join(entry.records for entry in entries))
    assert logged.hashes.tolist() == [k for k in range(size) if k % 3 or k < size // 2]


async def test_where_the_outcome_is_not_known_all_are_appended_once(setting: Setting) -> None:
    await setting.start("first", LONG)
    setting.server.pause()
    hasty, patient = setting.start("a", 1.0), setting.start("b", LONG)
    with pytest.raises(UpdateUnavailable) as refused:
        await hasty
    assert (refused.value.outcome, refused.value.event_ids) == ("unknown", ["a"])
    setting.server.resume()
    assert (await patient).event_ids == ["b"]
    await asyncio.gather(setting.start("a", LONG), setting.start("b", LONG))
    assert await setting.appended() == 3


async def test_a_request_whose_client_left_does_not_hold_up_the_others(setting: Setting) -> None:
    setting.server.stop()
    left, patient = setting.start("a", LONG), setting.start("b", LONG)
    await asyncio.sleep(0)
    left.cancel()
    setting.server.start()
    assert (await patient).event_ids == ["b"]


@pytest.mark.parametrize("odd", ["ftrl-" + "ab" * 15 + "  ", "ftrl-" + "AB" * 16, "ftrl-" + "é" * 32])
async def test_an_id_similar_to_generated_ones_harms_no_other_example(setting: Setting, odd: str) -> None:
    placed = await asyncio.gather(setting.start(odd, LONG), setting.start("b", LONG))
    assert [one.event_ids for one in placed] == [[odd], ["b"]]
    assert await setting.appended() == 2
