"""The plots of sparsity against accuracy, as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

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
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "ftrl", "svg.fonttype": "none"}):
        figure = Figure(figsize=(5.6, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for algorithm in dict.fromkeys(cell.algorithm for cell in cells):
            _draw(axes, [cell for cell in cells if cell.algorithm == algorithm])
        axes.set(
            title=title,
            xlabel="density of the model (share of non-zero weights)",
            ylabel="online AUC",
            xscale="log",
        )
        axes.grid(visible=True, which="major", linewidth=0.4, color="#dddddd")
        axes.legend(frameon=False)
        return {"png": _saved(figure, "png"), "svg": _saved(figure, "svg")}


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


def _saved(figure: Any, suffix: str) -> bytes:
    out = io.BytesIO()
    figure.savefig(
        out, format=suffix, dpi=110, metadata={"Date": None} if suffix == "svg" else {"Software": None}
    )
    return out.getvalue()
