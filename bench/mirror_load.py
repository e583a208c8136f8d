"""How long a process takes to load its mirror of a model of a million features."""

import asyncio
from time import perf_counter

from bench.filled_model import FEATURES, MODEL, SETTINGS, created_model, fill
from bench.processes import redis_server
from bench.result import Options, Result, Target
from service.models.mirror import Mirror
from service.settings import Settings
from service.snapshots.restore.shortcut import shortcut_of
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.embedded_binary import binary_path
from service.storage.topology import Topology


def measure(options: Options) -> list[Result]:
    with redis_server(str(binary_path())) as url:
        seconds = asyncio.run(_loads(url, options.rounds))
    return [
        Result(
            "mirror-load",
            f"load a mirror of {FEATURES:,} features",
            "s",
            tuple(seconds),
            target=Target("<=", 3.0),
        )
    ]


async def _loads(url: str, rounds: int) -> list[float]:
    async with created_model(url) as topology:
        await fill(topology)
        return [await seconds_to_load(topology, SETTINGS, FEATURES) for _ in range(rounds)]


async def seconds_to_load(topology: Topology, settings: Settings, features: int) -> float:
    """As a process does that starts. `features`: how many the model has."""
    shortcut = shortcut_of(settings, SnapshotStore(settings))
    started = perf_counter()
    mirror = await Mirror.open(topology, MODEL, shortcut)
    seconds = perf_counter() - started
    assert mirror.replica.state.features_seen == features
    await mirror.close()
    return seconds
