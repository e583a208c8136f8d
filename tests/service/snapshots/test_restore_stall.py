"""While a large model is restored, no command keeps the server from others for longer than a chunk takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from bench.filled_model import random_state
from model_core.snapshot import Snapshot
from service.models.config.model import ModelConfig
from service.models.replica import FIELDS_A_SCAN
from service.snapshots.take.capture import capture
from service.storage.records import SLOTS_A_CHUNK, changed_type
from tests.conftest import ServerFactory, SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.snapshot_samples import replica_of
from tests.support.snapshot_systems import catalogue, restored
from tests.support.system import System, stored
from tests.support.waiting import until

pytestmark = pytest.mark.slow

FEATURES = int(os.environ.get("RESTORE_FEATURES", "300000"))
"""RESTORE_FEATURES=5000000 takes a minute or two; `python -m bench --only restore-stall` measures it too."""
CONFIG = ModelConfig.from_json(
    {"hyper": {"rate": {"kind": "adaptive"}}, "hashing": {"bits": 22 if FEATURES < 2**21 else 24}}
)
SLOW_MICROSECONDS = 500


def large_snapshot() -> Snapshot:
    state = random_state(CONFIG.hashing.bits, FEATURES)
    state.t = FEATURES
    return capture(replica_of(state, CONFIG), {}).snapshot("test")


@contextlib.asynccontextmanager
async def longest_wait(server: ServerProcess, client: Redis) -> AsyncIterator[list[float]]:
    """Gets the longest wait, in milliseconds, of another process that pings the server without a pause."""
    command = (sys.executable, "-m", "bench.ping", str(server.socket_path))
    pinging = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )

    async def is_pinging() -> bool:
        return "cmdstat_ping" in await client.info("commandstats")

    await until(is_pinging)
    found: list[float] = []
    yield found
    output, _ = await pinging.communicate(b"")
    found.append(json.loads(output)["longest_ms"])


async def test_no_command_of_a_restore_moves_more_than_a_chunk(
    server_factory: ServerFactory,
    make_settings: SettingsFactory,
    record_property: Callable[[str, object], None],
) -> None:
    server = server_factory(appendonly=False)
    async with System(make_settings(server, redis_timeout_seconds=10, lease_seconds=60)) as system:
        client = system.client
        entry = await asyncio.to_thread(lambda: catalogue(system).write(large_snapshot()))
        await restored(system, entry.id)  # creates the model: what is measured replaces as large a state
        await client.config_set("slowlog-max-len", 100_000)
        await client.config_set("slowlog-log-slower-than", SLOW_MICROSECONDS)
        async with longest_wait(server, client) as waited:
            await client.slowlog_reset()
            done = await restored(system, entry.id)
        slow = await client.slowlog_get(100_000)
        assert (await stored(system.topology)).state.features_seen == done.t == FEATURES
    commands = [one["command"] for one in slow if one["command"].startswith((b"EVALSHA", b"EVAL "))]
    sizes = [
        128 + int(more) for command in commands for more in re.findall(rb"\((\d+) more bytes\)", command)
    ]
    assert 0 < max(sizes) <= changed_type().itemsize * SLOTS_A_CHUNK
    counts = [int(found) for one in slow for found in re.findall(rb"^HSCAN .* COUNT (\d+)$", one["command"])]
    assert all(count <= FIELDS_A_SCAN for count in counts)
    verbs = {one["command"].split(b" ")[0] for one in slow}
    assert not verbs & {b"DEL", b"RENAME", b"HGETALL", b"HKEYS", b"HVALS", b"COPY"}
    slowest = max(one["duration"] for one in slow) / 1000
    figures = f"{FEATURES:,} features: longest wait {waited[0]:.1f} ms, slowest command {slowest:.1f} ms"
    record_property("restore", figures)
    logging.getLogger(__name__).info(figures)  # `pytest --log-cli-level info` shows it
