"""Whether predictions stay calibrated where a tenth of the labels 0 is learned: against a known truth."""

from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.result import Options, Result, Target
from lab.simulation.world import World
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import Encoded, FeatureEncoder
from service.example_log.ids import is_sampled, packed_id
from service.models.config.model import ModelConfig

SEEDS = range(1, 5)
IMPRESSIONS = 200_000
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
    """Mean prediction over mean truth in the second half of a life, from what was learned by then.
    `clicks_ratio`: clicks over mean truth in it; `kept_ratio`: sampled labels 0 over a tenth of them.
    """

    sampled: float
    whole: float
    clicks_ratio: float
    kept_ratio: float

    @property
    def ratio(self) -> float:
        """What sampling does in this world."""
        return self.sampled / self.whole

    @property
    def unexplained(self) -> float:
        """What it does beyond the chance by which more or fewer labels 0 were kept than a tenth."""
        return self.ratio * self.kept_ratio


def measure(_: Options) -> list[Result]:
    """One round a world; no figure of speed."""
    worlds = [_calibration(_life(seed)) for seed in SEEDS]
    sampled = [world.sampled for world in worlds]
    what = f"a tenth of the labels 0, {len(worlds)} simulated worlds of {IMPRESSIONS:,} impressions"
    return [
        Result(
            "negative-sampling",
            f"{what}: mean prediction over mean truth",
            "",
            tuple(sampled),
            tuple(world.whole for world in worlds),
            "all labels 0",
            notes=tuple(_notes(worlds)),
        ),
        Result(
            "negative-sampling",
            "how far the mean of the worlds is from the truth, and two standard errors",
            "",
            (abs(fmean(sampled) - 1) + 2 * _error(sampled),),
            target=Target("<=", BOUND),
        ),
        Result(
            "negative-sampling",
            "the world in which sampling does most beyond the chance of how many labels 0 were kept",
            "",
            (max(abs(world.unexplained - 1) for world in worlds),),
            target=Target("<=", BOUND),
        ),
    ]


def _notes(worlds: Sequence[Calibration]) -> Iterator[str]:
    series = {
        "sampled": [world.sampled for world in worlds],
        "all": [world.whole for world in worlds],
        "clicks over truth": [world.clicks_ratio for world in worlds],
        "sampled over all": [world.ratio for world in worlds],
        "labels 0 kept over a tenth": [world.kept_ratio for world in worlds],
        "sampled over all, times kept over a tenth": [world.unexplained for world in worlds],
    }
    for name, values in series.items():
        each = " ".join(f"{value:.4f}" for value in values)
        yield f"{name}: {each}; mean {fmean(values):.4f}, standard error {_error(values):.4f}"
    clicks = IMPRESSIONS / 2 * CLICK_RATE
    kept = IMPRESSIONS / 2 * (1 - CLICK_RATE) * RATE
    yield (
        f"standard error of one world: {clicks**-0.5:.4f} from {clicks:,.0f} clicks in its second half, and"
        f" {((1 - RATE) / kept) ** 0.5:.4f} more from {kept:,.0f} sampled labels 0"
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
    negatives = ~life.labels[half]
    return Calibration(
        float(_served(life, life.sampled, 1 / RATE)[half].mean() / truth),
        float(_served(life, everything, 1.0)[half].mean() / truth),
        float(life.labels[half].mean() / truth),
        float((negatives & life.sampled[half]).sum() / (RATE * negatives.sum())),
    )


def _served(
    life: Life, learned: npt.NDArray[np.bool_], weight_of_negatives: float
) -> npt.NDArray[np.float64]:
    """float64[r]: what is predicted of each impression, from the commits before its own."""
    state, served = CONFIG.empty_state(), []
    for start in range(0, len(life.encoded), A_COMMIT):
        rows = slice(start, start + A_COMMIT)
        served.append(CONFIG.predict(state, ExampleBatch.from_encoded(life.encoded[rows])))
        kept = [start + int(k) for k in np.flatnonzero(learned[rows])]
        weights = [1.0 if life.labels[k] else weight_of_negatives for k in kept]
        labels = [int(life.labels[k]) for k in kept]
        CONFIG.learn(state, ExampleBatch.from_encoded([life.encoded[k] for k in kept], labels, weights))
    return np.concatenate(served)
