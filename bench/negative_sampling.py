"""Whether predictions stay calibrated where a tenth of the labels 0 is learned: against a known truth."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.result import Options, Result, Target
from model_core.encoded import Encoded
from model_core.examples import ExampleBatch
from model_core.hashing import FeatureEncoder
from model_core.state import ModelState
from service.feedback.identity import is_sampled, packed_id
from service.model_config import ModelConfig
from service.simulation.world import World

SEEDS = range(1, 5)
IMPRESSIONS = 300_000
CLICK_RATE = 0.1
RATE = 0.1
BOUND = 0.02
"""How far from the truth predictions may be."""
A_COMMIT = 250
CONFIG = ModelConfig.from_json(
    {"hyper": {"l1": 0.1}, "hashing": {"bits": 18, "prior_probability": CLICK_RATE}}
)


class Life(NamedTuple):
    """The impressions of one world. `truth` float64[r]; `labels` bool[r]; `sampled` bool[r]: those that are
    learned where only a tenth of the labels 0 is.
    """

    encoded: list[Encoded]
    truth: npt.NDArray[np.float64]
    labels: npt.NDArray[np.bool_]
    sampled: npt.NDArray[np.bool_]


class Calibration(NamedTuple):
    """Mean prediction over mean truth in the second half of a life, from what was learned by then, and what
    was learned in it.
    """

    sampled: float
    whole: float
    clicks: int
    sampled_negatives: int


def measure(_: Options) -> list[Result]:
    """One round a world; no figure of speed."""
    worlds = [_calibration(_life(seed)) for seed in SEEDS]
    sampled, whole = [world.sampled for world in worlds], [world.whole for world in worlds]
    what = f"a tenth of the labels 0, {len(worlds)} simulated worlds of {IMPRESSIONS:,} impressions"
    return [
        Result(
            "negative-sampling",
            f"{what}: mean prediction over mean truth",
            "",
            tuple(sampled),
            tuple(whole),
            "all labels 0",
            notes=(
                _told("sampled", sampled),
                _told("all", whole),
                _told("sampled over all", [a / b for a, b in zip(sampled, whole, strict=True)]),
                _chance(worlds),
            ),
        ),
        Result(
            "negative-sampling",
            f"{what}: how far the mean of the worlds is from the truth, and two standard errors",
            "",
            (abs(fmean(sampled) - 1) + 2 * _error(sampled),),
            target=Target("<=", BOUND),
        ),
    ]


def _told(name: str, values: Sequence[float]) -> str:
    each = " ".join(f"{value:.4f}" for value in values)
    return f"{name}: {each}; mean {fmean(values):.4f}, standard error {_error(values):.4f}"


def _chance(worlds: Sequence[Calibration]) -> str:
    """What is to be expected of one world: relative standard errors of Poisson counts."""
    clicks, negatives = fmean(w.clicks for w in worlds), fmean(w.sampled_negatives for w in worlds)
    of_clicks, of_sampling = clicks**-0.5, ((1 - RATE) / negatives) ** 0.5
    return (
        f"by chance, in one world: {of_clicks:.4f} from {clicks:,.0f} clicks in its second half, and"
        f" {of_sampling:.4f} from {negatives:,.0f} sampled labels 0, which is all of sampled over all"
    )


def _error(values: Sequence[float]) -> float:
    """Standard error of their mean, from how they differ."""
    return float(stdev(values) / len(values) ** 0.5)


def _life(seed: int) -> Life:
    world, encoder = World(seed, CLICK_RATE, 1), FeatureEncoder(CONFIG.hashing)
    encoded, truth, labels, sampled = [], [], [], []
    for _ in range(IMPRESSIONS):
        one = world.next()
        encoded.append(encoder.encode(one.context | one.candidates[0]))
        truth.append(float(one.probabilities[0]))
        labels.append(one.chances.click < truth[-1])
        sampled.append(labels[-1] or is_sampled(packed_id(f"{seed}-{one.number}"), RATE))
    return Life(encoded, np.array(truth), np.array(labels), np.array(sampled))


def _calibration(life: Life) -> Calibration:
    half = slice(len(life.truth) // 2, None)
    truth = life.truth[half].mean()
    everything = np.ones_like(life.sampled)
    return Calibration(
        float(_served(life, life.sampled, 1 / RATE)[half].mean() / truth),
        float(_served(life, everything, 1.0)[half].mean() / truth),
        int(life.labels[half].sum()),
        int((life.sampled & ~life.labels)[half].sum()),
    )


def _served(
    life: Life, learned: npt.NDArray[np.bool_], weight_of_negatives: float
) -> npt.NDArray[np.float64]:
    """float64[r]: what is predicted of each impression, from the commits before its own."""
    state, served = ModelState.empty(CONFIG.hashing.bits), []
    for start in range(0, len(life.encoded), A_COMMIT):
        rows = slice(start, start + A_COMMIT)
        served.append(CONFIG.predict(state, ExampleBatch.from_encoded(life.encoded[rows])))
        kept = [start + int(k) for k in np.flatnonzero(learned[rows])]
        weights = [1.0 if life.labels[k] else weight_of_negatives for k in kept]
        labels = [int(life.labels[k]) for k in kept]
        CONFIG.learn(state, ExampleBatch.from_encoded([life.encoded[k] for k in kept], labels, weights))
    return np.concatenate(served)
