"""The plan, the progress and the summary of `ftrl replay`, shared by HTTP and offline."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from model_core.evaluation.measures import Labels, Measures, compact, summarize
from model_core.kernels.number_text import plain_number
from model_core.kernels.numerics import log_losses
from model_core.text.problems import LineError
from service.errors import CommandFailure
from service.parsing.files.rows import Format, ReadOptions
from service.parsing.files.source import InputFiles, TextSource

if TYPE_CHECKING:
    from service.cli.replay.parts import Part

MAX_ERRORS_SHOWN = 20
SHOWN_EVERY_SECONDS = 0.1


class Predicted(NamedTuple):
    """margins float64[r] (not finite: no prediction), labels as `compact` returns them, weights float64[r] or
    None (all 1).
    """

    margins: npt.NDArray[np.float64]
    labels: Labels
    weights: npt.NDArray[np.float64] | None


@dataclass(frozen=True)
class ReplayPlan:
    """`config` is as in the body of PUT /models/{name}; empty: that of the model, or the default.

    contract: the part of the model's hash contract that a schema gives: a model that is created gets it, one
    that exists has to have it.
    files: read in their order, as one log. passes: how often it is learned. holdout: the number of its last
    examples that are not learned. curve: figures of consecutive parts of the log. slices: names of features,
    with figures of each value. predictions: the file to which the prediction of each example is written.
    resume: the file that records how far the replay has come.
    """

    files: tuple[str, ...]
    file_format: Format
    options: ReadOptions
    model: str
    config: dict[str, Any]
    on_error: Literal["skip", "fail"] = "fail"
    passes: int = 1
    holdout: int = 0
    curve: bool = False
    slices: tuple[str, ...] = ()
    predictions: Path | None = None
    contract: dict[str, Any] = field(default_factory=dict)
    resume: Path | None = None

    def config_of_new(self, default: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """The body of a PUT that creates such a model: `default`, then the contract, then `config`."""
        hashing = {**default.get("hashing", {}), **self.contract, **self.config.get("hashing", {})}
        return {**default, **self.config} | ({"hashing": hashing} if hashing else {})


@dataclass(frozen=True)
class PassFigures:
    """Figures of one pass, by weight.

    log_loss: of the predictions before each update; from the second pass on, the model knows the examples.
    holdout: the measures of the held-out examples after the pass; None without a holdout.
    """

    log_loss: float | None
    holdout: Measures | None


@dataclass(frozen=True)
class ReplaySummary:
    """The figures are of the first pass and count every example once; `weighted` has those by importance if
    there are weights.

    rows: examples that were learned, including those skipped because their update was not finite.
    bad_lines: left out. duplicates: left out, since the file or the service has their event ids already.
    unscored: accepted by the service, which returned no prediction in time; not part of the figures.
    seconds: of all passes over the file; loading the result into Redis, if any, took `load_seconds` more.
    weighted_click_rate: None if all weights are 1. held_out: examples that were predicted and not learned.
    passes, curve, slices: empty unless the plan asks for them (passes: for several, or for a holdout).
    """

    rows: int
    positives: float
    log_loss: float | None
    auc: float | None
    normalized_entropy: float | None
    calibration_ratio: float | None
    density: float
    features_seen: int
    nonzero: int
    seconds: float
    rows_per_second: float
    bad_lines: int
    duplicates: int
    unscored: int
    weighted: Measures
    load_seconds: float | None = None
    weighted_click_rate: float | None = None
    held_out: int = 0
    passes: tuple[PassFigures, ...] = ()
    curve: tuple[Part, ...] = ()
    slices: tuple[Part, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Every field; the lists only if the plan asks for them."""
        return {name: value for name, value in asdict(self).items() if value != ()}


class Tally:
    """Counts learned examples, shows the progress, and reports bad lines; all on standard error.

    9 bytes an example are stored for the exact AUC, 8 more with weights and 7 more with labels between 0 and
    1; while `summary` runs it takes 20 bytes, or 95 with either, and 8 MiB.
    """

    def __init__(self, plan: ReplayPlan, source: TextSource | InputFiles) -> None:
        self.rows = 0
        self.duplicates = 0
        self.unscored = 0
        self._plan = plan
        self._file = source.name
        self._margins: list[npt.NDArray[np.float64]] = []
        self._labels: list[Labels] = []
        self._weights: list[npt.NDArray[np.float64]] = []
        self._passes: list[PassFigures] = []
        self._held: Predicted | None = None
        self._unsummed: list[tuple[npt.NDArray[Any], ...]] = []
        self._loss = self._weight = 0.0
        self._bad_lines = 0
        self._errors = 0
        self._started = self._next_shown = time.perf_counter()
        self._seconds = 0.0
        self._size = source.size
        self._progress = _progress_bar()
        total = None if source.size is None else source.size * plan.passes
        self._task = self._progress.add_task("", total=total, rows=0, rate=0.0, loss=0.0)

    def __enter__(self) -> Tally:
        self._progress.start()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = time.perf_counter() - self._started
        self._progress.stop()

    @property
    def in_first_pass(self) -> bool:
        return not self._passes

    def learned(
        self,
        margins: npt.NDArray[np.float64],
        labels: npt.NDArray[np.float64],
        weights: npt.NDArray[np.float64],
        bytes_read: int,
    ) -> None:
        """margins float64[r] before the updates (not finite: skipped), labels float64[r], weights float64[r]
        or empty (all 1); from the second pass on, they count in the log loss of the pass alone.
        """
        stored = compact(labels)
        if self.in_first_pass:
            self._margins.append(margins)
            self._labels.append(stored)
            self._weights.append(weights)
            self.rows += len(margins)
        self._unsummed.append((margins, stored, weights))
        if not self.in_first_pass:
            self._sum_up()  # the predictions of the first pass alone are stored in any case
        if not self._progress.disable and time.perf_counter() >= self._next_shown:
            self._show(bytes_read)

    def _show(self, bytes_read: int) -> None:
        now = time.perf_counter()
        self._next_shown = now + SHOWN_EVERY_SECONDS
        rate = self.rows * (len(self._passes) + 1) / max(now - self._started, 1e-9)
        loss = self._log_loss() or 0.0
        done = bytes_read + len(self._passes) * (self._size or 0)
        self._progress.update(self._task, completed=done, rows=self.rows, rate=rate, loss=loss)

    def so_far(self) -> str:
        """Describe what was learned until now, for a message."""
        loss = self._log_loss()
        figure = "" if loss is None else f" at a log loss of {loss:.5f}"
        passes = f", in pass {len(self._passes) + 1} of {self._plan.passes}" if self._plan.passes > 1 else ""
        return f"{self.rows:,} rows of {self._file} were learned{figure}{passes}"

    def _log_loss(self) -> float | None:
        """Return the log loss of the pass so far."""
        self._sum_up()
        return self._loss / self._weight if self._weight > 0.0 else None

    def _sum_up(self) -> None:
        """Add the losses of the predictions that came since the last call."""
        for margins, labels, weights in self._unsummed:
            finite = np.isfinite(margins)
            w = weights[finite] if weights.size else np.ones(np.count_nonzero(finite))
            self._loss += float(w @ log_losses(margins[finite], labels[finite].astype(np.float64)))
            self._weight += float(w.sum())
        self._unsummed.clear()

    def end_pass(self, held: Predicted | None) -> None:
        """End a pass; `held` are the held-out examples, predicted after it."""
        measures = None if held is None else summarize(*held).weighted
        log_loss = self._log_loss() if self._reports_passes(held) else None
        self._passes.append(PassFigures(log_loss, measures))
        self._held = held
        self._unsummed.clear()
        self._loss = self._weight = 0.0

    def _reports_passes(self, held: Predicted | None) -> bool:
        return self._plan.passes > 1 or held is not None

    def bad_line(self, error: LineError) -> None:
        """Report a bad line. Raises CommandFailure if the plan is to stop at one."""
        spanning = f" ({error.lines} lines)" if error.lines > 1 else ""
        text = f"{error.file or self._file}:{error.line_number}: {error.reason}{spanning}"
        if self._plan.on_error == "fail":
            raise CommandFailure(f"{text} (--on-error skip leaves such lines out)")
        self._bad_lines += error.lines
        self._errors += 1
        if self._errors <= MAX_ERRORS_SHOWN:
            self._say(text)
        elif self._errors == MAX_ERRORS_SHOWN + 1:
            self._say("further bad lines are counted, not shown")

    def summary(self, features_seen: int, nonzero: int, slices: tuple[Part, ...] = ()) -> ReplaySummary:
        """The summary; to be called once, after the block. Raises CommandFailure if the predictions cannot be
        written.
        """
        weights = self._all_weights()
        margins = np.concatenate([np.empty(0), *self._margins])
        self._margins.clear()
        self._unsummed.clear()
        labels = np.concatenate([np.empty(0, np.uint8), *self._labels])
        curve = self._details(margins, labels, weights)
        found = summarize(margins, labels, weights)
        learned = self.rows * max(len(self._passes), 1)
        return ReplaySummary(
            rows=self.rows,
            positives=plain_number(float(labels.sum())),
            **asdict(found.plain),
            density=nonzero / features_seen if features_seen else 0.0,
            features_seen=features_seen,
            nonzero=nonzero,
            seconds=self._seconds,
            rows_per_second=learned / self._seconds if self._seconds else 0.0,
            bad_lines=self._bad_lines,
            duplicates=self.duplicates,
            unscored=self.unscored,
            weighted=found.weighted,
            weighted_click_rate=_weighted_click_rate(labels, weights),
            held_out=0 if self._held is None else self._held.labels.size,
            passes=tuple(self._passes) if self._reports_passes(self._held) else (),
            curve=curve,
            slices=slices,
        )

    def _details(
        self,
        margins: npt.NDArray[np.float64],
        labels: Labels,
        weights: npt.NDArray[np.float64] | None,
    ) -> tuple[Part, ...]:
        """Write the predictions, and return the curve, as far as the plan asks for them."""
        if self._plan.predictions is not None:
            from service.cli.replay.parts import write_predictions

            write_predictions(self._plan.predictions, Predicted(margins, labels, weights), self._held)
        if not self._plan.curve:
            return ()
        from service.cli.replay.parts import curve_of

        return curve_of(Predicted(margins, labels, weights))

    def _all_weights(self) -> npt.NDArray[np.float64] | None:
        """Return the weights float64[r], or None if all are 1."""
        if not any((weights != 1.0).any() for weights in self._weights):
            return None
        pairs = zip(self._weights, self._margins, strict=True)
        return np.concatenate([weights if weights.size else np.ones(len(m)) for weights, m in pairs])

    def _say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _weighted_click_rate(labels: Labels, weights: npt.NDArray[np.float64] | None) -> float | None:
    total = 0.0 if weights is None else float(weights.sum())
    return None if weights is None or total <= 0.0 else float(weights @ labels) / total


def print_summary(summary: ReplaySummary) -> None:
    """Print the summary in readable form to standard output.

    With weights, the figures are in two columns: by weight, which is what is learned, and unweighted.
    """
    click_rate = summary.positives / max(summary.rows, 1)
    by_weight = summary.weighted
    is_weighted = summary.weighted_click_rate is not None
    figures: dict[str, tuple[Any, Any, Callable[[Any], str]]] = {
        "click rate": (summary.weighted_click_rate, click_rate, "{:.4f}".format),
        "log loss": (by_weight.log_loss, summary.log_loss, "{:.5f}".format),
        "AUC": (by_weight.auc, summary.auc, "{:.5f}".format),
        "normalized entropy": (
            by_weight.normalized_entropy,
            summary.normalized_entropy,
            "{:.5f}".format,
        ),
        "calibration ratio": (by_weight.calibration_ratio, summary.calibration_ratio, "{:.4f}".format),
    }
    others: dict[str, tuple[Any, Callable[[Any], str]]] = {
        "density": (summary.density, "{:.4f}".format),
        "features seen": (summary.features_seen, "{:,}".format),
        "non-zero weights": (summary.nonzero, "{:,}".format),
        "bad lines": (summary.bad_lines, "{:,}".format),
        "duplicates": (summary.duplicates or None, "{:,}".format),
        "not scored": (summary.unscored or None, "{:,}".format),
        "held out": (summary.held_out or None, "{:,}".format),
        "seconds": (summary.seconds, "{:.2f}".format),
        "rows per second": (summary.rows_per_second, "{:,.0f}".format),
        "seconds to load": (summary.load_seconds, "{:.2f}".format),
    }
    if is_weighted:
        _print_row("", "by weight", "unweighted")
    _print_row("rows", f"{summary.rows:,}")
    for name, (weighted, plain, form) in figures.items():
        shown = [weighted, plain] if is_weighted else [plain]
        if None not in shown:
            _print_row(name, *(form(value) for value in shown))
    for name, (value, form) in others.items():
        if value is not None:
            _print_row(name, form(value))
    _print_details(summary)


def _print_row(name: str, *cells: str) -> None:
    sys.stdout.write(f"{name:<20}" + "".join(f"{cell:>14}" for cell in cells) + "\n")


def _print_details(summary: ReplaySummary) -> None:
    for number, one in enumerate(summary.passes, 1):
        _print_row(f"pass {number}", *_pass_cells(one))
    if summary.curve or summary.slices:
        from service.cli.replay.parts import print_parts

        for title, parts in (("part of the rows", summary.curve), ("slice", summary.slices)):
            if parts:
                print_parts(title, parts, sys.stdout.write)


def _pass_cells(one: PassFigures) -> list[str]:
    cells = ["log loss", "-" if one.log_loss is None else f"{one.log_loss:.5f}"]
    if one.holdout is not None and one.holdout.log_loss is not None:
        area = "-" if one.holdout.auc is None else f"{one.holdout.auc:.5f}"
        cells += ["held out:", f"{one.holdout.log_loss:.5f}", "AUC", area]
    return cells


def _progress_bar() -> Progress:
    console = Console(stderr=True)
    return Progress(
        BarColumn(),
        TextColumn("{task.fields[rows]:>12,} rows"),
        TextColumn("{task.fields[rate]:>10,.0f} rows/s"),
        TextColumn("log loss {task.fields[loss]:.5f}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
