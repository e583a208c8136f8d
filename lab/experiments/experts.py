"""The choice of the default's experts: a search over sets of four on the logs of one half.

Each expert learns from its own margin, so the mixture of any set follows from the experts' passes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from lab.experiments.datasets import Dataset
from lab.experiments.drift import stream_of
from lab.experiments.logs import Log, simulated
from lab.experiments.markdown import markdown_table
from lab.experiments.space import HALF_LIVES, NOTHING_FORGOTTEN
from lab.experiments.untuned import Outcome, margins_of
from model_core.kernels.numerics import log_losses
from model_core.learning.hyperparameters import (
    AdaptiveRate,
    Expert,
    HalfLife,
    Hyperparameters,
    MixtureRate,
)
from service.models.config.model import ModelConfig

SIZE = 4
SHARE = 1e-4
POOL = tuple(
    Expert(AdaptiveRate(alpha, beta), l1, None if half_life is None else HalfLife("examples", half_life))
    for alpha, beta, l1, half_life in product(
        (0.05, 0.1, 0.2, 0.35, 0.7, 1.0, 2.0), (0.1, 1.0), (0.0, 0.05), HALF_LIVES
    )
)
QUICK_POOL = POOL[:: len(POOL) // 8]
TARGET, TARGET_SIMULATED = 1.0, 5.0  # percent above the best single configuration
SIMULATED_ROWS, SEED = 100_000, 2  # of the simulated logs, others than those that are reported
_SMALLEST = 1e-290  # of the probabilities that a label was given
Places = tuple[int, ...]


@dataclass(frozen=True)
class Trial:
    """A log and the pool's passes over it.

    chances: float64[r, pool], what each expert gave to the label of each row. outcome: of the single
    configurations and the default. floor: the mean loss of the truth, or 0 where it is not known. target: how
    many percent a mixture may be above the best single configuration, beyond the floor.
    """

    chances: npt.NDArray[np.float64]
    outcome: Outcome
    floor: float
    target: float

    def excess(self, sets: Sequence[Places]) -> npt.NDArray[np.float64]:
        """Percent float64[sets] by which the mixtures of these experts are above the best."""
        losses: npt.NDArray[np.float64] = _losses(self.chances, np.array(sets), SHARE)
        return self._above_best(losses)

    @property
    def excess_of_default(self) -> float:
        return float(self._above_best(np.array(self.outcome.new.log_loss)))

    def _above_best(self, losses: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        percent: npt.NDArray[np.float64] = (losses - self.floor) / (self.outcome.best[0] - self.floor) - 1.0
        return 100.0 * percent


def simulated_logs(rows: int) -> Iterator[tuple[Log, Dataset, npt.NDArray[np.float64] | None]]:
    """Logs that are not there otherwise, with their truth, if it is the measure: rare clicks, and a drift."""
    yield Log("simulated, 0.2 % clicks", "", "simulated"), simulated(rows, SEED), None
    stream = stream_of("drift", rows, SEED)
    yield Log("simulated, drift", "", "simulated"), stream.data, stream.truth


def trial_of(
    data: Dataset,
    truth: npt.NDArray[np.float64] | None,
    outcome: Outcome,
    pool: Sequence[Expert],
    jobs: int | None,
) -> Trial:
    """Learn the log once with each expert of the pool."""
    from joblib import Parallel, delayed

    passes = Parallel(n_jobs=jobs, prefer="threads")(delayed(_chances)(data, expert) for expert in pool)
    floor = (
        0.0 if truth is None else float(log_losses(np.log(truth / (1.0 - truth)), data.batch.labels).mean())
    )
    target = TARGET_SIMULATED if outcome.half == "simulated" else TARGET
    return Trial(np.stack(list(passes), axis=1), outcome, floor, target)


def _chances(data: Dataset, expert: Expert) -> npt.NDArray[np.float64]:
    hyper = Hyperparameters(rate=expert.rate, l1=expert.l1, forgetting=expert.forgetting)
    config = ModelConfig.from_json({"hyper": hyper.to_json(), "hashing": {"bits": data.bits}})
    losses = log_losses(margins_of(data, config), data.batch.labels)
    return np.maximum(np.exp(-losses), _SMALLEST)


@njit(error_model="numpy")
def _losses(
    chances: npt.NDArray[np.float64], sets: npt.NDArray[np.int64], share: float
) -> npt.NDArray[np.float64]:
    """Mean losses float64[sets] of the mixtures of the experts int64[sets, k]."""
    count = sets.shape[1]
    losses = np.zeros(sets.shape[0])
    weights, products = np.empty(count), np.empty(count)
    for s in range(sets.shape[0]):
        weights[:] = 1.0 / count
        for i in range(chances.shape[0]):
            served = 0.0
            for k in range(count):
                products[k] = weights[k] * chances[i, sets[s, k]]
                served += products[k]
            losses[s] -= np.log(served)
            for k in range(count):
                weights[k] = (1.0 - share) * products[k] / served + share / count
    means: npt.NDArray[np.float64] = losses / chances.shape[0]
    return means


@dataclass(frozen=True)
class Choice:
    """The experts found, and the percent by which their mixture is above the best of the grid on each log."""

    experts: tuple[Expert, ...]
    excess: Sequence[float]


def choose(trials: Sequence[Trial], pool: Sequence[Expert]) -> Choice:
    """Search the set whose largest excess, in shares of the targets, is the smallest; the mean breaks ties.

    One expert is added at a time, then one is exchanged as long as that helps. Half of a set forgets and half
    does not, because no log is long enough to tell what a half-life is worth.
    """
    chosen: Places = ()
    while True:
        sets = list(_neighbours(chosen, pool))
        excess = np.stack([one.excess(sets) for one in trials])
        shares = np.maximum(excess, 0.0) / np.array([[one.target] for one in trials])
        best = int((shares.max(axis=0) + shares.mean(axis=0)).argmin())
        if sets[best] == chosen:
            return Choice(tuple(pool[place] for place in chosen), excess[:, best].tolist())
        chosen = sets[best]


def _neighbours(chosen: Places, pool: Sequence[Expert]) -> Iterator[Places]:
    """Sets with one expert more, or of a whole set itself and those with another expert in one place."""
    if len(chosen) < SIZE:
        kept = [chosen]
    else:
        yield chosen
        kept = [chosen[:k] + chosen[k + 1 :] for k in range(SIZE)]
    for some in kept:
        for place in set(range(len(pool))) - set(some):
            found = tuple(sorted((*some, place)))
            forgetful = sum(pool[k].forgetting is not None for k in found)
            if max(forgetful, len(found) - forgetful) <= SIZE // 2:
                yield found


def report_json(choice: Choice, trials: Sequence[Trial]) -> dict[str, Any]:
    rate = MixtureRate(choice.experts, SHARE)
    logs = [
        {"log": one.outcome.log, "above_best": excess, "default_above_best": one.excess_of_default}
        for one, excess in zip(trials, choice.excess, strict=True)
    ]
    return {"rate": Hyperparameters(rate=rate).to_json()["rate"], "logs": logs}


def report_markdown(choice: Choice, trials: Sequence[Trial]) -> str:
    """The experts found, and what their mixture and the default's lose to the best of the grid."""
    experts = markdown_table(
        ("alpha", "beta", "l1", "half-life"), [_row(expert) for expert in choice.experts]
    )
    rows = [
        (one.outcome.log, f"{one.target:g} %", f"{excess:.2f} %", f"{one.excess_of_default:.2f} %")
        for one, excess in zip(trials, choice.excess, strict=True)
    ]
    headings = ("log", "target above the best", "these experts", "the default")
    return f"{experts}\n\n{markdown_table(headings, rows)}\n"


def _row(expert: Expert) -> tuple[str, ...]:
    half_life = NOTHING_FORGOTTEN if expert.forgetting is None else f"{expert.forgetting.length:g}"
    return (f"{expert.rate.alpha:g}", f"{expert.rate.beta:g}", f"{expert.l1:g}", half_life)
