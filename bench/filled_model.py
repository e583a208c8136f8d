"""A model of a million features or more in Redis, for benchmarks of its size and of work on all of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np

from model_core.learning.state import ModelState
from service.models.bulk_load import bulk_load
from service.models.config.model import ModelConfig
from service.models.mirror import Mirror
from service.models.registry import Models
from service.settings import Settings
from service.storage.topology import Topology, connect

FEATURES = 1_000_000
SETTINGS = Settings(
    redis_timeout_seconds=10, lease_seconds=60, checkpoint_seconds=0.1
)  # a loaded machine's disk must not end a benchmark
MODEL = "bench"
CONFIG = ModelConfig.from_json({"hyper": {"rate": {"kind": "adaptive"}}})


@asynccontextmanager
async def created_model(url: str, config: ModelConfig = CONFIG) -> AsyncIterator[Topology]:
    """The server at `url`, with a fresh model there."""
    topology = connect(SETTINGS, url)
    try:
        models = Models(topology, SETTINGS)
        await models.create(MODEL, config)
        await models.close()  # else its mirror would follow what is measured
        yield topology
    finally:
        await topology.close()


async def fill(topology: Topology, features: int = FEATURES) -> None:
    """Store so many features of random slots and values, as a bulk load stores them."""
    mirror = await Mirror.open(topology, MODEL)
    state = mirror.replica.state
    await bulk_load(mirror.channel, mirror.replica, random_state(state.bits, features, state.experts))
    await mirror.close()


def random_state(bits: int, features: int = FEATURES, experts: int = 1) -> ModelState:
    random = np.random.default_rng(1)
    state = ModelState.empty(bits, experts)
    slots = random.choice(state.size, features, replace=False).astype(np.uint32)
    rows = random.standard_normal((features, 2 * experts))
    np.abs(rows, out=rows)  # n is a sum of squares; with one below 0 no example could be learned
    state.apply_rows(slots, rows)
    return state
