"""A model's log full of examples, and a learner that works it off: for the benchmarks of the learner."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from time import monotonic, perf_counter

from bench.filled_model import MODEL, SETTINGS
from service.example_log.appender import Updates
from service.example_log.incoming import NewExample, NewExamples
from service.learning.learner import Learner
from service.learning.lease import new_holder
from service.models.registry import Models
from service.models.replica import read_meta
from service.settings import Settings
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import Channel
from service.storage.health import ServerHealth
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics


async def append(topology: Topology, examples: Sequence[NewExample], batch_size: int) -> None:
    """Put the examples into the log, `batch_size` at a time."""
    models = Models(topology, SETTINGS)
    updates = Updates(topology, SETTINGS, ServerHealth(topology, SETTINGS), Metrics())
    model = await models.get(MODEL)
    source = iter(examples)
    while batch := list(islice(source, batch_size)):
        deadline = monotonic() + SETTINGS.update_timeout_seconds
        await updates.append(model, NewExamples.of(batch), deadline)
    await updates.close()
    await models.close()


async def learn(topology: Topology, settings: Settings = SETTINGS) -> float:
    """Seconds from the moment a learner leads until the state in Redis has everything in the log."""
    async with leading(topology, settings) as learning:
        started = perf_counter()
        await until_learned(topology, learning, checkpointed=True)
        return perf_counter() - started


@asynccontextmanager
async def leading(topology: Topology, settings: Settings = SETTINGS) -> AsyncIterator[asyncio.Task[None]]:
    """A learner that leads."""
    health, store = ServerHealth(topology, settings), SnapshotStore(settings)
    learner = await Learner.open(topology, MODEL, settings, health, Metrics(), store, new_holder())
    learning = asyncio.create_task(learner.run())
    try:
        while not learner.leading:  # noqa: ASYNC110  it offers nothing to wait for
            await asyncio.sleep(0.001)
        yield learning
    finally:
        learning.cancel()
        await asyncio.gather(learning, return_exceptions=True)


async def until_learned(
    topology: Topology, learning: asyncio.Task[None], *, checkpointed: bool = False
) -> None:
    """Waits until the log is learned. `checkpointed`: and all of it is in the state."""
    channel = Channel(topology)
    while True:
        meta = await read_meta(channel, MODEL)
        behind = checkpointed and meta.checkpoint is not None and meta.checkpoint.token != meta.token
        if not (meta.backlog or behind):
            break
        if learning.done():
            learning.result()
        await asyncio.sleep(0.005)
    await channel.close()
