"""Redis memory of a model over thirty days of new ads and users, with and without dropping of features."""

import asyncio
from itertools import pairwise

import uvloop

from bench.filled_model import MODEL, SETTINGS, created_model
from bench.learning_log import append, leading, until_learned
from bench.processes import redis_server
from bench.result import Options, Result, Target
from lab.experiments.churn import BITS, ROWS_A_DAY, Day, batch_of, config_of, days
from model_core.hashing.encoder import Encoded
from model_core.warm_up import warm_up
from service.example_log.incoming import NewExample
from service.models.config.model import ModelConfig
from service.models.replica import read_meta
from service.storage.channel import Channel
from service.storage.embedded_binary import binary_path
from service.storage.records import ModelKeys

BATCH = 2_000
TRACE = 1e-6
SHOWN = (10, 20, 30)


def measure(options: Options) -> list[Result]:  # noqa: ARG001  memory does not vary from round to round
    warm_up(["learning", "mixture"])
    dropping, never = (uvloop.run(_megabytes(config_of(trace, ROWS_A_DAY, BITS))) for trace in (TRACE, None))
    return [
        Result(
            "dropping",
            f"memory of the state in Redis after {day} days of {ROWS_A_DAY:,} impressions",
            "MB",
            (dropping[day - 1],),
            (never[day - 1],),
            "nothing is dropped",
            Target("<=", 0.5) if day == SHOWN[-1] else None,
        )
        for day in SHOWN
    ]


async def _megabytes(config: ModelConfig) -> list[float]:
    """Of the state after each day."""
    settings = SETTINGS.model_copy(update={"log_retention_seconds": 1.0, "commits_bytes": 1 << 20})
    found = []
    with redis_server(str(binary_path())) as url:
        async with created_model(url, config) as topology, leading(topology, settings) as learning:
            channel = Channel(topology)
            key = ModelKeys(MODEL, (await read_meta(channel, MODEL)).incarnation).state(0)
            for day in days(ROWS_A_DAY):
                await append(topology, await asyncio.to_thread(_examples, day), BATCH)
                await until_learned(topology, learning, checkpointed=True)
                found.append(await channel.call("MEMORY", "USAGE", key, "SAMPLES", 0) / 1e6)
            await channel.close()
    return found


def _examples(day: Day) -> list[NewExample]:
    batch = batch_of(day)
    hashes, labels = batch.hashes.tolist(), batch.labels.tolist()
    spans = pairwise(batch.row_ptr.tolist())
    return [
        NewExample(Encoded(hashes[start:stop], None), label, 1.0, None, None)
        for (start, stop), label in zip(spans, labels, strict=True)
    ]
