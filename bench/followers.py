"""What a mirror more costs the Redis server: processor time and bytes for each slot that a commit changed."""

import asyncio
from typing import Any, NamedTuple

import numpy as np
from redis.asyncio import Redis

from bench.filled_model import MODEL, SETTINGS
from bench.learning_log import append, learn
from bench.processes import redis_server
from bench.result import Options, Result
from model_core.hashing.encoder import Encoded
from model_core.learning.rounds import warm_up
from service.example_log.incoming import NewExample
from service.models.config.model import ModelConfig
from service.models.mirror import Mirror
from service.models.registry import Models
from service.runtime.tasks import cancel_all
from service.storage.embedded_binary import binary_path
from service.storage.records import ModelKeys, changed_type, meta_key
from service.storage.topology import Topology, connect

FOLLOWERS = 50
EXAMPLES = 4000
FEATURES = 33
BITS = 18  # so that the mirrors' tables do not fill the machine


class Spent(NamedTuple):
    """What the server spends while a log is learned; slots: changed by all commits together."""

    seconds: float
    bytes_sent: int
    slots: int


def measure(options: Options) -> list[Result]:
    warm_up()
    with redis_server(str(binary_path())) as url:
        alone, followed = asyncio.run(_rounds(url, options.rounds))
    pairs = [(more, less, more.slots * FOLLOWERS) for more, less in zip(followed, alone, strict=True)]
    nanoseconds = [1e9 * (more.seconds - less.seconds) / copies for more, less, copies in pairs]
    sent = [(more.bytes_sent - less.bytes_sent) / copies for more, less, copies in pairs]
    note = f"{FOLLOWERS} mirrors of one model, {followed[0].slots:,} changed slots"
    return [
        Result(
            "followers", "server time for a changed slot and mirror", "ns", tuple(nanoseconds), notes=(note,)
        ),
        Result("followers", "bytes for a changed slot and mirror", "bytes", tuple(sent)),
    ]


async def _rounds(url: str, rounds: int) -> tuple[list[Spent], list[Spent]]:
    """Learning a log without a mirror, and with FOLLOWERS of them."""
    topology = connect(SETTINGS, url)
    client: Redis = Redis.from_url(url, protocol=2)
    models = Models(topology, SETTINGS)
    await models.create(MODEL, ModelConfig.from_json({"hashing": {"bits": BITS}}))
    await models.close()
    alone, followed = [], []
    for number in range(rounds):
        alone.append(await _learned(topology, client, number, 0))
        followed.append(await _learned(topology, client, number, FOLLOWERS))
    await client.aclose()
    await topology.close()
    return alone, followed


async def _learned(topology: Topology, client: Redis, seed: int, followers: int) -> Spent:
    await append(topology, _examples(seed), batch_size=100)
    mirrors = [await Mirror.open(topology, MODEL) for _ in range(followers)]
    following = [asyncio.create_task(mirror.follow()) for mirror in mirrors]
    before = await _look(client)
    await learn(topology)
    after = await _look(client)
    target = await client.execute_command("HGET", meta_key(MODEL), "token")
    while any(mirror.replica.token != target for mirror in mirrors):  # noqa: ASYNC110  nothing signals it
        await asyncio.sleep(0.01)
    after = await _look(client) if mirrors else after
    await cancel_all(following)
    return Spent(
        after.seconds - before.seconds, after.bytes_sent - before.bytes_sent, after.slots - before.slots
    )


async def _look(client: Redis) -> Spent:
    """What the server has spent since its start; the slots of all commits that it holds."""
    info: Any = await client.info("everything")
    seconds = info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]
    incarnation = await client.execute_command("HGET", meta_key(MODEL), "incarnation")
    entries: Any = await client.xrange(ModelKeys(MODEL, incarnation.decode()).commits)
    slots = sum(
        len(fields[b"changed"]) // changed_type().itemsize for _, fields in entries if b"changed" in fields
    )
    return Spent(seconds, int(info["total_net_output_bytes"]), slots)


def _examples(seed: int) -> list[NewExample]:
    random = np.random.default_rng(seed)
    hashes = random.integers(0, 2**BITS, (EXAMPLES, FEATURES))
    return [NewExample(Encoded(row, None), i % 2, 1.0, None, None) for i, row in enumerate(hashes.tolist())]
