"""The paper's protocol (its section on experiments): gamma from one shuffle, the figures from others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple

from lab.experiments.datasets import Dataset
from lab.experiments.passes import Outcome, Pass
from lab.experiments.running import Runner
from model_core.learning.hyperparameters import Family, GammaRate, Hyperparameters, Update
from model_core.learning.schedules import OverT

L1 = 0.05


class Algorithm(NamedTuple):
    """A row of the table. The paper's FOBOS is the family comid."""

    name: str
    family: Family
    update: Update = "first_order"


OF_THE_PAPER = (
    Algorithm("FTRL-Proximal", "ftrl"),
    Algorithm("RDA", "rda"),
    Algorithm("FOBOS", "comid"),
)
LEFT_OUT = (
    Algorithm("AOGD", "aogd"),
    Algorithm("FTRL-Proximal, implicit", "ftrl", "implicit"),
    Algorithm("RDA, implicit", "rda", "implicit"),
    Algorithm("FOBOS, implicit", "comid", "implicit"),
    Algorithm("AOGD, implicit", "aogd", "implicit"),
)


def spread(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` values at equal distances, the ends included."""
    return tuple(round(low + (high - low) * i / (count - 1), 6) for i in range(count))


@dataclass(frozen=True)
class Protocol:
    """gammas: tried on shuffle 0, or on the file's own order; the best online AUC wins, at a tie the first.

    shuffles: further ones, over which the figures are averaged; 0: only the pass in the file's order.
    floor: the minimum of Q_{1:t}; learning rates are at most its inverse.
    """

    gammas: tuple[float, ...]
    floor: float
    shuffles: int

    def hyper(self, dataset: Dataset, algorithm: Algorithm, gamma: float, l1: float) -> Hyperparameters:
        """lambda = l1 / T, over T rounds: the schedule over_T."""
        rate = GammaRate(gamma, self.floor)
        return Hyperparameters(algorithm.family, algorithm.update, rate, OverT(dataset.rows), l1)

    def trials(self, dataset: Dataset, algorithm: Algorithm) -> list[Pass]:
        """The passes that choose gamma."""
        shuffle = 0 if self.shuffles else None
        return [Pass(self.hyper(dataset, algorithm, gamma, L1), shuffle) for gamma in self.gammas]

    def passes(self, dataset: Dataset, algorithm: Algorithm, gamma: float, l1: float = L1) -> list[Pass]:
        """The passes that give the figures."""
        hyper = self.hyper(dataset, algorithm, gamma, l1)
        return [Pass(hyper, shuffle) for shuffle in range(1, self.shuffles + 1)] or [Pass(hyper, None)]


SHUFFLED = Protocol(spread(0.3, 1.9, 12), 0.0, 5)
IN_ORDER = Protocol(spread(0.03, 0.20, 9), 20.0, 0)


QUICK_GAMMAS = 3


def protocol_of(dataset: str, *, quick: bool = False) -> Protocol:
    """The protocol of a data set; advertising data is learned in order of time.

    quick: 3 of the values of gamma, the smallest and the largest among them, and at most one shuffle.
    """
    protocol = IN_ORDER if dataset == "criteo" else SHUFFLED
    if not quick:
        return protocol
    gammas = spread(protocol.gammas[0], protocol.gammas[-1], QUICK_GAMMAS)
    return Protocol(gammas, protocol.floor, min(protocol.shuffles, 1))


@dataclass(frozen=True)
class Cell:
    """The figures of an algorithm on a data set: means over shuffles, and the min and max AUC."""

    dataset: str
    algorithm: Algorithm
    gamma: float
    l1: float
    auc: float
    lowest_auc: float
    highest_auc: float
    density: float
    log_loss: float


def choose_gammas(
    runner: Runner, dataset: Dataset, protocol: Protocol, algorithms: Sequence[Algorithm]
) -> Mapping[Algorithm, float]:
    """The gamma with the best online AUC, for each algorithm."""
    trials = {a: protocol.trials(dataset, a) for a in algorithms}
    outcomes = runner.run(dataset, [one for passes in trials.values() for one in passes])
    return {
        a: max(zip(protocol.gammas, passes, strict=True), key=lambda pair: outcomes[pair[1]].auc)[0]
        for a, passes in trials.items()
    }


def run_cells(
    runner: Runner,
    dataset: Dataset,
    protocol: Protocol,
    gammas: Mapping[Algorithm, float],
    l1s: Sequence[float] = (L1,),
) -> list[Cell]:
    """A cell for each algorithm and l1."""
    wanted = {(a, l1): protocol.passes(dataset, a, gamma, l1) for a, gamma in gammas.items() for l1 in l1s}
    # Sorted by shuffle, so that passes over the same order follow each other.
    passes = sorted((p for some in wanted.values() for p in some), key=lambda p: p.shuffle or 0)
    outcomes = runner.run(dataset, passes)
    return [
        _cell(dataset.name, a, gammas[a], l1, [outcomes[one] for one in some])
        for (a, l1), some in wanted.items()
    ]


def _cell(dataset: str, algorithm: Algorithm, gamma: float, l1: float, outcomes: Sequence[Outcome]) -> Cell:
    aucs = [outcome.auc for outcome in outcomes]
    density, log_loss = mean(o.density for o in outcomes), mean(o.log_loss for o in outcomes)
    return Cell(dataset, algorithm, gamma, l1, mean(aucs), min(aucs), max(aucs), density, log_loss)
