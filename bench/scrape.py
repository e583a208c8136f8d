"""How long a scrape of a learner takes while it learns ten models, beside the least that it can answer."""

import asyncio
import http.client
import re
import sys
import time
import urllib.request
from dataclasses import dataclass
from statistics import median
from urllib.parse import urlsplit

from bench.filled_model import SETTINGS, random_state
from bench.processes import (
    START_SECONDS,
    ProcessFailed,
    answers,
    beside,
    free_port,
    ftrl,
    redis_server,
    running,
)
from bench.result import Options, Result, Target
from service.models.bulk_load import bulk_load
from service.models.config.model import ModelConfig
from service.models.mirror import Mirror
from service.models.registry import Models
from service.storage.embedded_binary import binary_path
from service.storage.topology import connect

MODELS = [f"model-{number}" for number in range(10)]
BITS = 22
FEATURES = 100_000
EVERY_SECONDS = 0.2
COUNTED = re.compile(r'^ftrl_model_density_ratio{model="([^"]*)"', re.MULTILINE)
EVALUATED = re.compile(r'^ftrl_online_auc{model="([^"]*)"', re.MULTILINE)


@dataclass
class Round:
    """Milliseconds of scrapes and of the least that the learner can answer; bytes of the last scrape."""

    scrapes: list[float]
    least: list[float]
    bytes: int = 0


def measure(options: Options) -> list[Result]:
    with redis_server(str(binary_path())) as redis:
        asyncio.run(_fill(redis))
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        environment = {"FTRL_REDIS_URL": redis, "FTRL_METRICS_PORT": str(port), "FTRL_SNAPSHOT_SECONDS": "0"}
        with (
            running(ftrl("learn"), lambda: answers(f"{url}/readyz"), environment),
            beside([sys.executable, "-m", "bench.trickle", redis, *MODELS]),
        ):
            _wait_until_published(url)
            rounds = [_round(url, options.seconds) for _ in range(options.rounds)]
    scrapes = [milliseconds for measured in rounds for milliseconds in measured.scrapes]
    least = [milliseconds for measured in rounds for milliseconds in measured.least]
    return [
        Result(
            "scrape",
            f"slowest scrape of a learner with {len(MODELS)} models of 2^{BITS} slots under load",
            "ms",
            tuple(max(measured.scrapes) for measured in rounds),
            target=Target("<=", 50.0),
            notes=(
                f"{len(scrapes)} scrapes of {rounds[-1].bytes:,} bytes, median {median(scrapes):.1f} ms",
                f"/livez in between: median {median(least):.1f} ms, slowest {max(least):.1f} ms",
            ),
        )
    ]


async def _fill(url: str) -> None:
    topology = connect(SETTINGS, url)
    models = Models(topology, SETTINGS)
    config = ModelConfig.from_json({"hashing": {"bits": BITS}, "evaluation": {"slices": ["ad"]}})
    state = random_state(BITS, FEATURES)
    for name in MODELS:
        await models.create(name, config)
        mirror = await Mirror.open(topology, name)
        await bulk_load(mirror.channel, mirror.replica, state)
        await mirror.close()
    await models.close()
    await topology.close()


def _wait_until_published(url: str) -> None:
    """Until every model is counted and has its first clicks."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with urllib.request.urlopen(f"{url}/metrics", timeout=START_SECONDS) as reply:
            text = reply.read().decode()
        if all(set(MODELS) <= set(pattern.findall(text)) for pattern in (COUNTED, EVALUATED)):
            return
        if time.monotonic() > deadline:
            raise ProcessFailed("the learner did not publish the figures of all its models")
        time.sleep(EVERY_SECONDS)


def _round(url: str, seconds: float) -> Round:
    """Asks for /livez and for the metrics in turn."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    measured = Round([], [])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for path, noted in (("/livez", measured.least), ("/metrics", measured.scrapes)):
            time.sleep(EVERY_SECONDS / 2)
            started = time.perf_counter()
            connection.request("GET", path)
            measured.bytes = len(connection.getresponse().read())
            noted.append(1000 * (time.perf_counter() - started))
    connection.close()
    return measured
