"""Examples that keep coming for many models: `python -m bench.trickle REDIS_URL MODEL...`, until its standard
input ends.
"""

import asyncio
import select
import sys
from itertools import count
from time import monotonic, perf_counter

import numpy as np
import uvloop

from bench.filled_model import SETTINGS
from model_core.hashing.encoder import Encoded
from service.example_log.appender import Updates
from service.example_log.incoming import NewExample, NewExamples
from service.models.evaluation.slices import SliceName
from service.models.registry import Models
from service.storage.health import ServerHealth
from service.storage.topology import connect
from service.telemetry.metrics import Metrics

EXAMPLES_A_TICK = 20
TICK_SECONDS = 0.1
FEATURES = 38
CLICK_RATE = 0.1


async def trickle(url: str, names: list[str]) -> None:
    """EXAMPLES_A_TICK for each model every TICK_SECONDS, of random features and one that is sliced."""
    topology = connect(SETTINGS, url)
    models = Models(topology, SETTINGS)
    updates = Updates(topology, SETTINGS, ServerHealth(topology, SETTINGS), Metrics())
    opened = [await models.get(name) for name in names]
    values = sliced_values()
    slice_names = {category: SliceName(0, f"a{number}") for number, category in enumerate(values)}
    random = np.random.default_rng(1)
    began = perf_counter()
    for tick in count(1):
        for model in opened:
            examples = _examples(random, values)._replace(slice_names=slice_names)
            await updates.append(model, examples, monotonic() + SETTINGS.update_timeout_seconds)
        if select.select([sys.stdin], [], [], 0)[0]:
            break
        await asyncio.sleep(max(0.0, began + tick * TICK_SECONDS - perf_counter()))
    await updates.close()
    await models.close()
    await topology.close()


def sliced_values() -> list[int]:
    """Hashes of the values of the sliced feature."""
    return [int(value) for value in np.random.default_rng(2).integers(0, 2**32, 40)]


def _examples(random: np.random.Generator, values: list[int]) -> NewExamples:
    hashes = random.integers(0, 2**32, (EXAMPLES_A_TICK, FEATURES)).tolist()
    clicked = random.random(EXAMPLES_A_TICK) < CLICK_RATE
    sliced = random.choice(values, EXAMPLES_A_TICK).tolist()
    return NewExamples.of(
        [
            NewExample(Encoded([*row, value], None), int(click), 1.0, None, None)
            for row, value, click in zip(hashes, sliced, clicked, strict=True)
        ]
    )


if __name__ == "__main__":
    uvloop.run(trickle(sys.argv[1], sys.argv[2:]))
