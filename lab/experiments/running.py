"""Many passes at once, on whatever backend joblib is told to use."""

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

_PASSES_A_JOB = 4  # in a round, after which results are kept: waits at its end are short against it


class Runner:
    """Runs passes that are not in the results, and counts what it does.

    new, found: how many passes were run, and how many were there.
    """

    def __init__(self, results: ResultsDirectory, jobs: int | None = None) -> None:
        """jobs: how many at once; None: what joblib.parallel_config says, and one without it."""
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
            yield

    def run(self, dataset: Dataset, passes: Sequence[Pass]) -> Mapping[Pass, Outcome]:
        """The outcome of each, the same whatever `jobs` are."""
        outcomes: dict[Pass, Outcome] = {}
        missing: list[Pass] = []
        for one in dict.fromkeys(passes):
            known = self._results.find(dataset, one)
            if known is None:
                missing.append(one)
            else:
                outcomes[one] = known
                self.found += 1
        self._progress.update(self._task, description=dataset.name, advance=len(outcomes))
        for one, outcome in self._run_missing(dataset, missing):
            self._results.keep(dataset, one, outcome)
            outcomes[one] = outcome
            self.new += 1
            self._progress.update(self._task, advance=1)
        self._seconds_of_passes += sum(outcome.processor_seconds for outcome in outcomes.values())
        return outcomes

    def _run_missing(self, dataset: Dataset, passes: Sequence[Pass]) -> Iterator[tuple[Pass, Outcome]]:
        from joblib import Parallel, delayed, effective_n_jobs

        rest = iter(passes)
        # The kernels let other threads run, and threads share the data; a backend that is configured wins.
        with Parallel(n_jobs=self._jobs, prefer="threads") as parallel:
            while some := list(islice(rest, _PASSES_A_JOB * effective_n_jobs(self._jobs))):
                yield from zip(some, parallel(delayed(run_pass)(dataset, one) for one in some), strict=True)

    def measured(self) -> dict[str, float | int]:
        """How long it took: the only part of a report that differs from run to run."""
        return {
            "seconds": round(time.perf_counter() - self._started, 2),
            "processor_seconds_of_passes": round(self._seconds_of_passes, 2),
            "processor_seconds_of_process": round(time.process_time(), 2),
            "passes_run": self.new,
            "passes_found": self.found,
        }


def _bar(shown: bool) -> Progress:
    return Progress(
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not shown,
    )
