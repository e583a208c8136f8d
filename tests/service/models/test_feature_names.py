"""The names of the most seen features: sampled from requests, bounded, and gone with their model."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mmh3 import mmh3_32_uintdigest as murmur

from model_core.hashing.contract import HashContract, Limits
from service.models.aliases import Aliases
from service.models.config.model import ModelConfig
from service.models.feature_names import (
    BODIES_A_POLL,
    FeatureNames,
    add_names,
    features_in,
    names_seen,
    slots_of,
    weighted,
)
from service.models.registry import SAMPLE_BYTES, OpenModel
from service.snapshots.restore.challenge import challenge
from service.snapshots.restore.create import clone
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import Channel, open_channel
from service.storage.records import ModelKeys
from service.storage.scripts.names import note_names, read_names
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.system import System

CONFIG = ModelConfig.from_json({"hashing": {"bits": 12, "crosses": [["ad", "site"]]}})
BODY = json.dumps({"features": {"ad": "a17", "site": "s", "hour": 14}, "label": 1}).encode()
NAMES = {"ad=a17", "site=s", "hour=+3", "ad^site=a17\x1fs"}


@pytest.fixture
async def system(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[System]:
    async with System(make_settings(valkey)) as system:
        yield system


@pytest.fixture
async def model(system: System) -> OpenModel:
    return await system.model(CONFIG)


@pytest.fixture
async def channel(system: System) -> AsyncIterator[Channel]:
    async with open_channel(system.settings) as channel:
        yield channel


def names_of(system: System, *, enabled: bool = True) -> FeatureNames:
    return FeatureNames(system.topology, system.models, system.settings, enabled=enabled)


def keys_of(model: OpenModel) -> ModelKeys:
    return model.mirror.replica.keys


async def test_names_of_requests_are_noted_and_found_by_their_slots(
    system: System, model: OpenModel, channel: Channel
) -> None:
    names = names_of(system)
    model.sample(BODY)
    await names.poll()
    assert await read_names(channel, keys_of(model)) == {}  # nothing is put aside before
    model.sample(BODY)
    model.sample(b'{"features": {"ad": "too soon after the first"}}')
    await names.poll()
    assert set(await read_names(channel, keys_of(model))) == NAMES
    slots = await names.slots(model)
    assert slots[murmur(b"ad=a17", 0) % 4096] == ["ad=a17"]
    await names.close()


async def test_names_that_are_switched_off_are_deleted(
    system: System, model: OpenModel, channel: Channel
) -> None:
    await add_names(channel, keys_of(model), {"user=alice": 1.0})
    names = names_of(system, enabled=False)
    await names.poll()
    model.sample(BODY)
    await names.poll()
    assert await read_names(channel, keys_of(model)) == {}
    assert await names.slots(model) == {}
    await names.close()


async def test_a_deleted_model_leaves_no_name(system: System, model: OpenModel, channel: Channel) -> None:
    keys = keys_of(model)
    await add_names(channel, keys, {"user=alice": 1.0})
    await system.models.delete(model.name)
    assert not await note_names(channel, keys, {"user=alice": 1.0}, 10)
    assert await system.client.keys("*names*") == []


async def test_a_clone_begins_with_the_names_of_its_source(
    system: System, model: OpenModel, channel: Channel
) -> None:
    noted = weighted({"ad=a17": 3.0, "ad=b4": 1.0})
    await add_names(channel, keys_of(model), noted)
    await clone(channel, SnapshotStore(system.settings), model.name, "copy", {})
    copied = await read_names(channel, keys_of(await system.models.get("copy")))
    assert list(copied.items()) == list(noted.items())


async def test_a_challenger_has_the_names_of_its_champion(
    system: System, model: OpenModel, channel: Channel
) -> None:
    await add_names(channel, keys_of(model), {"ad=a17": 1.0})
    store, aliases = SnapshotStore(system.settings), Aliases(system.models)
    body = {"hashing": {"bits": 10}}
    challenger, _ = await challenge(system.models, aliases, store, "b", model.name, "log", body)
    names = names_of(system)
    assert await names.slots(challenger) == {murmur(b"ad=a17", 0) % 1024: ["ad=a17"]}
    await names.close()


async def test_the_most_seen_names_remain(system: System, model: OpenModel, channel: Channel) -> None:
    keys = keys_of(model)
    for round_number in range(30):
        rare = {f"user=u{round_number}-{i}": 1.0 for i in range(5)}
        assert await note_names(channel, keys, {"ad=a1": 4.0, "ad=a2": 3.0, **rare}, 10)
    noted = await read_names(channel, keys)
    assert len(noted) == 10
    assert list(noted)[:2] == ["ad=a1", "ad=a2"]
    assert noted["ad=a1"] == 120.0
    # Space-saving: no number is too small, and none is larger by more than the smallest.
    assert 1.0 <= min(noted.values()) <= (30 * 12) / 10


def test_what_is_seen_now_outweighs_what_was_seen_weeks_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    first = weighted({"ad=a1": 3.0})["ad=a1"]
    monkeypatch.setattr(time, "time", lambda: now + 14 * 24 * 3600)
    assert weighted({"ad=a2": 1.0})["ad=a2"] == pytest.approx(first * 4 / 3, rel=1e-4)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"features": {"ad": "a1"}, "label": 1}, [{"ad": "a1"}]),
        ({"features": [["ad", "a1"], ["ad", "a2"]]}, [[["ad", "a1"], ["ad", "a2"]]]),
        ({"examples": [{"features": {"ad": "a1"}}, {"id": "x", "label": 1}]}, [{"ad": "a1"}]),
        (
            {"context": {"site": "s"}, "instances": [{"features": {"ad": "a1"}}]},
            [[["site", "s"], ["ad", "a1"]]],
        ),
        ({"id": "x", "label": 1}, []),
    ],
)
def test_features_are_found_in_every_kind_of_body(body: dict[str, Any], found: list[Any]) -> None:
    assert features_in(json.dumps(body).encode()) == found


def test_a_part_of_a_large_body_has_an_example(model_of_nothing: OpenModel) -> None:
    example = {"features": {"ad": "a1", "text": 'a "features": {"x": "y"}'}, "label": 1}
    body = json.dumps({"examples": [example] * 5000}).encode()
    model_of_nothing.samples_bodies()
    model_of_nothing.sample(body)
    (part,) = model_of_nothing.take_samples(BODIES_A_POLL)
    assert len(part) == SAMPLE_BYTES
    assert features_in(part) == [example["features"]]


@pytest.fixture
async def model_of_nothing(model: OpenModel) -> OpenModel:
    return model


@given(st.binary(max_size=200))
def test_no_part_of_a_body_is_too_strange(part: bytes) -> None:
    contract = HashContract(bits=10)
    seen = names_seen(features_in(b'"features": ' + part), contract, Limits())
    assert all(slot < 1024 for slot in slots_of(seen, contract))
