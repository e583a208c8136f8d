"""Whether predictions stay calibrated where a tenth of the labels 0 is learned: against a known truth."""

from functools import partial
from statistics import fmean

import numpy as np
import numpy.typing as npt

from bench.result import Options, Result
from model_core.examples import ExampleBatch
from model_core.hashing import FeatureEncoder
from model_core.state import ModelState
from service.feedback.identity import is_sampled, packed_id
from service.model_config import ModelConfig
from service.simulation.world import Impression, World

SEEDS = range(1, 9)
IMPRESSIONS = 40_000
CLICK_RATE = 0.1
RATE = 0.1
A_COMMIT = 250
CONFIG = ModelConfig.from_json(
    {"hyper": {"l1": 0.1}, "hashing": {"bits": 18, "prior_probability": CLICK_RATE}}
)


def measure(_: Options) -> list[Result]:
    """One round a seed; no figure of speed."""
    sampled, whole = (tuple(map(partial(_calibration, rate=rate), SEEDS)) for rate in (RATE, 1.0))
    return [
        Result(
            "negative-sampling",
            f"mean prediction over mean truth, a tenth of the labels 0, {len(SEEDS)} simulated worlds",
            "",
            sampled,
            whole,
            "all labels 0",
            notes=(f"means over the worlds: {fmean(sampled):.4f}, with all labels 0 {fmean(whole):.4f}",),
        )
    ]


def _calibration(seed: int, rate: float) -> float:
    """Of what is predicted of the second half, from what was learned by then."""
    world = World(seed, CLICK_RATE, 1)
    life = [world.next() for _ in range(IMPRESSIONS)]
    truth = np.array([impression.probabilities[0] for impression in life])
    served = _served(life, rate, seed)
    half = len(life) // 2
    return float(served[half:].mean() / truth[half:].mean())


def _served(life: list[Impression], rate: float, seed: int) -> npt.NDArray[np.float64]:
    encoder = FeatureEncoder(CONFIG.hashing)
    encoded = [encoder.encode(one.context | one.candidates[0]) for one in life]
    labels = [int(one.chances.click < one.probabilities[0]) for one in life]
    learned = [
        label == 1 or is_sampled(packed_id(f"{seed}-{one.number}"), rate)
        for one, label in zip(life, labels, strict=True)
    ]
    state, served = ModelState.empty(CONFIG.hashing.bits), []
    for start in range(0, len(life), A_COMMIT):
        rows = range(start, min(start + A_COMMIT, len(life)))
        served.append(CONFIG.predict(state, ExampleBatch.from_encoded([encoded[k] for k in rows])))
        kept = [k for k in rows if learned[k]]
        weights = [1.0 if labels[k] else 1 / rate for k in kept]
        batch = ExampleBatch.from_encoded([encoded[k] for k in kept], [labels[k] for k in kept], weights)
        CONFIG.learn(state, batch)
    return np.concatenate(served)
