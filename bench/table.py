"""The table of results, for people and for machines."""

from typing import Any

from rich.console import Console
from rich.table import Table

from bench.result import Result, Spread, Target

VERDICTS = {True: "met", False: "NOT MET", None: "reported"}


def render(results: list[Result], console: Console) -> None:
    """Print one line a result; notes below the table."""
    table = Table(title="Ratios of ours to the reference, medians of alternating rounds (smallest..largest)")
    for heading in ("what", "ours", "reference", "ratio", "target", ""):
        table.add_column(heading, overflow="fold")
    for number, result in enumerate(results, 1):
        table.add_row(f"{number}. {result.what}", *_cells(result), VERDICTS[result.met], end_section=True)
    console.print(table)
    for number, result in enumerate(results, 1):
        for note in result.notes:
            console.print(f"{number}. {note}", highlight=False)


def _cells(result: Result) -> tuple[str, str, str, str]:
    reference = ""
    if result.reference:
        reference = f"{_spread(Spread.of(result.reference), result.unit)}\n{result.against}"
    ratio = _spread(result.ratio) if result.ratio else "-"
    return _spread(Spread.of(result.ours), result.unit), reference, ratio, _target(result)


def _spread(spread: Spread, unit: str = "") -> str:
    text = figure(spread.median)
    if spread.low != spread.high:
        text += f" ({figure(spread.low)}..{figure(spread.high)})"
    return f"{text} {unit}".rstrip()


def _target(result: Result) -> str:
    if result.target is None:
        return "-"
    return f"{result.target.relation} {figure(result.target.bound)}" + (
        " x" if result.reference else f" {result.unit}"
    )


def figure(value: float) -> str:
    """Three significant digits or all integer digits: 0.00012, 1.34, 45.1, 12,345."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def as_json(result: Result) -> dict[str, Any]:
    """A result with its ratio and verdict, for `--json`."""
    target: Target | None = result.target
    return {
        "name": result.name,
        "what": result.what,
        "unit": result.unit,
        "ours": result.ours,
        "against": result.against,
        "reference": result.reference,
        "ratio": result.ratio._asdict() if result.ratio else None,
        "target": f"{target.relation} {target.bound}" if target else None,
        "met": result.met,
        "notes": result.notes,
    }
