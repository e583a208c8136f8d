"""Progress of a race on standard error."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

MAX_ERRORS_SHOWN = 20


class RaceProgress:
    """Counts rows and bad lines; the bar is shown only on a terminal."""

    def __init__(self, shown: bool = True) -> None:
        self.rows = 0
        self.bad_lines = 0
        self.best = ""
        console = Console(stderr=True)
        self._progress = Progress(
            BarColumn(),
            TextColumn("{task.fields[rows]:,} rows, {task.fields[racing]} candidates"),
            TextColumn("log loss of the best {task.fields[loss]:.4f}"),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (shown and console.is_terminal),
        )
        self._task = self._progress.add_task("", total=None, rows=0, racing=0, loss=0.0)

    def __enter__(self) -> RaceProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def approach(self, done: int, size: int) -> None:
        """Show how much of what comes before the examples of the race was learned."""
        self._progress.update(self._task, completed=done, total=size)

    def begin(self, size: int | None, candidates: int) -> None:
        self._progress.update(self._task, completed=0, total=size, racing=candidates)

    def advance(self, bytes_read: int, rows: int, racing: int, best_loss: float, best: str) -> None:
        """`best`: the candidate with `best_loss`, in words."""
        self.rows += rows
        self.best = f"{best}, with a log loss of {best_loss:.5f}"
        self._progress.update(self._task, completed=bytes_read, rows=self.rows, racing=racing, loss=best_loss)

    def bad_line(self, text: str) -> None:
        self.bad_lines += 1
        if self.bad_lines <= MAX_ERRORS_SHOWN:
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
            sys.stderr.flush()
