"""Worlds that change: log loss over time, and the weights of the experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.experiments.datasets import Dataset, dataset_of
from lab.experiments.markdown import markdown_table
from lab.experiments.space import Space
from lab.experiments.untuned import OLD_HYPER, settings_of
from lab.simulation.experts import names_of
from lab.simulation.world import WORLDS
from model_core.hashing.contract import HashContract
from model_core.hashing.encoder import FeatureEncoder
from model_core.kernels.numerics import log_losses
from model_core.learning.state import Mixture
from service.models.config.model import ModelConfig

ROWS, QUICK_ROWS = 300_000, 6_000
CLICK_RATE = 0.05
PARTS = 60
SEED = 1
SHOCK_AT = 0.5
OLD, NEW, BEST = "old default", "new default", "best single"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Stream:
    """Impressions of a world in order of time, one ad each, and the truth: float64[rows], of a click."""

    world: str
    data: Dataset
    truth: Floats


@dataclass(frozen=True)
class Drift:
    """Curves over PARTS equal parts of a stream.

    excess: by configuration the expected log loss float64[parts] beyond that of the truth. weights: of the
    new default's experts after each part, float64[parts, experts]. best: the settings of the best single one.
    """

    world: str
    rows: int
    excess: Mapping[str, Floats]
    weights: Floats
    experts: Sequence[str]
    best: str

    def to_json(self) -> dict[str, Any]:
        return {
            "world": self.world,
            "rows": self.rows,
            "excess": {name: curve.tolist() for name, curve in self.excess.items()},
            "experts": list(self.experts),
            "weights": self.weights.tolist(),
            "best": self.best,
        }


def stream_of(name: str, rows: int, seed: int = SEED) -> Stream:
    """Draw the impressions of a world, each of any ad. The world `shock` has its shock halfway."""
    world = WORLDS[name](seed, CLICK_RATE, 1, rows)
    encoder = FeatureEncoder(HashContract(bias=False))
    features: list[int] = []
    row_ptr, truth, labels = [0], [], []
    for number in range(rows):
        if name == "shock" and number == int(SHOCK_AT * rows):
            world.shock()
        impression = world.next()
        features += encoder.encode(impression.context | impression.candidates[0])[0]
        row_ptr.append(len(features))
        truth.append(impression.probabilities[0])
        labels.append(impression.chances.click < impression.probabilities[0])
    data = dataset_of(name, np.array(row_ptr), np.array(features), np.empty(0), np.array(labels, np.uint8))
    return Stream(name, data, np.array(truth))


def run(stream: Stream, jobs: int | None, *, quick: bool = False) -> Drift:
    """Learn the stream with the defaults and with all of `ftrl tune`'s grid."""
    from joblib import Parallel, delayed

    hashing = {"bits": stream.data.bits}
    space = Space(hashings=(hashing,), alphas=(0.1, 0.5) if quick else ())
    options = [one for one in space.options()[0] if one.config.hyper.number_of_experts == 1]
    old = ModelConfig.from_json({"hyper": OLD_HYPER, "hashing": hashing | {"prior_probability": None}})
    new = ModelConfig.from_json({"hashing": hashing})
    tried = Parallel(n_jobs=jobs, prefer="threads")(
        delayed(_excess)(stream, config) for config in (old, *(one.config for one in options))
    )
    place = min(range(1, len(tried)), key=lambda i: tried[i][0].mean())
    served, weights = _excess(stream, new)
    return Drift(
        stream.world,
        stream.data.rows,
        {OLD: tried[0][0], BEST: tried[place][0], NEW: served},
        weights,
        _experts_of(new),
        settings_of(options[place - 1].varied),
    )


def _excess(stream: Stream, config: ModelConfig) -> tuple[Floats, Floats]:
    """The excess of each part, and the weights of the experts after it, of which a single model has none."""
    state, batch = config.empty_state(), stream.data.batch
    bounds = np.linspace(0, len(batch), PARTS + 1).astype(np.int64).tolist()
    excess, weights = [], []
    for first, last in pairwise(bounds):
        margins = config.learn(state, batch.slice(first, last)).margins
        excess.append(excess_of(stream.truth[first:last], margins))
        if isinstance(state.discount, Mixture):
            weights.append(state.discount.weights.tolist())
    return np.array(excess), np.array(weights)


def excess_of(truth: Floats, margins: Floats) -> float:
    """The mean expected log loss of predictions beyond that of the true probabilities, both float64[rows]."""
    return float((_cross_entropy(truth, margins) - _entropy(truth)).mean())


def _cross_entropy(q: Floats, margins: Floats) -> Floats:
    ones = np.ones(q.size)
    losses: Floats = q * log_losses(margins, ones) + (1.0 - q) * log_losses(margins, 0 * ones)
    return losses


def _entropy(q: Floats) -> Floats:
    return _cross_entropy(q, np.log(q / (1.0 - q)))


def _experts_of(config: ModelConfig) -> list[str]:
    """The settings of each expert of a mixture; none of a single model."""
    if config.hyper.number_of_experts == 1:
        return []
    return names_of(config.to_json()["hyper"]["rate"]["experts"])


def report_json(found: Sequence[Drift]) -> dict[str, Any]:
    return {"worlds": [one.to_json() for one in found]}


def report_markdown(found: Sequence[Drift]) -> str:
    """Mean excess over all rows, the tenth after the middle, where a shock is, and the last fifth."""
    stretches = {"all rows": (0.0, 1.0), "after the middle": (0.5, 0.6), "last fifth": (0.8, 1.0)}
    headings = ("world", "rows", OLD, NEW, BEST, "its settings")
    rows = []
    for one in found:
        for stretch, (first, last) in stretches.items():
            places = slice(round(first * PARTS), round(last * PARTS))
            means = {name: curve[places].mean() for name, curve in one.excess.items()}
            shown = [f"{means[name]:.4f}" for name in (OLD, NEW, BEST)]
            rows.append((one.world, stretch, *shown, one.best))
    weights = [
        (one.world, name, *(f"{weight:.2f}" for weight in one.weights[[PARTS // 4, PARTS // 2 - 1, -1], k]))
        for one in found
        for k, name in enumerate(one.experts)
    ]
    table = markdown_table(headings, rows)
    if not weights:
        return table + "\n"
    second = markdown_table(("world", "expert", "weight at a quarter", "at half", "at the end"), weights)
    return f"{table}\n\n{second}\n"
