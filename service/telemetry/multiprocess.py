"""Metrics shared by several API processes: each writes files, and the one that is scraped combines them.

The supervisor owns the directory. Files are named by role rather than by process id, so that a restarted
process continues the counts of its killed predecessor, and no files accumulate.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from service.runtime.files import try_lock

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""prometheus-client reads it when it is imported, so it must be set before a worker starts."""

MIRRORED = "ftrl_mirror_rounds"
"""A gauge that each process has of each model whose mirror it holds."""
_PREFIX = "ftrl-metrics-"


class MetricsDirectory:
    """The supervisor's directory: created at the start, removed at the end. Directories of killed supervisors
    are removed as well.
    """

    def __init__(self) -> None:
        _remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = try_lock(self.path / "lock")
        assert lock is not None, "no other process knows the directory"
        self._lock = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def ended(self, role: str) -> None:
        """Drop the gauges of a process that has ended; its counts remain."""
        mark_process_dead(role, str(self.path))  # type: ignore[no-untyped-call]
        (self.path / f"{role}.pid").unlink(missing_ok=True)


def share_metrics(role: str) -> None:
    """Share this process's metrics under a role; to be called before any instrument is created."""
    values.ValueClass = values.MultiProcessValue(lambda: role)  # type: ignore[no-untyped-call]
    if directory := shared_directory():
        (directory / f"{role}.pid").write_text(str(os.getpid()))


def shared_directory() -> Path | None:
    """Return the directory, or None if this process does not share its metrics."""
    directory = os.environ.get(VARIABLE)
    return Path(directory) if directory else None


def process_registry(shared: Path | None) -> CollectorRegistry:
    """Return CPU, memory and files of this process, or of all that share the directory, by role."""
    registry = CollectorRegistry()
    registry.register(ProcessCollector(registry=None) if shared is None else _Processes(shared))
    return registry


def combined_registry(shared: Path) -> CollectorRegistry:
    """Return the instruments of all processes that share the directory."""
    registry = CollectorRegistry()
    registry.register(_Combined(shared))
    return registry


def absent(mode: str) -> float:
    """Return the value that marks a gauge of a deleted model, as samples cannot be removed from the files:
    any other process's value takes precedence, and it is not shown by itself.
    """
    return math.inf if mode == "livemin" else -math.inf


class _Combined(Collector):
    def __init__(self, shared: Path) -> None:
        self._files = MultiProcessCollector(None, str(shared))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterator[Metric]:
        """Leaves out models of which no process has a mirror: they were deleted, or no process has used them
        since it started.
        """
        metrics = list(self._files.collect())  # type: ignore[no-untyped-call]
        shown: set[str | None] = {None}
        for metric in metrics:
            if metric.type == "gauge":
                metric.samples = [sample for sample in metric.samples if not math.isinf(sample.value)]
            if metric.name == MIRRORED:
                shown |= {sample.labels["model"] for sample in metric.samples}
        for metric in metrics:
            metric.samples = [sample for sample in metric.samples if sample.labels.get("model") in shown]
            yield metric


class _Processes(Collector):
    def __init__(self, shared: Path) -> None:
        self._shared = shared

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for file in sorted(self._shared.glob("*.pid")):
            for metric in _of_process(file):
                known = families.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                known.samples += [
                    sample._replace(labels=sample.labels | {"process": file.stem})
                    for sample in metric.samples
                ]
        return families.values()


def _of_process(file: Path) -> Iterable[Metric]:
    try:
        pid = file.read_text()
    except FileNotFoundError:  # it has just ended
        return []
    return ProcessCollector(pid=lambda: pid, registry=None).collect()


def _remove_abandoned() -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = try_lock(directory / "lock")
        except OSError:  # another user's, or being removed
            continue
        if lock is not None:
            shutil.rmtree(directory, ignore_errors=True)
            lock.close()
