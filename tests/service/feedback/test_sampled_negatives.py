"""Predictions stay calibrated when most labels 0 are left out: against a world whose truth is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lab.simulation.world import World
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from service.example_log.ids import is_sampled
from service.models.config.model import ModelConfig
from tests.service.feedback.conftest import Bench, id_of

CLICK_RATE = 0.1
IMPRESSIONS, AT_ONCE = 30_000, 1000
RATE = 0.1
CONFIG = ModelConfig.from_json(
    {"hyper": {"l1": 0.1}, "hashing": {"bits": 18, "prior_probability": CLICK_RATE}}
)


@pytest.mark.slow
async def test_served_predictions_are_within_2_percent_of_the_truth(make_bench: Callable[..., Bench]) -> None:
    world = World(1, CLICK_RATE, 1)
    life = [world.next() for _ in range(IMPRESSIONS)]
    encoder = FeatureEncoder(CONFIG.hashing)
    batch = ExampleBatch.from_encoded([encoder.encode(one.context | one.candidates[0]) for one in life])
    labels = [int(one.chances.click < one.probabilities[0]) for one in life]

    bench = make_bench(exposure="on_predict", learn_at="arrival", negative_sample_rate=RATE)
    for first in range(0, IMPRESSIONS, AT_ONCE):
        await bench.log_batch(first, batch.slice(first, first + AT_ONCE))
        await bench.label(*enumerate(labels[first : first + AT_ONCE], first))
    examples = await bench.logged()
    numbers = [int.from_bytes(identifier[:12], "big") for identifier in examples.prediction_ids or ()]
    assert numbers == [k for k in range(IMPRESSIONS) if labels[k] or is_sampled(id_of(k), RATE)]

    state, served = CONFIG.empty_state(), []
    for first in range(0, IMPRESSIONS, AT_ONCE):
        served.append(CONFIG.predict(state, batch.slice(first, first + AT_ONCE)))
        CONFIG.learn(state, examples.slice(*np.searchsorted(numbers, [first, first + AT_ONCE]).tolist()))
    half = IMPRESSIONS // 2
    truth = np.array([one.probabilities[0] for one in life])
    assert np.concatenate(served)[half:].mean() / truth[half:].mean() == pytest.approx(1, abs=0.02)
