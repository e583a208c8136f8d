"""How often the confidence intervals of an evaluation cover the truth, in simulated worlds that are known.

`python -m lab.experiments.coverage` prints the table of docs/mathematics.md.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.experiments.markdown import markdown_table
from model_core.evaluation.figures import Figures
from model_core.evaluation.intervals import Interval
from model_core.evaluation.online import OnlineEvaluation
from model_core.examples.batch import ExampleBatch

Floats = npt.NDArray[np.float64]

FIGURES = ("auc", "log_loss", "calibration_ratio", "base_rate")
WORLDS = 500
_GRID = 2001


@dataclass(frozen=True)
class World:
    """Examples whose true log-odds are normal, and predictions that are `scale` times these plus `shift`.

    sampled: the share of non-clicks that is logged, with the inverse as weight.
    weight_spread: weights are log-normal besides, with this standard deviation of their logarithm ...
    weight_slope: ... and this much of it for a unit of the log-odds.
    """

    name: str
    examples: int
    mean: float
    spread: float
    scale: float = 1.0
    shift: float = 0.0
    sampled: float = 1.0
    weight_spread: float = 0.0
    weight_slope: float = 0.0

    def draw(self, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Margins float64[r], labels float64[r] and weights float64[r] of one world's log."""
        odds = self.mean + self.spread * rng.standard_normal(self.examples)
        labels = rng.random(self.examples) < 1.0 / (1.0 + np.exp(-odds))
        kept = labels | (rng.random(self.examples) < self.sampled)
        odds, labels = odds[kept], labels[kept]
        noise = self.weight_spread * rng.standard_normal(odds.size)
        weights = np.exp(noise + self.weight_slope * odds) * np.where(labels, 1.0, 1.0 / self.sampled)
        return self.scale * odds + self.shift, labels.astype(np.float64), weights

    @property
    def weighted(self) -> bool:
        return self.sampled < 1.0 or self.weight_spread > 0.0 or self.weight_slope != 0.0

    def truth(self) -> dict[str, float]:
        """The figures of endlessly many examples, by quadrature over the true log-odds."""
        z = np.linspace(-8.0, 8.0, _GRID)
        odds = self.mean + self.spread * z
        mass = np.exp(-(z**2) / 2.0 + self.weight_slope * odds)
        click = mass / (1.0 + np.exp(-odds))
        other, total = mass - click, float(mass.sum())
        margins = self.scale * odds + self.shift
        losses = click @ np.logaddexp(0.0, -margins) + other @ np.logaddexp(0.0, margins)
        below = np.cumsum(other) - 0.5 * other
        return {
            "auc": float(click @ below) / float(click.sum() * other.sum()),
            "log_loss": float(losses) / total,
            "calibration_ratio": float(mass @ (1.0 / (1.0 + np.exp(-margins)))) / float(click.sum()),
            "base_rate": float(click.sum()) / total,
        }


WORLDS_OF_TABLE = (
    World("calibrated, 10 % clicks", 2_000, -2.4, 0.9),
    World("calibrated, 2 % clicks", 20_000, -4.2, 0.8),
    World("calibrated, about 90 clicks in all", 18_000, -5.6, 0.8),
    World("overconfident, predicts 1.5 × the clicks", 5_000, -2.4, 0.9, scale=1.4, shift=1.0),
    World("well separated, 50 % clicks", 1_000, 0.0, 3.0),
    World("sampled, 5 % of non-clicks", 40_000, -4.2, 0.8, sampled=0.05),
    World("weights that vary", 5_000, -2.4, 0.9, weight_spread=0.7),
    World(
        "weights that vary, larger for likely clicks", 5_000, -2.4, 0.9, weight_spread=0.4, weight_slope=0.5
    ),
)


def figures_of_draw(world: World, rng: np.random.Generator) -> Figures:
    """The figures of one log, by the evaluation that the learner uses."""
    margins, labels, weights = world.draw(rng)
    batch = ExampleBatch(
        np.zeros(labels.size + 1, np.int64),
        np.empty(0, np.uint32),
        np.empty(0),
        labels,
        weights if world.weighted else np.empty(0),
    )
    evaluation = OnlineEvaluation()
    evaluation.add(margins, batch, 0)
    return evaluation.figures("all")


def coverage(world: World, worlds: int, seed: int = 1) -> dict[str, float]:
    """The share of `worlds` logs whose interval holds the truth, by figure; logs without one are left out."""
    truth, rng = world.truth(), np.random.default_rng(seed)
    covered: dict[str, list[bool]] = {name: [] for name in FIGURES}
    for _ in range(worlds):
        figures = figures_of_draw(world, rng)
        for name in FIGURES:
            interval: Interval | None = getattr(figures, f"{name}_interval")
            if interval is not None:
                covered[name].append(interval.low <= truth[name] <= interval.high)
    return {name: float(np.mean(held)) for name, held in covered.items()}


def table(worlds: int) -> str:
    """The coverage in each world, as Markdown."""
    rows = []
    for world in WORLDS_OF_TABLE:
        held = coverage(world, worlds)
        rows.append([world.name, *(f"{held[name]:.1%}" for name in FIGURES)])
    return markdown_table(("world", "AUC", "log loss", "calibration", "click rate"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=WORLDS, help="logs of each kind (default: %(default)s)")
    sys.stdout.write(table(parser.parse_args().worlds) + "\n")


if __name__ == "__main__":
    main()
