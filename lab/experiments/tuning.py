"""`ftrl tune`: runs the race and reports its ranking."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from lab.experiments.progress import RaceProgress
from lab.experiments.race import RacePlan, Result, race
from lab.experiments.space import LeftOut, Space
from service.errors import CommandFailure

_LIMITS = {"l1": (0.0, None), "l2": (0.0, None), "bits": (10, 28)}  # min and max values that can be tried


@dataclass(frozen=True)
class Ranking:
    """results: best first. left_out: combinations that the service refuses. bad_lines: over all parses."""

    results: tuple[Result, ...]
    left_out: tuple[LeftOut, ...]
    rows: int
    bad_lines: int
    seconds: float

    @property
    def body(self) -> dict[str, Any]:
        """Body of the PUT /models/{name} that creates the best model."""
        config = self.results[0].option.config
        return {"hyper": config.hyper.to_json(), "hashing": config.hashing.to_json()}

    @property
    def varied(self) -> list[str]:
        """The dimensions in which candidates differ."""
        names = dict.fromkeys(name for r in self.results for name in r.option.varied)
        return [n for n in names if len({repr(r.option.varied.get(n)) for r in self.results}) > 1]

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "bad_lines": self.bad_lines,
            "candidates": [result.to_json() for result in self.results],
            "left_out": [{"varied": one.varied, "reason": one.reason} for one in self.left_out],
            "hints": list(self.hints()),
            "body": self.body,
            "seconds": round(self.seconds, 3),
        }

    def hints(self) -> Iterator[str]:
        """Hints on dimensions in which the best value is the min or max of those tried."""
        for name, best in self.results[0].option.varied.items():
            tried = {r.option.varied[name] for r in self.results if name in r.option.varied}
            low, high = _LIMITS.get(name, (None, None))
            if name not in ("alpha", "gamma", "l1", "l2", "bits") or len(tried) < 2:
                continue
            if best == max(tried) and best != high:
                yield f"the best {name}, {best:g}, is the largest that was tried: try larger ones, too"
            elif best == min(tried) and best != low:
                yield f"the best {name}, {best:g}, is the smallest that was tried: try smaller ones, too"


def tune(plan: RacePlan, space: Space, progress: bool = True) -> Ranking:
    """Raises CommandFailure, UnreadableFile, and InvalidInput if a value of the space is invalid."""
    options, left_out = space.options()
    if not options:
        raise CommandFailure(f"the service would refuse every candidate: {left_out[0].reason}")
    started = time.perf_counter()
    with RaceProgress(progress) as shown:
        results = race(plan, options, shown)
    if not shown.rows:
        raise CommandFailure(f"{plan.file} holds no examples")
    return Ranking(
        tuple(results), tuple(left_out), shown.rows, shown.bad_lines, time.perf_counter() - started
    )


def print_ranking(ranking: Ranking, max_rows: int) -> None:
    """Print a table of the best models and the body to standard output."""
    console = Console()
    table = Table(box=None, header_style="", pad_edge=True)
    for heading in ("", *ranking.varied, "log loss", "norm. entropy", "AUC", "density", "rows"):
        table.add_column(heading, justify="right")
    for place, result in enumerate(ranking.results[:max_rows], 1):
        table.add_row(str(place), *_cells(result, ranking.varied))
    console.print(table)
    for line in _remarks(ranking, max_rows):
        console.print(line, highlight=False, soft_wrap=True)
    console.print("\nThe body of a PUT /models/{name} that makes the first:", highlight=False)
    console.print(json.dumps(ranking.body), markup=False, highlight=False, soft_wrap=True)


def _cells(result: Result, varied: Sequence[str]) -> Iterator[str]:
    for name in varied:
        value = result.option.varied.get(name, "")
        yield f"{value:g}" if isinstance(value, float) else str(value)
    figures: Mapping[str, Any] = result.to_json()
    for name, digits in (("log_loss", 5), ("normalized_entropy", 5), ("auc", 4), ("density", 3)):
        yield "-" if figures[name] is None else f"{figures[name]:.{digits}f}"
    yield f"{figures['rows']:,}" + (f" ({figures['skipped']:,} skipped)" if figures["skipped"] else "")


def _remarks(ranking: Ranking, max_rows: int) -> Iterator[str]:
    if len(ranking.results) > max_rows:
        yield f"and {len(ranking.results) - max_rows} more (--top shows them)"
    if ranking.bad_lines:
        yield f"{ranking.bad_lines:,} bad lines were left out"
    if ranking.left_out:
        yield f"{len(ranking.left_out)} combinations were left out: {ranking.left_out[0].reason}"
    yield from ranking.hints()
