"""The paper's table of AUC and density, reproduced and compared with the original."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lab.experiments.datasets import Dataset
from lab.experiments.markdown import markdown_table
from lab.experiments.paper import (
    AUC_TOLERANCE,
    DENSITY_RATIO,
    DENSITY_TOLERANCE,
    PAPER,
    SAME_DATA,
    Figure,
)
from lab.experiments.protocol import LEFT_OUT, OF_THE_PAPER, Cell, choose_gammas, protocol_of, run_cells
from lab.experiments.running import Runner

ALGORITHMS = OF_THE_PAPER + LEFT_OUT


def count_passes(dataset: str, *, quick: bool = False) -> int:
    """Number of passes that `run` makes."""
    protocol = protocol_of(dataset, quick=quick)
    return len(ALGORITHMS) * (len(protocol.gammas) + max(protocol.shuffles, 1))


def run(runner: Runner, dataset: Dataset, *, quick: bool = False) -> list[Cell]:
    """The cells of a data set, one for each algorithm."""
    protocol = protocol_of(dataset.name, quick=quick)
    return run_cells(runner, dataset, protocol, choose_gammas(runner, dataset, protocol, ALGORITHMS))


@dataclass(frozen=True)
class Compared:
    """A cell and the paper's figures for it, if any."""

    cell: Cell
    paper: Figure | None

    @classmethod
    def of(cls, cell: Cell) -> Compared:
        first_order = cell.algorithm.update == "first_order"
        figures = PAPER.get(cell.dataset, {}) if first_order else {}
        return cls(cell, figures.get(cell.algorithm.family))

    @property
    def difference(self) -> Figure | None:
        """Our figures minus the paper's."""
        if self.paper is None:
            return None
        return Figure(self.cell.auc - self.paper.auc, self.cell.density - self.paper.density)

    @property
    def agrees(self) -> bool | None:
        """True if the cell is within the tolerances; None if the data is not the paper's."""
        off = self.difference
        if off is None or self.cell.dataset not in SAME_DATA:
            return None
        return abs(off.auc) <= AUC_TOLERANCE and abs(off.density) <= DENSITY_TOLERANCE

    def to_json(self) -> dict[str, Any]:
        cell, off = self.cell, self.difference
        return {
            "dataset": cell.dataset,
            "algorithm": cell.algorithm.name,
            "family": cell.algorithm.family,
            "update": cell.algorithm.update,
            "gamma": cell.gamma,
            "auc": cell.auc,
            "auc_range": [cell.lowest_auc, cell.highest_auc],
            "density": cell.density,
            "log_loss": cell.log_loss,
            "paper": None if self.paper is None else self.paper._asdict(),
            "difference": None if off is None else off._asdict(),
            "agrees": self.agrees,
        }


def density_ratios(cells: Sequence[Cell]) -> dict[str, tuple[float, float]]:
    """By data set: density of FOBOS over that of the denser of the other two; ours and the paper's."""
    ratios = {}
    for name in dict.fromkeys(cell.dataset for cell in cells):
        figures = PAPER.get(name)
        ours = {
            c.algorithm.family: c.density for c in cells if c.dataset == name and c.algorithm in OF_THE_PAPER
        }
        if figures is not None:
            theirs = figures["comid"].density / max(figures["ftrl"].density, figures["rda"].density)
            ratios[name] = (ours["comid"] / max(ours["ftrl"], ours["rda"]), theirs)
    return ratios


def report_json(cells: Sequence[Cell]) -> dict[str, Any]:
    ratios = density_ratios(cells)
    return {
        "tolerances": {"auc": AUC_TOLERANCE, "density": DENSITY_TOLERANCE},
        "cells": [Compared.of(cell).to_json() for cell in cells],
        "fobos_density_ratio": {name: {"ours": o, "paper": p} for name, (o, p) in ratios.items()},
    }


def report_markdown(cells: Sequence[Cell]) -> str:
    """Two tables: the cells of the paper, with its figures, and those that it leaves out."""
    compared = [Compared.of(cell) for cell in cells]
    first = markdown_table(
        ("data", "algorithm", "gamma", "AUC", "paper", "difference", "density", "paper", "difference"),
        [_row(c) for c in compared if c.paper is not None],
    )
    names = list(dict.fromkeys(cell.dataset for cell in cells))
    second = markdown_table(
        ("algorithm", *names), [(a.name, *(_short(cells, name, a) for name in names)) for a in ALGORITHMS]
    )
    return "\n\n".join((first, "\n".join(_verdicts(compared, cells)), second)) + "\n"


def _row(compared: Compared) -> tuple[str, ...]:
    cell, paper, off = compared.cell, compared.paper, compared.difference
    assert paper is not None
    assert off is not None
    mark = " *" if compared.agrees is False else ""
    return (
        cell.dataset,
        cell.algorithm.name,
        f"{cell.gamma:.3g}",
        f"{cell.auc:.3f}",
        f"{paper.auc:.3f}",
        f"{off.auc:+.3f}{mark}",
        f"{cell.density:.3f}",
        f"{paper.density:.3f}",
        f"{off.density:+.3f}{mark}",
    )


def _verdicts(compared: Sequence[Compared], cells: Sequence[Cell]) -> Iterator[str]:
    judged = [c for c in compared if c.agrees is not None]
    good = sum(bool(c.agrees) for c in judged)
    yield (
        f"- {good} of {len(judged)} cells on the paper's own data are within {AUC_TOLERANCE} of its AUC and "
        f"{DENSITY_TOLERANCE} of its density."
    )
    for name, (ours, theirs) in density_ratios(cells).items():
        if theirs >= DENSITY_RATIO:
            yield f"- {name}: FOBOS is {ours:.1f} times as dense as the other two (paper: {theirs:.1f})."


def _short(cells: Sequence[Cell], dataset: str, algorithm: object) -> str:
    cell = next(c for c in cells if c.dataset == dataset and c.algorithm == algorithm)
    return f"{cell.auc:.3f} ({cell.density:.3f})"
