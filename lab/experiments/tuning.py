"""`ftrl tune` and `ftrl whatif`: run the race and report its ranking."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.experiments.progress import RaceProgress
from lab.experiments.race import RacePlan, Result, Source, race
from lab.experiments.score import Difference
from lab.experiments.space import DIMENSIONS, NOTHING_FORGOTTEN, LeftOut, Option, text_of
from service.cli.output import write_json, write_lines, write_table
from service.errors import CommandFailure, Interrupted
from service.models.config.model import NEW_MODEL

_LIMITS = {"l1": (0.0, None), "l2": (0.0, None), "bits": (10, 28)}  # min and max values that can be tried
_ORDERED = ("alpha", "beta", "gamma", "l1", "l2", "bits", "half_life")  # dimensions that have two ends

PRESENT = "present"
"""The mark of the configuration that the candidates are compared with."""
_HEADINGS = (
    *("log loss", f"minus {PRESENT}", "calibration"),
    *("norm. entropy", "AUC", "density", "rows"),
)


@dataclass(frozen=True)
class Ranking:
    """results: best first; they include the present configuration. left_out: combinations that the service
    refuses. bad_lines: over all parses. facts, remarks: of the examples, as their source reports them.
    """

    results: tuple[Result, ...]
    left_out: tuple[LeftOut, ...]
    rows: int
    bad_lines: int
    seconds: float
    facts: Mapping[str, Any]
    remarks: tuple[str, ...]

    @property
    def present(self) -> Result:
        return next(result for result in self.results if result.is_present)

    @property
    def recommended(self) -> Result:
        """The best one if it is better than the present configuration by more than chance, or else that."""
        best, present = self.results[0], self.present
        high = None if best.difference is None else best.difference.high
        is_better = high is not None and high < 0.0
        return best if is_better or present.skipped > best.skipped else present

    @property
    def body(self) -> dict[str, Any]:
        """Body of the PUT /models/{name} that creates the recommended model."""
        config = self.recommended.option.config
        return {"hyper": config.hyper.to_json(), "hashing": config.hashing.to_json()}

    @property
    def varied(self) -> list[str]:
        """The dimensions in which candidates differ."""
        found = []
        for name in DIMENSIONS:
            values = {repr(r.option.varied[name]) for r in self.results if name in r.option.varied}
            if len(values) > 1 or (name == "rate" and values and self._has_single_rates):
                found.append(name)
        return found

    @property
    def _has_single_rates(self) -> bool:
        return any("rate" not in result.option.varied for result in self.results)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": dict(self.facts),
            "rows": self.rows,
            "bad_lines": self.bad_lines,
            "candidates": [result.to_json() for result in self.results],
            "left_out": [{"varied": one.varied, "reason": one.reason} for one in self.left_out],
            "hints": list(self.hints()),
            "recommended": self.results.index(self.recommended),
            "verdict": self.verdict(),
            "body": self.body,
            "seconds": round(self.seconds, 3),
        }

    def verdict(self) -> str:
        """The values to set, or that the present configuration is as good as the best one."""
        best, present = self.results[0], self.present
        if best is present:
            return f"Keep the {PRESENT}: no other candidate has a lower log loss."
        change = "" if best.difference is None else f"log loss {_interval(best.difference)}"
        if self.recommended is present:
            return (
                f"Keep the {PRESENT}: it is as good as far as {self.rows:,} rows can tell. The best candidate"
                f" ({self._settings(best)}) has {change}."
            )
        return f"Set {self._settings(best)} instead of {self._settings(present)}: {change}."

    def _settings(self, result: Result) -> str:
        values = {name: result.option.varied.get(name) for name in self.varied}
        return ", ".join(
            f"{_words(name)} {text_of(value)}" for name, value in values.items() if value is not None
        )

    def hints(self) -> Iterator[str]:
        """Hints on dimensions in which the best value is the min or max of those tried."""
        results = [result for result in self.results if result.is_tried]
        for name, best in results[0].option.varied.items():
            if name not in _ORDERED:
                continue
            tried = {r.option.varied[name] for r in results if name in r.option.varied}
            tried.discard(NOTHING_FORGOTTEN)  # an end of the half-lives beyond which there is nothing to try
            low, high = _LIMITS.get(name, (None, None))
            if best not in tried or (len(tried) < 2 and name != "half_life"):
                continue
            what = f"the best {_words(name)}, {best:g}, is the"
            if len(tried) == 1:
                yield f"{what} only one that was tried: try others, too"
            elif best == max(tried) and best != high:
                yield f"{what} largest that was tried: try larger ones, too"
            elif best == min(tried) and best != low:
                yield f"{what} smallest that was tried: try smaller ones, too"


def rank(
    plan: RacePlan,
    source: Source,
    options: Sequence[Option],
    present: Option,
    left_out: Sequence[LeftOut] = (),
    *,
    progress: bool = True,
) -> Ranking:
    """Run the race. `present`: the configuration to compare with.

    Raises CommandFailure, and what the source raises.
    """
    if not options:
        raise CommandFailure(f"the service would refuse every candidate: {left_out[0].reason}")
    started = time.perf_counter()
    with RaceProgress(progress) as shown:
        try:
            results = race(plan, source, options, present, shown)
        except KeyboardInterrupt:
            best = f"; the best so far is {shown.best}" if shown.best else ""
            raise Interrupted(f"{shown.rows:,} rows were learned{best}") from None
    if not shown.rows:
        raise CommandFailure(f"{source.name} holds no examples")
    return Ranking(
        tuple(results),
        tuple(left_out),
        shown.rows,
        shown.bad_lines,
        time.perf_counter() - started,
        source.facts(),
        tuple(source.remarks()),
    )


def print_ranking(ranking: Ranking, max_rows: int) -> None:
    """Print a table of the best models, the verdict and the body to standard output."""
    rows = []
    for place, result in enumerate(ranking.results, 1):
        if place <= max_rows or result.is_present:
            rows.append((f"{place}{_mark(result)}", *_cells(result, ranking.varied)))
    write_table(("", *map(_words, ranking.varied), *_HEADINGS), rows)
    write_lines(_remarks(ranking, max_rows))
    write_lines(("", ranking.verdict(), "The body of a PUT /models/{name} that creates it:"))
    write_json(ranking.body)


def _mark(result: Result) -> str:
    if result.is_present:
        return f" {PRESENT}"
    return " default" if result.option.config.hyper == NEW_MODEL else ""


def _cells(result: Result, varied: Sequence[str]) -> Iterator[str]:
    for name in varied:
        yield text_of(result.option.varied.get(name, ""))
    figures = result.to_json()
    yield _number(figures["log_loss"], 5)
    yield "" if result.is_present or result.difference is None else _interval(result.difference)
    for name, digits in (("calibration_ratio", 4), ("normalized_entropy", 5), ("auc", 4), ("density", 3)):
        yield _number(figures[name], digits)
    notes = [f"{result.skipped:,} skipped"] if result.skipped else []
    notes += ["began empty"] if result.began_empty else []
    yield f"{result.rows:,}" + (f" ({', '.join(notes)})" if notes else "")


def _words(name: str) -> str:
    return name.replace("_", "-")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _interval(difference: Difference) -> str:
    """The difference and its reach, such as `-0.00380 ± 0.00060`."""
    if difference.high is None:
        return f"{difference.mean:+.5f}"
    return f"{difference.mean:+.5f} ± {difference.high - difference.mean:.5f}"


def _remarks(ranking: Ranking, max_rows: int) -> Iterator[str]:
    hidden = sum(not result.is_present for result in ranking.results[max_rows:])
    if hidden:
        yield f"and {hidden} more (--top shows them)"
    yield from ranking.remarks
    if any(result.began_empty for result in ranking.results):
        yield "candidates with other bits, bias, prior, family or experts cannot have it: they began empty"
    if ranking.bad_lines:
        yield f"{ranking.bad_lines:,} bad lines were left out"
    if ranking.left_out:
        yield f"{len(ranking.left_out)} combinations were left out: {ranking.left_out[0].reason}"
    yield from ranking.hints()
