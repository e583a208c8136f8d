"""What mirrors that follow the commits cost for each example, against replicas that would learn the log."""

import asyncio
from itertools import islice
from time import process_time
from typing import Any, NamedTuple

from redis.asyncio import Redis

from bench.criteo import rows
from bench.filled_model import MODEL, created_model
from bench.learning_log import append, learn
from bench.processes import redis_server
from bench.result import Options, Result, alternate
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from model_core.learning.rounds import warm_up
from service.example_log.incoming import NewExample
from service.models.config.model import ModelConfig
from service.models.mirror import Mirror
from service.runtime.tasks import cancel_all
from service.storage.embedded_binary import binary_path

FOLLOWERS = (1, 4, 16)
EXAMPLES = 20_000
BATCH = 200
CONFIG = ModelConfig.from_json({"hashing": {"bits": 20}})  # so that the mirrors do not fill the machine


class Spent(NamedTuple):
    """By the server: seconds of its thread, bytes that it sent; by learner and mirrors: processor seconds."""

    server: float
    bytes_sent: float
    process: float


def measure(options: Options) -> list[Result]:
    warm_up()
    encoder = FeatureEncoder(CONFIG.hashing)
    examples = [
        NewExample(encoder.encode(row.features), row.label, 1.0, None, None) for row in rows(2 * EXAMPLES)
    ]
    return [result for followers in FOLLOWERS for result in _measured(options, examples, followers)]


def _measured(options: Options, examples: list[NewExample], followers: int) -> list[Result]:
    alone, followed = alternate(
        options.rounds, lambda: _spent(examples, 0), lambda: _spent(examples, followers)
    )
    learned = [_seconds_to_learn(examples) for _ in range(options.rounds)]
    more = [
        Spent(*((with_ - without) / followers for with_, without in zip(*pair, strict=True)))
        for pair in zip(followed, alone, strict=True)
    ]
    each = f"for an example and mirror, {followers} mirrors"
    return [
        Result(
            "followers",
            f"processor time of the mirror {each}",
            "us",
            tuple(1e6 * one.process / EXAMPLES for one in more),
            tuple(1e6 * seconds / EXAMPLES for seconds in learned),
            "decoding and learning the example",
        ),
        Result(
            "followers",
            f"bytes from the server {each}",
            "bytes",
            tuple(one.bytes_sent / EXAMPLES for one in more),
            (_record_bytes(examples),) * options.rounds,
            "the example in the log",
        ),
        Result(
            "followers",
            f"the server's time {each}",
            "us",
            tuple(1e6 * one.server / EXAMPLES for one in more),
        ),
    ]


def _spent(examples: list[NewExample], followers: int) -> Spent:
    with redis_server(str(binary_path())) as url:
        return asyncio.run(_learned(url, examples, followers))


async def _learned(url: str, examples: list[NewExample], followers: int) -> Spent:
    """While the second half is learned, and the mirrors follow: their tables are in use by then."""
    async with created_model(url, CONFIG) as topology:
        await append(topology, examples[:EXAMPLES], BATCH)
        await learn(topology)
        await append(topology, examples[EXAMPLES:], BATCH)
        mirrors = [await Mirror.open(topology, MODEL) for _ in range(followers)]
        following = [asyncio.create_task(mirror.follow()) for mirror in mirrors]
        client: Redis = Redis.from_url(url, protocol=2)
        before = await _look(client)
        await learn(topology)
        while any(mirror.replica.state.t < len(examples) for mirror in mirrors):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # nothing signals it
        after = await _look(client)
        await client.aclose()
        await cancel_all(following)
        for mirror in mirrors:
            await mirror.close()
    return Spent(*(b - a for a, b in zip(before, after, strict=True)))


async def _look(client: Redis) -> Spent:
    """What has been spent since the start."""
    info: Any = await client.info("everything")
    seconds = info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]
    return Spent(seconds, float(info["total_net_output_bytes"]), process_time())


def _seconds_to_learn(examples: list[NewExample]) -> float:
    state, source = CONFIG.empty_state(), iter(examples)
    batches = []
    while chunk := list(islice(source, BATCH)):
        encoded, labels = [one.encoded for one in chunk], [one.label for one in chunk]
        batches.append(ExampleBatch.from_encoded(encoded, labels).to_bytes())
    for records in batches[: len(batches) // 2]:
        CONFIG.learn(state, ExampleBatch.from_bytes(records))
    before = process_time()
    for records in batches[len(batches) // 2 :]:
        CONFIG.learn(state, ExampleBatch.from_bytes(records))
    return process_time() - before


def _record_bytes(examples: list[NewExample]) -> float:
    batch = ExampleBatch.from_encoded([one.encoded for one in examples], [one.label for one in examples])
    return len(batch.to_bytes()) / len(examples)
