"""The plan, the progress and the summary of `ftrl replay`, shared by HTTP and offline."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from model_core.evaluation.measures import Measures, summarize
from model_core.kernels.numerics import log_losses
from model_core.text.problems import LineError
from service.errors import CommandFailure
from service.parsing.files.rows import Format, ReadOptions
from service.parsing.files.source import TextSource

MAX_ERRORS_SHOWN = 20


@dataclass(frozen=True)
class ReplayPlan:
    """`config` is as in the body of PUT /models/{name}; empty: that of the model, or the default."""

    file: str
    file_format: Format
    options: ReadOptions
    model: str
    config: dict[str, Any]
    on_error: Literal["skip", "fail"] = "fail"


@dataclass(frozen=True)
class ReplaySummary:
    """The figures count every example once; `weighted` has those by importance if there are weights.

    rows: examples that were learned, including those skipped because their update was not finite.
    bad_lines: left out. duplicates: left out, since the file or the service has their event ids already.
    unscored: accepted by the service, which returned no prediction in time; not part of the figures.
    seconds: of the pass over the file; loading the result into Redis, if any, took `load_seconds` more.
    """

    rows: int
    positives: int
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Tally:
    """Counts learned examples, shows the progress, and reports bad lines; all on standard error.

    9 bytes an example are stored for the exact AUC, 17 with weights; while `summary` runs it takes 20 bytes,
    and 95 with weights.
    """

    def __init__(self, plan: ReplayPlan, source: TextSource) -> None:
        self.rows = 0
        self.duplicates = 0
        self.unscored = 0
        self._file = source.name
        self._stops_at_bad_lines = plan.on_error == "fail"
        self._margins: list[npt.NDArray[np.float64]] = []
        self._labels: list[npt.NDArray[np.uint8]] = []
        self._weights: list[npt.NDArray[np.float64]] = []
        self._loss = 0.0
        self._bad_lines = 0
        self._errors = 0
        self._started = time.perf_counter()
        self._seconds = 0.0
        self._progress = _progress_bar()
        self._task = self._progress.add_task("", total=source.size, rows=0, rate=0.0, loss=0.0)

    def __enter__(self) -> Tally:
        self._progress.start()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = time.perf_counter() - self._started
        self._progress.stop()

    def learned(
        self,
        margins: npt.NDArray[np.float64],
        labels: npt.NDArray[np.uint8],
        weights: npt.NDArray[np.float64],
        bytes_read: int,
    ) -> None:
        """margins float64[r] before the updates (not finite: skipped), labels uint8[r], weights float64[r]
        or empty (all 1).
        """
        self._margins.append(margins)
        self._labels.append(labels)
        self._weights.append(weights)
        self.rows += len(margins)
        finite = np.isfinite(margins)
        self._loss += float(log_losses(margins[finite], labels[finite]).sum())
        rate = self.rows / max(time.perf_counter() - self._started, 1e-9)
        loss = self._loss / max(self.rows, 1)
        self._progress.update(self._task, completed=bytes_read, rows=self.rows, rate=rate, loss=loss)

    def bad_line(self, error: LineError) -> None:
        """Report a bad line. Raises CommandFailure if the plan is to stop at one."""
        spanning = f" ({error.lines} lines)" if error.lines > 1 else ""
        text = f"{self._file}:{error.line_number}: {error.reason}{spanning}"
        if self._stops_at_bad_lines:
            raise CommandFailure(f"{text} (--on-error skip leaves such lines out)")
        self._bad_lines += error.lines
        self._errors += 1
        if self._errors <= MAX_ERRORS_SHOWN:
            self._say(text)
        elif self._errors == MAX_ERRORS_SHOWN + 1:
            self._say("further bad lines are counted, not shown")

    def summary(self, features_seen: int, nonzero: int) -> ReplaySummary:
        """The summary; to be called once, after the block."""
        weights = self._all_weights()
        margins = np.concatenate([np.empty(0), *self._margins])
        self._margins.clear()
        labels = np.concatenate([np.empty(0, np.uint8), *self._labels])
        found = summarize(margins, labels, weights)
        return ReplaySummary(
            rows=self.rows,
            positives=int(labels.sum()),
            **asdict(found.plain),
            density=nonzero / features_seen if features_seen else 0.0,
            features_seen=features_seen,
            nonzero=nonzero,
            seconds=self._seconds,
            rows_per_second=self.rows / self._seconds if self._seconds else 0.0,
            bad_lines=self._bad_lines,
            duplicates=self.duplicates,
            unscored=self.unscored,
            weighted=found.weighted,
        )

    def _all_weights(self) -> npt.NDArray[np.float64] | None:
        if not any(weights.size for weights in self._weights):
            return None
        pairs = zip(self._weights, self._margins, strict=True)
        return np.concatenate([weights if weights.size else np.ones(len(m)) for weights, m in pairs])

    def _say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_summary(summary: ReplaySummary) -> None:
    """Print the summary in readable form to standard output."""
    shown: dict[str, tuple[Any, Callable[[Any], str]]] = {
        "rows": (summary.rows, "{:,}".format),
        "click rate": (summary.positives / max(summary.rows, 1), "{:.4f}".format),
        "log loss": (summary.log_loss, "{:.5f}".format),
        "AUC": (summary.auc, "{:.5f}".format),
        "normalized entropy": (summary.normalized_entropy, "{:.5f}".format),
        "calibration ratio": (summary.calibration_ratio, "{:.4f}".format),
        "density": (summary.density, "{:.4f}".format),
        "features seen": (summary.features_seen, "{:,}".format),
        "non-zero weights": (summary.nonzero, "{:,}".format),
        "bad lines": (summary.bad_lines, "{:,}".format),
        "duplicates": (summary.duplicates or None, "{:,}".format),
        "not scored": (summary.unscored or None, "{:,}".format),
        "seconds": (summary.seconds, "{:.2f}".format),
        "rows per second": (summary.rows_per_second, "{:,.0f}".format),
        "seconds to load": (summary.load_seconds, "{:.2f}".format),
    }
    for name, (value, form) in shown.items():
        if value is not None:
            sys.stdout.write(f"{name:<20}{form(value):>14}\n")


def _progress_bar() -> Progress:
    console = Console(stderr=True)
    return Progress(
        BarColumn(),
        TextColumn("{task.fields[rows]:>12,} rows"),
        TextColumn("{task.fields[rate]:>10,.0f} rows/s"),
        TextColumn("log loss {task.fields[loss]:.5f}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
