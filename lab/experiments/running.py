"""Runs passes in parallel on the configured joblib backend."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lab.experiments.datasets import Dataset
from lab.experiments.passes import Outcome, Pass, run_pass
from lab.experiments.results import ResultsDirectory
from service.errors import Interrupted

_PASSES_A_JOB = 4  # in a round, after which results are stored; idle time at its end is comparatively short


class Runner:
    """Runs passes that are not in the results yet, and counts them.

    new, found: number of passes that were run, and that were in the results already.
    """

    def __init__(self, results: ResultsDirectory, jobs: int | None = None) -> None:
        """jobs: passes in parallel; None: as set by joblib.parallel_config, or else 1."""
        self._results = results
        self._jobs = jobs
        self._seconds_of_passes = 0.0
        self._started = time.perf_counter()
        self._progress = _bar(shown=False)
        self._task = self._progress.add_task("", total=None)
        self.new = 0
        self.found = 0

    @contextmanager
    def progress(self, total: int, shown: bool = True) -> Iterator[None]:
        """A bar on standard error for `total` passes."""
        self._progress = _bar(shown)
        self._task = self._progress.add_task("", total=total)
        with self._progress:
            try:
                yield
            except KeyboardInterrupt:
                raise Interrupted(
                    f"{self.new + self.found} of {total} passes are done; the same command continues there"
                ) from None

    def run(self, dataset: Dataset, passes: Sequence[Pass]) -> Mapping[Pass, Outcome]:
        """The outcome of each pass, which does not depend on `jobs`."""
        outcomes: dict[Pass, Outcome] = {}
        missing: list[Pass] = []
        for one in dict.fromkeys(passes):
            known = self._results.find(dataset.name, one.identity(dataset))
            if known is None:
                missing.append(one)
            else:
                outcomes[one] = Outcome(**known)
                self.found += 1
        self._progress.update(self._task, description=dataset.name, advance=len(outcomes))
        for one, outcome in self._run_missing(dataset, missing):
            self._results.keep(dataset.name, one.identity(dataset), outcome.to_json())
            outcomes[one] = outcome
            self.new += 1
            self._progress.update(self._task, advance=1)
        self._seconds_of_passes += sum(outcome.processor_seconds for outcome in outcomes.values())
        return outcomes

    def _run_missing(self, dataset: Dataset, passes: Sequence[Pass]) -> Iterator[tuple[Pass, Outcome]]:
        from joblib import Parallel, delayed, effective_n_jobs

        rest = iter(passes)
        # The kernels release the GIL, and threads share the data; a configured backend takes precedence.
        with Parallel(n_jobs=self._jobs, prefer="threads") as parallel:
            while some := list(islice(rest, _PASSES_A_JOB * effective_n_jobs(self._jobs))):
                yield from zip(some, parallel(delayed(run_pass)(dataset, one) for one in some), strict=True)

    def measured(self) -> dict[str, float | int]:
        """Timings: the only part of a report that differs between runs."""
        return {
            "seconds": round(time.perf_counter() - self._started, 2),
            "processor_seconds_of_passes": round(self._seconds_of_passes, 2),
            "processor_seconds_of_process": round(time.process_time(), 2),
            "passes_run": self.new,
            "passes_found": self.found,
        }


def _bar(shown: bool) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (shown and console.is_terminal),
    )
