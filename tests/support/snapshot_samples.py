"""Snapshots of models that learned a little, for tests of what becomes of them."""

from __future__ import annotations

import numpy as np

from model_core.examples.batch import ExampleBatch
from model_core.learning.state import ModelState
from model_core.snapshot import Snapshot
from service.models.config.model import ModelConfig
from service.models.replica import Replica
from service.snapshots.take.capture import capture
from service.storage.records import LogId, ModelKeys

CONFIG = ModelConfig.from_json({"hyper": {"rate": {"kind": "adaptive"}}, "hashing": {"bits": 16}})


def learned_state(count: int = 500, config: ModelConfig = CONFIG, seed: int = 0) -> ModelState:
    state = config.empty_state()
    random = np.random.default_rng(seed)
    encoded = [(hashes.tolist(), None) for hashes in random.integers(0, 2**32, (count, 5), np.uint32)]
    config.learn(state, ExampleBatch.from_encoded(encoded, random.integers(0, 2, count).tolist()))
    return state


def replica_of(state: ModelState, config: ModelConfig = CONFIG, commit: int = 3) -> Replica:
    return Replica(
        ModelKeys("clicks", "0123456789abcdef"),
        config,
        state,
        generation=0,
        token=b"token",
        commit=commit,
        skipped=0,
        applied=LogId(1700000000000, 0),
        applied_number=state.t,
        position=LogId(1700000000001, 0),
    )


def sample(count: int = 500, config: ModelConfig = CONFIG, commit: int = 3, seed: int = 0) -> Snapshot:
    replica = replica_of(learned_state(count, config, seed), config, commit)
    return capture(replica, {b"bins": b"\x00\x01"}).snapshot("test")
