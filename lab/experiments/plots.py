"""Plots of sparsity against accuracy, and of losses over time, as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lab.experiments.drift import BEST, NEW, OLD, Drift
from lab.experiments.protocol import Cell

# Okabe and Ito's colours, which are distinguishable with any colour vision; the markers differ, too.
_LOOKS = {
    "ftrl": ("#0072B2", "o"),
    "rda": ("#009E73", "s"),
    "comid": ("#D55E00", "^"),
    "aogd": ("#999999", "v"),
}


def plot_pareto(title: str, cells: Sequence[Cell]) -> Mapping[str, bytes]:
    """Plots by file suffix: AUC over the share of weights that are 0, one line for each algorithm. Equal
    cells give equal bytes with the same version of matplotlib.
    """
    with _figure(5.6, 4.0) as figure:
        axes = figure.add_subplot()
        for algorithm in dict.fromkeys(cell.algorithm for cell in cells):
            _draw(axes, [cell for cell in cells if cell.algorithm == algorithm])
        axes.set(
            title=title,
            xlabel="density of the model (share of non-zero weights)",
            ylabel="online AUC",
            xscale="log",
        )
        _finish(axes)
        return _pictures(figure)


def _draw(axes: Any, cells: Sequence[Cell]) -> None:
    colour, marker = _LOOKS[cells[0].algorithm.family]
    densities = [cell.density for cell in cells]
    aucs = [cell.auc for cell in cells]
    axes.plot(
        densities,
        aucs,
        color=colour,
        marker=marker,
        markersize=4,
        linewidth=1.2,
        label=cells[0].algorithm.name,
    )


_CURVES = {OLD: ("#D55E00", "--"), BEST: ("#999999", "-."), NEW: ("#0072B2", "-")}
_EXPERTS = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")


def plot_drift(found: Sequence[Drift]) -> Mapping[str, bytes]:
    """Plots by file suffix: a column for each world, the losses above and the experts' weights below."""
    with _figure(3.6 * len(found), 5.6) as figure:
        rows = figure.subplots(2, len(found), squeeze=False, sharex="col")
        for one, above, below in zip(found, *rows, strict=True):
            parts = next(iter(one.excess.values())).size
            ends = [one.rows * (k + 1) / parts / 1000 for k in range(parts)]
            for name, curve in one.excess.items():
                colour, style = _CURVES[name]
                above.plot(ends, curve, style, color=colour, linewidth=1.3, label=name)
            for weights, label, colour in zip(one.weights.T, one.experts, _EXPERTS, strict=False):
                below.plot(ends, weights, color=colour, linewidth=1.3, label=label)
            above.set(title=one.world, yscale="log")
            below.set(xlabel="rows, thousands", ylim=(0.0, 1.0))
            _finish(above, legend=one is found[0])
            _finish(below, legend=False)
        lines, labels = rows[1][0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
        rows[0][0].set_ylabel("log loss beyond the truth's")
        rows[1][0].set_ylabel("weight of each expert")
        return _pictures(figure)


@contextmanager
def _figure(width: float, height: float) -> Iterator[Any]:
    """Yield a figure of so many inches, whose bytes do not depend on when it is drawn."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "ftrl", "svg.fonttype": "none"}):
        yield Figure(figsize=(width, height), layout="constrained")


def _finish(axes: Any, *, legend: bool = True) -> None:
    axes.grid(visible=True, which="major", linewidth=0.4, color="#dddddd")
    if legend:
        axes.legend(frameon=False, fontsize="small")


def _pictures(figure: Any) -> Mapping[str, bytes]:
    return {"png": _saved(figure, "png"), "svg": _saved(figure, "svg")}


def _saved(figure: Any, suffix: str) -> bytes:
    out = io.BytesIO()
    figure.savefig(
        out, format=suffix, dpi=110, metadata={"Date": None} if suffix == "svg" else {"Software": None}
    )
    return out.getvalue()
