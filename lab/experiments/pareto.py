"""Sparsity against accuracy over a range of lambda: the paper's two plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from lab.experiments.datasets import Dataset
from lab.experiments.markdown import markdown_table
from lab.experiments.protocol import OF_THE_PAPER, Algorithm, Cell, choose_gammas, protocol_of, run_cells
from lab.experiments.running import Runner

DATASETS = ("news20", "criteo")
ALGORITHMS = (*OF_THE_PAPER, Algorithm("AOGD", "aogd"))

# lambda T: from almost no penalty to one that costs accuracy. The table uses 0.05.
L1S = {
    "news20": (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    "criteo": (0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0),
}


def l1s_of(dataset: str, *, quick: bool = False) -> tuple[float, ...]:
    """The values of lambda T: other data sets are text and have those of news20; quick: every other value."""
    return L1S.get(dataset, L1S["news20"])[:: 2 if quick else 1]


def count_passes(dataset: str, *, quick: bool = False) -> int:
    """Number of passes that `run` makes."""
    protocol = protocol_of(dataset, quick=quick)
    values = len(l1s_of(dataset, quick=quick))
    return len(ALGORITHMS) * (len(protocol.gammas) + values * max(protocol.shuffles, 1))


def run(runner: Runner, dataset: Dataset, *, quick: bool = False) -> list[Cell]:
    """A cell for each algorithm and lambda; gamma is that of the table, chosen at its lambda."""
    protocol = protocol_of(dataset.name, quick=quick)
    gammas = choose_gammas(runner, dataset, protocol, ALGORITHMS)
    return run_cells(runner, dataset, protocol, gammas, l1s_of(dataset.name, quick=quick))


class Rivalry(NamedTuple):
    """A FOBOS model, and the least density at which FTRL-Proximal or RDA is as accurate; None: never."""

    cell: Cell
    rival_density: float | None

    @property
    def dominated(self) -> bool:
        return self.rival_density is not None and self.rival_density < self.cell.density


def rivalries(cells: Sequence[Cell]) -> list[Rivalry]:
    """Compare each FOBOS model with a penalty. Curves are interpolated linearly between values of lambda."""
    curves = [[c for c in cells if c.algorithm.family == family] for family in ("ftrl", "rda")]
    found = []
    for cell in cells:
        if cell.algorithm.family == "comid" and cell.l1 > 0.0:
            densities = [d for curve in curves for d in _densities_at(curve, cell.auc)]
            found.append(Rivalry(cell, min(densities, default=None)))
    return found


def _densities_at(curve: Sequence[Cell], auc: float) -> Iterator[float]:
    """Densities of the points of a curve, in ascending order of lambda, that are as accurate as `auc`."""
    yield from (point.density for point in curve if point.auc >= auc)
    for a, b in pairwise(curve):
        if min(a.auc, b.auc) < auc < max(a.auc, b.auc):
            yield a.density + (b.density - a.density) * (auc - a.auc) / (b.auc - a.auc)


def report_json(dataset: str, cells: Sequence[Cell]) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "fobos": [
            {"lambda_T": r.cell.l1, "density": r.cell.density, "rival_density": r.rival_density}
            for r in rivalries(cells)
        ],
        "points": [
            {
                "algorithm": c.algorithm.name,
                "family": c.algorithm.family,
                "gamma": c.gamma,
                "lambda_T": c.l1,
                "auc": c.auc,
                "density": c.density,
            }
            for c in cells
        ],
    }


def report_markdown(dataset: str, cells: Sequence[Cell]) -> str:
    by_l1 = {(c.algorithm, c.l1): f"{c.auc:.4f} ({c.density:.4f})" for c in cells}
    l1s = dict.fromkeys(c.l1 for c in cells)
    rows = [(f"{l1:g}", *(by_l1[a, l1] for a in ALGORITHMS)) for l1 in l1s]
    table = markdown_table(("lambda T", *(a.name for a in ALGORITHMS)), rows)
    return f"## {dataset}: AUC (density)\n\n{table}\n\n{_verdict(rivalries(cells))}\n"


def _verdict(found: Sequence[Rivalry]) -> str:
    ratios = [r.cell.density / r.rival_density for r in found if r.rival_density]
    if not ratios:
        return "FTRL-Proximal and RDA are nowhere as accurate as FOBOS."
    return (
        f"{sum(r.dominated for r in found)} of {len(found)} FOBOS models with a penalty are dominated: "
        f"at the same AUC,\n"
        f"FTRL-Proximal or RDA is sparser, by factors from {min(ratios):.2f} to {max(ratios):.2f}."
    )
