"""One pass over a data set: the unit of all experiments, a function of its parameters alone."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lab.experiments.datasets import Dataset
from model_core.evaluation.measures import summarize
from model_core.examples.batch import ExampleBatch
from model_core.learning.hyperparameters import Hyperparameters
from model_core.learning.rounds import learn_batch
from model_core.learning.state import ModelState
from service.runtime.kernels import cache_directory

_SHUFFLES, _WEIGHTS = 1, 2  # streams of random numbers


@dataclass(frozen=True)
class Pass:
    """Learn a data set once, from an empty state, without bias and offset.

    shuffle: the number of a random order of its rows; None: the order of the file.
    largest_weight: importance weights are drawn from 1 to this, their logarithms uniformly; 1: none.
    seed: seeds the orders and the weights.
    """

    hyper: Hyperparameters
    shuffle: int | None
    largest_weight: float = 1.0
    seed: int = 0

    def identity(self, dataset: Dataset) -> str:
        """Canonical JSON of everything that the outcome depends on, including the code that learns."""
        content: dict[str, Any] = {
            "data": {"name": dataset.name, "rows": dataset.rows, "digest": dataset.digest},
            "hyper": self.hyper.to_json(),
            "shuffle": self.shuffle,
            "largest_weight": self.largest_weight,
            "seed": self.seed,
            "core": core_digest(),
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Outcome:
    """Outcome of a pass, by progressive validation: each prediction was made before its example was learned.

    auc, log_loss: unweighted; weighted_log_loss: by importance weight.
    density: non-zero weights of the model after the pass, over features that occurred.
    processor_seconds: CPU time of the pass, without reading the data.
    """

    auc: float
    log_loss: float
    weighted_log_loss: float
    density: float
    processor_seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_pass(dataset: Dataset, one: Pass) -> Outcome:
    """Raises ValueError if all labels are equal, since the AUC is then undefined."""
    started = time.thread_time()
    batch = _ordered(dataset, one.shuffle, one.largest_weight, one.seed)
    state = ModelState.empty(dataset.bits)
    learned = learn_batch(state, one.hyper, False, 0.0, batch)
    summary = summarize(learned.margins, batch.labels, batch.weights, state.density(one.hyper))
    plain, weighted = summary.plain, summary.weighted
    if plain.auc is None or plain.log_loss is None or weighted.log_loss is None or summary.density is None:
        raise ValueError(f"{dataset.name} has labels of one kind only: there is no AUC")
    return Outcome(
        plain.auc, plain.log_loss, weighted.log_loss, summary.density, time.thread_time() - started
    )


@lru_cache(maxsize=1)
def core_digest() -> str:
    """Digest of the numeric core's sources."""
    return cache_directory().name


@lru_cache(maxsize=2)
def _ordered(dataset: Dataset, shuffle: int | None, largest_weight: float, seed: int) -> ExampleBatch:
    """Cached, since many consecutive passes use the same order."""
    rows = np.arange(dataset.rows)
    if shuffle is not None:
        rows = np.random.default_rng([_SHUFFLES, seed, shuffle]).permutation(dataset.rows)
    batch = dataset.in_order(rows)
    if largest_weight == 1.0:
        return batch
    drawn = np.random.default_rng([_WEIGHTS, seed]).uniform(0.0, np.log(largest_weight), dataset.rows)
    return ExampleBatch(batch.row_ptr, batch.hashes, batch.values, batch.labels, np.exp(drawn))
