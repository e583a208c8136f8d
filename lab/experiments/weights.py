"""Implicit against first-order updates for examples with importance weights, which the paper's table lacks.

Weights are drawn from 1 to W, their logarithms uniformly and independently of the example. Each rate is tried
at several sizes, one of them far too large, where a step that cannot overshoot has its advantage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lab.experiments.datasets import Dataset
from lab.experiments.markdown import markdown_table
from lab.experiments.passes import Pass
from lab.experiments.running import Runner
from model_core.learning.hyperparameters import AdaptiveRate, GammaRate, Hyperparameters, Rate, Update

DATASET = "criteo"
LARGEST_WEIGHTS = (1.0, 10.0, 100.0, 1000.0)
UPDATES: tuple[Update, ...] = ("first_order", "implicit")
ADAPTIVE, CONSTANT = "adaptive", "constant"
SIZES = {
    ADAPTIVE: (0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 1.0),
    CONSTANT: (0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 1.0),
}

_NO_ADAPTATION = 1e6  # a gamma with which the floor alone sets the rate


@dataclass(frozen=True)
class Comparison:
    """Weighted log loss of each update at each size of the rate, for one kind of rate and largest weight."""

    rate: str
    largest_weight: float
    losses: dict[Update, tuple[float, ...]]

    def best(self, update: Update) -> tuple[float, float]:
        """The min loss, and the size of the rate that gives it."""
        return min(zip(self.losses[update], SIZES[self.rate], strict=True))

    def to_json(self) -> dict[str, Any]:
        return {
            "rate": self.rate,
            "largest_weight": self.largest_weight,
            "sizes": SIZES[self.rate],
            "weighted_log_loss": self.losses,
        }


def largest_weights(*, quick: bool = False) -> tuple[float, ...]:
    """The largest weights that are tried; quick: the smallest and the largest of them."""
    return (LARGEST_WEIGHTS[0], LARGEST_WEIGHTS[-1]) if quick else LARGEST_WEIGHTS


def count_passes(*, quick: bool = False) -> int:
    """Number of passes that `run` makes."""
    return len(largest_weights(quick=quick)) * len(UPDATES) * sum(map(len, SIZES.values()))


def run(runner: Runner, dataset: Dataset, *, quick: bool = False) -> list[Comparison]:
    """One pass in the file's order for each kind and size of rate, weight and update; ftrl without L1."""
    weights = largest_weights(quick=quick)
    passes = {
        (kind, largest, update, size): Pass(
            Hyperparameters("ftrl", update, _rate(kind, size), l1=0.0), None, largest
        )
        for largest in weights
        for kind, sizes in SIZES.items()
        for update in UPDATES
        for size in sizes
    }
    outcomes = runner.run(dataset, list(passes.values()))
    losses = {key: outcomes[one].weighted_log_loss for key, one in passes.items()}
    return [
        Comparison(
            kind, largest, {u: tuple(losses[kind, largest, u, size] for size in sizes) for u in UPDATES}
        )
        for kind, sizes in SIZES.items()
        for largest in weights
    ]


def _rate(kind: str, size: float) -> Rate:
    return AdaptiveRate(size) if kind == ADAPTIVE else GammaRate(_NO_ADAPTATION, 1.0 / size)


def report_markdown(comparisons: Sequence[Comparison]) -> str:
    return markdown_table(
        (
            "rate",
            "largest weight",
            "best first-order",
            "best implicit",
            "first-order at 1",
            "implicit at 1",
        ),
        list(_rows(comparisons)),
    )


def _rows(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, ...]]:
    for c in comparisons:
        best = [f"{loss:.4f} (at {size:g})" for loss, size in (c.best(update) for update in UPDATES)]
        last = [f"{c.losses[update][-1]:.4f}" for update in UPDATES]
        yield (c.rate, f"{c.largest_weight:,.0f}", *best, *last)
