"""A restore of a large model: how long it takes, and how long the Redis server answers no client meanwhile;
and how long a process takes to start from the snapshot, against reading the state from Redis.
"""

import asyncio
from dataclasses import replace
from time import perf_counter

from bench.commit_stall import longest_wait
from bench.filled_model import CONFIG as SINGLE
from bench.filled_model import MODEL, SETTINGS, created_model, fill
from bench.mirror_load import seconds_to_load
from bench.processes import redis_server
from bench.result import Options, Result
from model_core.hashing.contract import HashContract
from service.models.replica import load_replica
from service.settings import Settings
from service.snapshots.restore.restore import RestorePlan, restore
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.take.capture import capture, write_and_retain
from service.storage.channel import Channel
from service.storage.embedded_binary import binary_path

FEATURES = 5_000_000
CONFIG = replace(SINGLE, hashing=HashContract(bits=24))


def measure(options: Options) -> list[Result]:
    settings = SETTINGS.model_copy(update={"snapshots": str(options.directory / "snapshots")})
    with redis_server(str(binary_path())) as url:
        stall, seconds, shortcut, scan = asyncio.run(_measured(url, settings))
    of = f"of {FEATURES:,} features"
    return [
        Result("restore-stall", f"longest wait of another client during a restore {of}", "ms", (stall,)),
        Result("restore-stall", f"a restore {of}, the snapshot before it included", "s", (seconds,)),
        Result(
            "restore-stall",
            f"a process starts with a model {of}: from its snapshot",
            "s",
            (shortcut,),
            (scan,),
            "from the state in Redis",
        ),
    ]


async def _measured(url: str, settings: Settings) -> tuple[float, float, float, float]:
    store = SnapshotStore(settings)
    async with created_model(url, CONFIG) as topology:
        await fill(topology, FEATURES)
        channel = Channel(topology)
        replica = await load_replica(channel, MODEL)
        entry, _ = write_and_retain(store, capture(replica, {}), "benchmark")
        del replica
        scan = await seconds_to_load(topology, settings, FEATURES)
        by_snapshot = settings.model_copy(update={"start_from_snapshot": True})
        shortcut = await seconds_to_load(topology, by_snapshot, FEATURES)
        started = perf_counter()
        stall = await longest_wait(url, restore(channel, store, RestorePlan(MODEL, entry.id)))
        seconds = perf_counter() - started
        await channel.close()
    return stall, seconds, shortcut, scan
