"""Measures how long the Redis server answers no client while commits of full size and a checkpoint come."""

import asyncio
import json
import sys
from collections.abc import Awaitable
from typing import Any

import numpy as np
from redis import Redis

from bench.filled_model import MODEL, created_model, fill
from bench.learning_log import append, learn
from bench.processes import beside, redis_server
from bench.result import Options, Result, Target
from model_core.hashing.encoder import Encoded
from model_core.learning.rounds import warm_up
from service.example_log.incoming import NewExample
from service.storage.embedded_binary import binary_path
from service.storage.records import ModelKeys, changed_type, meta_key

EXAMPLES = 25_000
FEATURES_PER_EXAMPLE = 40  # all different, so that a commit changes as many slots as it may

START_SECONDS = 0.5  # for the pinging process


def measure(options: Options) -> list[Result]:
    warm_up()
    with redis_server(str(binary_path())) as url, Redis.from_url(url) as server:
        server.config_set("slowlog-log-slower-than", 1000)
        server.config_set("slowlog-max-len", 10_000)
        stalls, idle = asyncio.run(_rounds(url, server, options.rounds))
        scripts = [
            entry["duration"] / 1000
            for entry in server.slowlog_get(10_000)
            if entry["command"].startswith(b"EVALSHA")
        ]
        sizes = _commit_sizes(server)
    what = f"commits of up to {max(sizes):,} slots, and checkpoints of {EXAMPLES * FEATURES_PER_EXAMPLE:,}"
    return [
        Result(
            "commit-stall",
            f"longest wait of another client during {what}",
            "ms",
            tuple(stalls),
            notes=(
                f"commits of {np.median(sizes):,.0f} slots (median) into 1,000,000 features",
                f"longest wait on the idle server {max(idle):.2f} ms",
            ),
        ),
        Result(
            "commit-stall",
            f"longest script, by the server's own slow log, during {what}",
            "ms",
            (max(scripts),),
            target=Target("<=", 10.0),
        ),
    ]


async def _rounds(url: str, server: Redis, rounds: int) -> tuple[list[float], list[float]]:
    """Longest waits in milliseconds while a learner commits, and while the service is idle."""
    stalls, idle = [], []
    async with created_model(url) as client:
        await fill(client)
        server.slowlog_reset()
        for round_number in range(rounds):
            await append(client, _examples(round_number), batch_size=1000)
            idle.append(await longest_wait(url, asyncio.sleep(1)))
            stalls.append(await longest_wait(url, learn(client)))
    return stalls, idle


async def longest_wait(url: str, work: Awaitable[object]) -> float:
    """Milliseconds that a client waited for a reply while `work` ran."""
    with beside([sys.executable, "-m", "bench.ping", url.removeprefix("unix://")]) as output:
        await asyncio.sleep(START_SECONDS)
        await work
    longest: float = json.loads(output[0])["longest_ms"]
    return longest


def _examples(seed: int) -> list[NewExample]:
    """Every feature occurs once only."""
    random = np.random.default_rng(seed)
    hashes = random.permutation(EXAMPLES * FEATURES_PER_EXAMPLE) + seed * EXAMPLES * FEATURES_PER_EXAMPLE
    return [
        NewExample(Encoded(row, None), i % 2, 1.0, None, None)
        for i, row in enumerate(hashes.reshape(EXAMPLES, FEATURES_PER_EXAMPLE).tolist())
    ]


def _commit_sizes(server: Redis) -> list[int]:
    """How many slots each commit changed."""
    meta: Any = server.hgetall(meta_key(MODEL))
    commits: Any = server.xrange(ModelKeys(MODEL, meta[b"incarnation"].decode()).commits)
    return [
        len(fields[b"changed"]) // changed_type().itemsize for _, fields in commits if b"reset" not in fields
    ]
