"""Rates and latencies of this service, from its own Prometheus instruments, all its workers together."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Sample

from service.telemetry.metrics import Metrics

RATE_SECONDS = 5.0
LATENCY_SECONDS = 60.0
NOT_COUNTED = frozenset(
    {
        *("/livez", "/readyz", "/metrics", "/", "/dashboard/{file:path}", "/overview"),
        *("/models/{name}/live", "/models/{name}/history"),
        *("/docs", "/docs/{file:path}", "/redoc", "/openapi.json"),
    }
)
"""Routes of probes and of pages: neither is traffic."""


@dataclass
class Totals:
    """All that was counted up to `time` (monotonic, seconds).

    durations: by verb (`predict`, `update`), how many successful requests took at most so many seconds.
    of_models: by model, how many requests for predictions took at most so many seconds in their handler.
    """

    time: float
    predictions: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    requests: float = 0.0
    failures: float = 0.0
    durations: dict[str, dict[float, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    of_models: dict[str, dict[float, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )


class Latency(NamedTuple):
    """In seconds, within the width of a bucket of the histogram."""

    p50: float
    p99: float
    requests: int


@dataclass(frozen=True)
class Rates:
    """Per second over RATE_SECONDS; the failures, their share and the latencies over LATENCY_SECONDS.

    None if it cannot be computed: there are no two samples yet, or no requests. failing: whether any failed
    within RATE_SECONDS.
    """

    predictions: float | None = None
    requests: float | None = None
    failures: float | None = None
    predict: Latency | None = None
    of_model: Latency | None = None
    update: Latency | None = None
    failed: int = 0
    failing: bool = False


def read_totals(metrics: Metrics) -> Totals:
    """May take milliseconds where processes share their metrics; from any thread."""
    totals = Totals(time.monotonic())
    for metric in _counted(metrics):
        for sample in metric.samples:
            if metric.name == "ftrl_predictions":
                totals.predictions[sample.labels["model"]] += sample.value
            elif metric.name == "ftrl_predict_duration_seconds" and sample.name.endswith("_bucket"):
                totals.of_models[sample.labels["model"]][float(sample.labels["le"])] += sample.value
            elif metric.name == "ftrl_http_request_duration_seconds":
                _add_request(totals, sample)
    return totals


def _counted(metrics: Metrics) -> Iterable[Metric]:
    if metrics.shared is None:
        instruments = (metrics.predictions, metrics.predict_seconds, metrics.request_seconds)
        return [metric for instrument in instruments for metric in instrument.collect()]
    files = [str(file) for kind in ("counter", "histogram") for file in metrics.shared.glob(f"{kind}_*.db")]
    merged: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
    return merged


def _add_request(totals: Totals, sample: Sample) -> None:
    route, status = sample.labels["route"], sample.labels["status"]
    if route in NOT_COUNTED:
        return
    if sample.name.endswith("_count"):
        totals.requests += sample.value
        totals.failures += sample.value if status.startswith("5") else 0.0
    elif sample.name.endswith("_bucket") and status.startswith("20"):
        totals.durations[route.rpartition("/")[2]][float(sample.labels["le"])] += sample.value


class Traffic:
    """The totals of the last minute, and what follows from them."""

    def __init__(self) -> None:
        self._kept: deque[Totals] = deque()

    def add(self, totals: Totals) -> None:
        while self._kept and self._kept[0].time < totals.time - LATENCY_SECONDS:
            self._kept.popleft()
        self._kept.append(totals)

    def of(self, model: str) -> Rates:
        """Predictions and `of_model` are of the model, all else of all models."""
        if len(self._kept) < 2:
            return Rates()
        first, last = self._kept[0], self._kept[-1]
        recent = next(one for one in self._kept if one.time >= last.time - RATE_SECONDS)
        recent = recent if recent is not last else self._kept[-2]
        seconds = last.time - recent.time
        requests = last.requests - first.requests
        return Rates(
            predictions=(last.predictions.get(model, 0.0) - recent.predictions.get(model, 0.0)) / seconds,
            requests=(last.requests - recent.requests) / seconds,
            failures=(last.failures - first.failures) / requests if requests else None,
            of_model=latency_between(first.of_models.get(model, {}), last.of_models.get(model, {})),
            predict=latency_between(first.durations.get("predict", {}), last.durations.get("predict", {})),
            update=latency_between(first.durations.get("update", {}), last.durations.get("update", {})),
            failed=round(last.failures - first.failures),
            failing=last.failures > recent.failures,
        )


def latency_between(before: Mapping[float, float], after: Mapping[float, float]) -> Latency | None:
    """Of the requests that were counted in between; the keys are upper bounds of cumulative buckets."""
    bounds = sorted(after)
    counts = [after[bound] - before.get(bound, 0.0) for bound in bounds]
    if not counts or counts[-1] <= 0.0:
        return None
    return Latency(quantile(0.5, bounds, counts), quantile(0.99, bounds, counts), round(counts[-1]))


def quantile(q: float, bounds: Sequence[float], counts: Sequence[float]) -> float:
    """By interpolation within a bucket, as Prometheus does it; beyond the last finite bound, that bound."""
    rank = q * counts[-1]
    low, below = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= rank:
            return low if math.isinf(bound) else low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return low
