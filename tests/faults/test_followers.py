"""Mirrors that have much to catch up with: they do it, and cost the server nothing meanwhile."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from model_core.examples.batch import ExampleBatch
from model_core.learning.state import ModelState
from service.models.bulk_load import bulk_load
from service.storage.channel import Channel
from tests.conftest import ServerFactory
from tests.support.invariants import (
    assert_holds_once,
    assert_learned_once,
    assert_mirror_equals,
    learned,
    topology_of,
)
from tests.support.load import Load, example
from tests.support.processes import Launch, ready
from tests.support.servers import ServerProcess
from tests.support.system import read_log, stored

pytestmark = pytest.mark.faults

MIB = 1 << 20
FEATURES = 300_000


def wide_example(event: int) -> dict[str, Any]:
    """A thousand of five thousand features, so that commits are large."""
    start = event % 5 * 1000
    return example(event) | {"features": {"tags": [f"t{i}" for i in range(start, start + 1000)]}}


def commits_size(server: ServerProcess) -> int:
    with server.client() as client:
        (stream,) = client.keys("ftrl:{default}:*:commits")
        return int(client.memory_usage(stream, samples=0))


def output_buffers(server: ServerProcess) -> int:
    with server.client() as client:
        return max(int(one["omem"]) for one in client.client_list())


async def test_a_stopped_mirror_reloads_behind_trimmed_commits(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory()
    stopped, api = launch("api", server.url), launch("api", server.url)
    launch("learn", server.url, commits_bytes=MIB)
    await ready(stopped, api)
    async with Load([api.url], clients=2, examples=10, make=wide_example) as load:
        await load.more(20)
        stopped.pause()
        for _ in range(10):
            await load.more(50)
            assert commits_size(server) < 1.5 * MIB
            assert output_buffers(server) < MIB
        stopped.resume()
    replica = await assert_learned_once(server, load.acknowledged)
    assert replica.commit > 20, "all commits were kept: the test does not test"
    await assert_mirror_equals(stopped.url, replica)
    await assert_mirror_equals(api.url, replica)
    assert stopped.metric("ftrl_mirror_loads_total", model="default") == 2
    assert api.metric("ftrl_mirror_loads_total", model="default") == 1


async def test_a_large_model_is_loaded_while_it_is_written(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory()
    api, late = launch("api", server.url), launch("api", server.url)
    launch("learn", server.url)
    await ready(api, late)
    async with httpx.AsyncClient(timeout=30) as http:
        config = {"hashing": {"bits": 22}, "hyper": {"l1": 0}}
        (await http.put(f"{api.url}/models/large", json=config)).raise_for_status()
    began_with = await fill(server, "large")
    async with Load([api.url], model="large", clients=4, examples=20) as load:
        await load.more(400)
        async with httpx.AsyncClient(timeout=60) as http:
            (await http.get(f"{late.url}/models/large")).raise_for_status()
        await load.more(400)
    assert late.metric("ftrl_mirror_loads_total", model="large") == 1, (
        "it was not loaded again behind the commits"
    )
    async with topology_of(server) as topology:
        await learned(topology, "large")
        replica = await stored(topology, "large")
        entries = await read_log(topology, replica)
    assert_holds_once(entries, load.acknowledged)
    replica.config.learn(began_with, ExampleBatch.from_bytes(b"".join(entry.records for entry in entries)))
    assert replica.state.digest() == began_with.digest()
    await assert_mirror_equals(late.url, replica)
    await assert_mirror_equals(api.url, replica)


async def fill(server: ServerProcess, model: str) -> ModelState:
    """A state of FEATURES random rows, as a bulk load puts it there."""
    drawn = np.random.default_rng(5)
    async with topology_of(server) as topology:
        base = await stored(topology, model)
        state = base.config.empty_state()
        slots = drawn.choice(state.size, FEATURES, replace=False).astype(np.uint32)
        state.apply_rows(slots, drawn.uniform(0, 3, (FEATURES, 2 * state.experts)))
        channel = Channel(topology)
        await bulk_load(channel, base, state)
        await channel.close()
    return state
