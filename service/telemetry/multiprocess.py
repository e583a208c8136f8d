"""Several API processes whose /metrics are one: each writes files, and whoever is asked adds them up.

The directory is the supervisor's. A process writes under its role and not under its process id, so that one
that is started again counts on where its predecessor was killed, and no files of the dead pile up.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Self

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from service.runtime.files import try_lock

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""prometheus-client looks for it when it is imported: it has to be set before a worker starts."""

_PREFIX = "ftrl-metrics-"


class MetricsDirectory:
    """The supervisor's: made at the start, removed at the end, and with it what killed supervisors left."""

    path: Path
    _lock: BinaryIO

    def __enter__(self) -> Self:
        _remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = try_lock(self.path / "lock")
        assert lock is not None, "nobody else knows the directory"
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def ended(self, role: str) -> None:
        """Its gauges describe nothing any more; what it counted stays counted."""
        mark_process_dead(role, str(self.path))  # type: ignore[no-untyped-call]
        (self.path / f"{role}.pid").unlink(missing_ok=True)


def share_metrics(role: str) -> None:
    """To be called in a worker before any instrument is made."""
    values.ValueClass = values.MultiProcessValue(lambda: role)  # type: ignore[no-untyped-call]
    if directory := shared_directory():
        (directory / f"{role}.pid").write_text(str(os.getpid()))


def shared_directory() -> Path | None:
    """None where this process answers for itself alone."""
    directory = os.environ.get(VARIABLE)
    return Path(directory) if directory else None


def process_registry(shared: Path | None) -> CollectorRegistry:
    """CPU, memory and files of this process, or of all that share the directory, by role."""
    registry = CollectorRegistry()
    registry.register(ProcessCollector(registry=None) if shared is None else _Processes(shared))
    return registry


def combined_registry(shared: Path) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Whole(shared))
    return registry


def absent(mode: str) -> float:
    """What a gauge of a deleted model is set to, as a file forgets no sample: it never wins over another
    process's value, and is not shown where nobody has one."""
    return math.inf if mode == "livemin" else -math.inf


class _Whole(Collector):
    def __init__(self, shared: Path) -> None:
        self._files = MultiProcessCollector(None, str(shared))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterator[Metric]:
        for metric in self._files.collect():  # type: ignore[no-untyped-call]
            if metric.type == "gauge":
                metric.samples = [sample for sample in metric.samples if not math.isinf(sample.value)]
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
        except OSError:  # another user's, or just being removed
            continue
        if lock is not None:
            shutil.rmtree(directory, ignore_errors=True)
            lock.close()
