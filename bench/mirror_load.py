"""How long a process takes to load its mirror of a model, of a million features and of five million that have
commits behind the last checkpoint.
"""

import asyncio
from time import perf_counter

from bench.criteo import rows
from bench.filled_model import CONFIG, FEATURES, MODEL, SETTINGS, created_model, fill
from bench.learning_log import append, leading, until_learned
from bench.processes import redis_server
from bench.result import Options, Result, Target
from model_core.hashing.encoder import FeatureEncoder
from model_core.learning.rounds import warm_up
from service.example_log.incoming import NewExample
from service.models.config.model import ModelConfig
from service.models.mirror import Mirror
from service.models.replica import read_meta
from service.settings import Settings
from service.snapshots.restore.shortcut import shortcut_of
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import Channel
from service.storage.embedded_binary import binary_path
from service.storage.topology import Topology

MANY, BEHIND, BATCH = 5_000_000, 100_000, 2048
LARGE = ModelConfig.from_json(CONFIG.to_json() | {"hashing": {"bits": 24}})
NEVER = SETTINGS.model_copy(update={"checkpoint_seconds": 3600.0})


def measure(options: Options) -> list[Result]:
    warm_up()
    with redis_server(str(binary_path())) as url:
        loads = asyncio.run(_loads(url, options.rounds))
    with redis_server(str(binary_path())) as url:
        behind, starts = asyncio.run(_starts(url, options.rounds))
    examples = f"{MANY:,} features and {BEHIND:,} examples behind the checkpoint"
    return [
        Result(
            "mirror-load",
            f"load a mirror of {FEATURES:,} features",
            "s",
            tuple(loads),
            target=Target("<=", 3.0),
        ),
        Result("mirror-load", f"load a mirror of {examples}", "s", tuple(behind), target=Target("<=", 5.0)),
        Result("mirror-load", f"start a learner of {examples}", "s", tuple(starts), target=Target("<=", 5.0)),
    ]


async def _loads(url: str, rounds: int) -> list[float]:
    async with created_model(url) as topology:
        await fill(topology)
        return [await seconds_to_load(topology, SETTINGS, FEATURES) for _ in range(rounds)]


async def seconds_to_load(topology: Topology, settings: Settings, features: int) -> float:
    """As a process does that starts. `features`: how many the model has at least."""
    shortcut = shortcut_of(settings, SnapshotStore(settings))
    started = perf_counter()
    mirror = await Mirror.open(topology, MODEL, shortcut)
    seconds = perf_counter() - started
    assert mirror.replica.state.features_seen >= features
    await mirror.close()
    return seconds


async def _starts(url: str, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds until a mirror is loaded, and until a learner leads, with commits that no checkpoint has."""
    async with created_model(url, LARGE) as topology:
        await fill(topology, MANY)
        await append(topology, _examples(), BATCH)
        async with leading(topology, NEVER) as learning:
            await until_learned(topology, learning)
        meta = await read_meta(Channel(topology), MODEL)
        assert meta.checkpoint is not None
        assert (meta.t, meta.checkpoint.token == meta.token) == (BEHIND, False)
        loads = [await seconds_to_load(topology, NEVER, MANY) for _ in range(rounds)]
        return loads, [await _seconds_to_lead(topology) for _ in range(rounds)]


async def _seconds_to_lead(topology: Topology) -> float:
    started = perf_counter()
    async with leading(topology, NEVER):
        return perf_counter() - started


def _examples() -> list[NewExample]:
    encoder = FeatureEncoder(LARGE.hashing)
    found = [NewExample(encoder.encode(row.features), row.label, 1.0, None, None) for row in rows()]
    return (found + found)[:BEHIND]
