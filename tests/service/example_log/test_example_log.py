"""Appending: durable, ordered, once, whatever is repeated."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import NamedTuple

import pytest
from redis.asyncio import Redis

from model_core.examples.batch import ExampleBatch
from service.errors import LogFull, UpdateUnavailable
from service.example_log.stream import (
    MAX_ENTRY_BYTES,
    ExampleLog,
    MicroBatch,
    Place,
    examples_of,
    parse_receipt,
    share_out,
)
from service.models.replica import ModelGone
from service.storage.channel import Channel
from service.storage.records import LogEntry, LogId, ModelKeys
from service.storage.scripts.models import create_model
from service.storage.topology import Topology, connect
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess

WEEK = 7 * 24 * 3600
KEYS = ModelKeys("clicks", "0123456789abcdef")
META: dict[str, str | bytes | int] = {"incarnation": KEYS.incarnation, "appended": 0, "applied_number": 0}


class LogUnderTest(NamedTuple):
    topology: Topology
    client: Redis
    make: Callable[..., ExampleLog]

    async def entries(self) -> list[LogEntry]:
        channel = Channel(self.topology)
        found = await channel.call("XRANGE", KEYS.log, "-", "+")
        await channel.close()
        return [LogEntry.parse(entry, fields) for entry, fields in found]


@pytest.fixture
async def logs(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[LogUnderTest]:
    topology = connect(make_settings(valkey), valkey.url)
    made: list[ExampleLog] = []

    def make(**overrides: object) -> ExampleLog:
        made.append(ExampleLog(topology, KEYS, make_settings(valkey, **overrides)))
        return made[-1]

    channel = Channel(topology)
    await create_model(channel, KEYS.model, META)
    await channel.close()
    client = valkey.async_client()
    yield LogUnderTest(topology, client, make)
    await client.aclose()
    for log in made:
        await log.close()
    await topology.close()


def batch_of(*event_ids: str | None, features: int = 2) -> MicroBatch:
    batch = MicroBatch()
    encoded = [(list(range(i, i + features)), None) for i in range(len(event_ids))]
    batch.extend(ExampleBatch.from_encoded(encoded, [i % 2 for i in range(len(event_ids))]), event_ids)
    return batch


def soon() -> float:
    return time.monotonic() + 20.0


async def test_examples_are_appended_in_order_with_dense_numbers(logs: LogUnderTest) -> None:
    log = logs.make()
    three, two = batch_of(None, None, None), batch_of(None, None)
    first = await log.append(three, soon())
    second = await log.append(two, soon())
    entries = await logs.entries()
    assert [entry.first_number for entry in entries] == [0, 3]
    assert [(entry.examples, entry.records) for entry in entries] == [*three.entries, *two.entries]
    assert [len(examples_of(entry)) for entry in entries] == [3, 2]
    assert first == [Place(entries[0].id, 0, duplicate=False, examples=3)]
    assert second == [Place(entries[1].id, 0, duplicate=False, examples=2)]


async def test_a_repeated_micro_batch_returns_its_places(
    logs: LogUnderTest,
) -> None:
    batch = batch_of("a", None, "a", "b")
    places = await logs.make().append(batch, soon())
    assert await logs.make().append(batch, soon()) == places
    (entry,) = await logs.entries()
    assert [place.offset for place in places] == [0, 0, 2]
    assert examples_of(entry).hashes.reshape(-1, 2)[:, 0].tolist() == [0, 1, 3], "the second a is left out"


async def test_a_repeated_event_id_is_left_out_and_placed_at_the_first(logs: LogUnderTest) -> None:
    log = logs.make()
    (first,) = await log.append(batch_of("click-1"), soon())
    again, other = await log.append(batch_of("click-1", "click-2"), soon())
    assert again == Place(first.entry, 0, duplicate=True)
    assert not other.duplicate
    assert sum(entry.examples for entry in await logs.entries()) == 2


async def test_a_repetition_inside_one_micro_batch_is_a_duplicate_too(logs: LogUnderTest) -> None:
    places = await logs.make().append(batch_of("x", "y", "x"), soon())
    assert [(place.examples, place.duplicate) for place in places] == [(2, False), (1, True)]
    assert places[1] == Place(places[0].entry, 0, duplicate=True)


async def test_a_generated_id_finds_the_example_of_its_micro_batch(logs: LogUnderTest) -> None:
    batch = batch_of(None, None)
    log = logs.make()
    await log.append(batch, soon())
    (retried,) = await log.append(batch_of(batch.event_ids[1]), soon())
    assert retried == Place(None, 0, duplicate=True)


async def test_a_generated_id_appends_if_its_micro_batch_never_arrived(logs: LogUnderTest) -> None:
    lost = batch_of(None)
    log = logs.make()
    (first,) = await log.append(batch_of(lost.event_ids[0]), soon())
    (second,) = await log.append(batch_of(lost.event_ids[0]), soon())
    assert not first.duplicate
    assert second == Place(first.entry, 0, duplicate=True)


async def test_only_the_very_text_that_was_made_here_names_its_example(logs: LogUnderTest) -> None:
    batch = batch_of(None)
    log = logs.make()
    await log.append(batch, soon())
    (made,) = batch.event_ids
    others = [made.upper(), "ftrl-" + made[5:].upper(), made + " ", made[:-2] + "  "]
    (new,) = await log.append(batch_of(*others), soon())
    assert (new.examples, new.duplicate) == (4, False)
    again = await log.append(batch_of(*others), soon())
    assert again == [Place(new.entry, offset, duplicate=True) for offset in range(4)]


@pytest.mark.parametrize("hours", [-1, 1], ids=["the hour before", "the clock was set back"])
async def test_claims_are_found_in_the_bucket_of_another_hour(logs: LogUnderTest, hours: int) -> None:
    log = logs.make()
    (first,) = await log.append(batch_of("late"), soon())
    (bucket,) = await logs.client.keys(f"{KEYS.events_prefix}*")
    assert isinstance(bucket, bytes)
    hour = int(bucket.rsplit(b":", 1)[1])
    await logs.client.rename(bucket, f"{KEYS.events_prefix}{hour + hours}")
    await logs.client.hdel(KEYS.meta, "events")  # as a version left it that had a bucket for each hour
    (again,) = await log.append(batch_of("late"), soon())
    assert again == Place(first.entry, 0, duplicate=True)


async def test_buckets_of_event_ids_expire_a_week_after_their_retention(logs: LogUnderTest) -> None:
    await logs.make(event_id_retention_seconds=7200).append(batch_of("a"), soon())
    (bucket,) = await logs.client.keys(f"{KEYS.events_prefix}*")
    assert 7200 + WEEK < await logs.client.ttl(bucket) <= 7200 + 3600 + WEEK


@pytest.mark.parametrize("seed", range(8))
async def test_whichever_ids_are_repeated_each_event_is_in_the_log_once(
    logs: LogUnderTest, seed: int
) -> None:
    """Over entries of many sizes, with duplicates at their ends and between, and of the same micro-batch."""
    random, log = Random(seed), logs.make()
    first_of: dict[str, tuple[int, int]] = {}  # event id -> its first hash, and how many features it had
    expected: list[tuple[int, int]] = []
    placed: list[tuple[str, Place]] = []
    for _ in range(12):
        ids = [
            random.choice([None, f"e{random.randrange(120)}"]) for _ in range(random.choice([1, 3, 60, 700]))
        ]
        features = random.choice([1, 30])
        places = await log.append(batch_of(*ids, features=features), soon())
        assert sum(place.examples for place in places) == len(ids)
        each = [
            Place(place.entry, place.offset + k, place.duplicate)
            for place in places
            for k in range(place.examples)
        ]
        for index, (event_id, place) in enumerate(zip(ids, each, strict=True)):
            assert place.duplicate == (event_id in first_of)
            if event_id not in first_of:
                expected.append((index, features))
            if event_id is not None:
                first_of.setdefault(event_id, (index, features))
                placed.append((event_id, place))
    described: dict[tuple[LogId | None, int], tuple[int, int]] = {}
    for entry in await logs.entries():
        batch = examples_of(entry)
        described |= {(entry.id, k): _described(batch, k) for k in range(len(batch))}
    assert list(described.values()) == expected
    assert all(described[place.entry, place.offset] == first_of[event_id] for event_id, place in placed)


def _described(batch: ExampleBatch, k: int) -> tuple[int, int]:
    """The first hash of an example, and how many features it has."""
    start, stop = batch.row_ptr[k : k + 2]
    return int(batch.hashes[start]), int(stop - start)


async def test_many_bytes_are_spread_over_entries_of_bounded_size(logs: LogUnderTest) -> None:
    places = await logs.make().append(batch_of(*[None] * 900, features=39), soon())
    entries = await logs.entries()
    assert len(entries) > 1
    assert max(len(entry.records) for entry in entries) <= MAX_ENTRY_BYTES
    assert [entry.first_number for entry in entries][1] == entries[0].examples
    assert [(place.entry, place.examples) for place in places] == [
        (entry.id, entry.examples) for entry in entries
    ]


async def test_ten_thousand_examples_without_features_fit_one_append(logs: LogUnderTest) -> None:
    names = [f"e{i}" for i in range(10_000)]
    await logs.make().append(batch_of(*names, features=0), soon())
    assert sum(entry.examples for entry in await logs.entries()) == 10_000


async def test_another_incarnation_is_refused_and_nothing_is_written(logs: LogUnderTest) -> None:
    await logs.client.hset(KEYS.meta, "incarnation", "another")
    with pytest.raises(ModelGone):
        await logs.make().append(batch_of("a"), soon())
    assert await logs.client.keys("*") == [KEYS.meta.encode()]


async def test_an_append_past_the_servers_deadline_provably_did_nothing(
    logs: LogUnderTest,
) -> None:
    log = logs.make()
    await log.append(batch_of(None), soon())
    with pytest.raises(UpdateUnavailable) as refused:
        await log.append(batch_of("late"), time.monotonic() - 1.0)
    assert refused.value.outcome == "not_appended"
    assert len(await logs.entries()) == 1


async def test_a_backlog_over_its_limit_refuses_whole_micro_batches(logs: LogUnderTest) -> None:
    log = logs.make(backlog_limit_examples=3)
    await log.append(batch_of(None, None), soon())
    with pytest.raises(LogFull):
        await log.append(batch_of("a", "b"), soon())
    assert sum(entry.examples for entry in await logs.entries()) == 2
    await log.append(batch_of("a"), soon())


async def test_a_backlog_over_its_bytes_refuses_until_it_is_learned(logs: LogUnderTest) -> None:
    log = logs.make(backlog_limit_bytes=10_000)
    await log.append(batch_of(None, features=2000), soon())
    await log.append(batch_of(None, features=2000), soon())
    size = sum(len(entry.records) for entry in await logs.entries())
    assert 10_000 < size == int(await logs.client.hget(KEYS.meta, "backlog_bytes") or -1)
    with pytest.raises(LogFull, match=f"2 examples of {size} bytes .*FTRL_BACKLOG_LIMIT_BYTES"):
        await log.append(batch_of("a"), soon())
    assert sum(entry.examples for entry in await logs.entries()) == 2
    await logs.client.hset(KEYS.meta, "applied_number", 2)
    short = batch_of("a")
    await log.append(short, soon())
    assert int(await logs.client.hget(KEYS.meta, "backlog_bytes") or -1) == len(short.entries[0].records)


async def test_a_server_that_is_not_there_certainly_appended_nothing(
    fresh_valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    fresh_valkey.stop()
    topology = connect(make_settings(fresh_valkey), fresh_valkey.url)
    log = ExampleLog(topology, KEYS, make_settings(fresh_valkey))
    with pytest.raises(UpdateUnavailable) as refused:
        await log.append(batch_of("a"), time.monotonic() + 0.3)
    assert refused.value.outcome == "not_appended"
    assert refused.value.event_ids == ["a"]
    await topology.close()


async def test_after_a_hang_the_outcome_is_unknown_and_a_retry_appends_once(
    fresh_valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    settings = make_settings(fresh_valkey, redis_timeout_seconds=0.1)
    topology, own = connect(settings, fresh_valkey.url), fresh_valkey.async_client()
    await own.hset(KEYS.meta, mapping=dict(META.items()))
    log = ExampleLog(topology, KEYS, settings)
    await log.append(batch_of(None), soon())
    fresh_valkey.pause()
    with pytest.raises(UpdateUnavailable) as refused:
        await log.append(batch_of("a"), time.monotonic() + 1.0)
    assert refused.value.outcome == "unknown"
    fresh_valkey.resume()
    await log.append(batch_of("a"), soon())
    assert await own.hget(KEYS.meta, "appended") == b"2"
    await log.close()
    await topology.close()
    await own.aclose()


FIRST, SECOND, EARLIER = LogId(5, 0), LogId(6, 1), LogId(3, 7)


def test_a_receipt_names_new_places_in_order_and_duplicates_by_index() -> None:
    assert parse_receipt(b"5-0:2,6-1:1|1=3-7:4,3=", 5) == [
        Place(FIRST, 0, duplicate=False),
        Place(EARLIER, 4, duplicate=True),
        Place(FIRST, 1, duplicate=False),
        Place(None, 0, duplicate=True),
        Place(SECOND, 0, duplicate=False),
    ]


def test_a_receipt_of_many_new_examples_names_each_entry_once() -> None:
    assert parse_receipt(b"5-0:700,6-1:300|", 1000) == [
        Place(FIRST, 0, duplicate=False, examples=700),
        Place(SECOND, 0, duplicate=False, examples=300),
    ]
    assert parse_receipt(b"|0=3-7:4,1=3-7:5", 2) == [
        Place(EARLIER, 4, duplicate=True),
        Place(EARLIER, 5, duplicate=True),
    ]


def test_requests_that_share_an_append_get_their_own_places() -> None:
    places = [Place(FIRST, 0, duplicate=False, examples=5), Place(SECOND, 0, duplicate=False, examples=1)]
    assert list(share_out(places, [2, 0, 4])) == [
        [Place(FIRST, 0, duplicate=False, examples=2)],
        [],
        [Place(FIRST, 2, duplicate=False, examples=3), Place(SECOND, 0, duplicate=False)],
    ]
