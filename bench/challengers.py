"""What challengers cost the process that learns them beside their champion, whose log they learn."""

import asyncio
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import process_time

from bench.criteo import rows
from bench.filled_model import MODEL, SETTINGS, created_model
from bench.learning_log import append
from bench.processes import redis_server
from bench.result import Options, Result, Target, alternate
from model_core.hashing.encoder import FeatureEncoder
from model_core.learning.rounds import warm_up, warm_up_mixture
from service.example_log.incoming import NewExample
from service.learning.learners import Learners
from service.models.aliases import Aliases
from service.models.config.model import ModelConfig
from service.models.registry import Models
from service.models.replica import read_meta
from service.runtime.tasks import cancel_all
from service.snapshots.restore.challenge import challenge
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import Channel
from service.storage.embedded_binary import binary_path
from service.storage.health import ServerHealth
from service.storage.topology import Topology, connect
from service.telemetry.metrics import Metrics

CHALLENGERS = (1, 3, 10)
MOST = Target("<=", 3.0)
STREAMS = ((1, 5_000), (50, 40_000))
"""Examples appended at a time, and in all."""
CONFIG = ModelConfig.from_json({"hashing": {"bits": 20}})


def measure(options: Options) -> list[Result]:
    warm_up()
    warm_up_mixture()
    return [_measured(options, number, *stream) for stream in STREAMS for number in CHALLENGERS]


def _measured(options: Options, challengers: int, batch: int, count: int) -> Result:
    with_them, without = alternate(
        options.rounds, lambda: _spent(challengers, batch, count), lambda: _spent(0, batch, count)
    )
    return Result(
        "challengers",
        f"processor time of the learner with {challengers} of them, for an example, {batch} an append",
        "us",
        tuple(1e6 * seconds / count for seconds in with_them),
        tuple(1e6 * seconds / count for seconds in without),
        "the learner without any",
        MOST if challengers == max(CHALLENGERS) else None,
    )


def _spent(challengers: int, batch: int, count: int) -> float:
    with redis_server(str(binary_path())) as url:
        return asyncio.run(_learned(url, challengers, batch, count))


async def _learned(url: str, challengers: int, batch: int, count: int) -> float:
    """Processor seconds while another process appends the second half: by then the tables are in use."""
    async with created_model(url, CONFIG) as topology:
        models, store = Models(topology, SETTINGS), SnapshotStore(SETTINGS)
        names = [f"challenger-{number}" for number in range(challengers)]
        for number, name in enumerate(names):
            body = {"hyper": {"l2": 0.01 * number}}
            await challenge(models, Aliases(models), store, name, MODEL, "now", body)
        await models.close()  # else their mirrors would follow what is measured
        learners = Learners(topology, models, SETTINGS, ServerHealth(topology, SETTINGS), Metrics())
        learning = asyncio.create_task(learners.run())
        ours, theirs = get_context("spawn").Pipe()
        appending = get_context("spawn").Process(target=_append, args=(url, theirs, batch, count))
        appending.start()
        spent = 0.0
        for number in (count, 2 * count):
            await asyncio.to_thread(ours.recv)  # it is ready
            before = process_time()
            ours.send("go on")
            await _until_learned(topology, {MODEL, *names}, number)
            spent = process_time() - before
        await asyncio.to_thread(appending.join)
        await cancel_all([learning])
        return spent


async def _until_learned(topology: Topology, names: set[str], number: int) -> None:
    """Until all of them have learned so many examples, and their states are written."""
    channel = Channel(topology)
    while names:
        await asyncio.sleep(0.1)
        for name in list(names):
            meta = await read_meta(channel, name)
            written = meta.checkpoint is None or meta.checkpoint.token == meta.token
            if meta.applied_number == number and written:
                names.remove(name)
    await channel.close()


def _append(url: str, orders: Connection, batch: int, count: int) -> None:
    """Append a half of the examples at each order."""
    encoder = FeatureEncoder(CONFIG.hashing)
    examples = [
        NewExample(encoder.encode(row.features), row.label, 1.0, None, None) for row in rows(2 * count)
    ]

    async def run() -> None:
        topology = connect(SETTINGS, url)
        for half in (examples[:count], examples[count:]):
            orders.send("ready")
            orders.recv()
            await append(topology, half, batch)
        await topology.close()

    asyncio.run(run())
