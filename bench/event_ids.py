"""What it costs an append to remember event ids for long."""

import asyncio
import secrets
import time
from statistics import median

from bench.filled_model import MODEL
from bench.processes import redis_server
from bench.result import Options, Result, Target
from model_core.examples.batch import ExampleBatch
from service.example_log.stream import ExampleLog, MicroBatch
from service.settings import Settings
from service.storage.channel import Channel
from service.storage.embedded_binary import binary_path
from service.storage.records import ModelKeys
from service.storage.scripts.models import create_model
from service.storage.topology import connect

APPENDS = 300
HOUR, DAY = 3600.0, 24 * 3600.0
KEYS = ModelKeys(MODEL, "0123456789abcdef")


def measure(options: Options) -> list[Result]:
    with redis_server(str(binary_path())) as url:
        rounds = [asyncio.run(_round(url)) for _ in range(options.rounds)]
    ours, month, reference = zip(*rounds, strict=True)
    return [
        Result(
            "event-ids",
            "append of one example whose event id is remembered for 90 days",
            "ms",
            ours,
            reference,
            against="for one hour",
            target=Target("<=", 2.0),
            notes=(f"for 30 days {median(month):.3f} ms",),
        )
    ]


async def _round(url: str) -> tuple[float, float, float]:
    return (
        await _milliseconds(url, 90 * DAY),
        await _milliseconds(url, 30 * DAY),
        await _milliseconds(url, HOUR),
    )


async def _milliseconds(url: str, retention_seconds: float) -> float:
    """The median of an append."""
    settings = Settings(redis_url=url, event_id_retention_seconds=retention_seconds)
    topology = connect(settings, url)
    channel = Channel(topology)
    await channel.call("FLUSHALL")
    meta: dict[str, str | bytes | int] = {"incarnation": KEYS.incarnation, "appended": 0, "applied_number": 0}
    await create_model(channel, KEYS.model, meta)
    log = ExampleLog(topology, KEYS, settings)
    example = ExampleBatch.from_encoded([(list(range(20)), None)], [1])
    waits = []
    for _ in range(APPENDS):
        batch = MicroBatch()
        batch.extend(example, [secrets.token_hex(8)])
        started = time.perf_counter()
        await log.append(batch, time.monotonic() + 60)
        waits.append(time.perf_counter() - started)
    await log.close()
    await channel.close()
    await topology.close()
    return 1000 * median(waits)
