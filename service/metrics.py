"""Every Prometheus instrument of the service, declared once.

One `Metrics` is made for each application and handed to whoever counts; nothing is registered globally.
Routes are labelled by their template. What others keep anyway (ages, backlogs, memory) is set at a scrape.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from service import __version__
from service.redis_keys import LearnedEntry

REQUEST_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
COMMIT_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
COMMIT_SLOTS = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0, 30_000.0, 100_000.0)


class CommittedWork(Protocol):
    """What one commit held."""

    entries: list[LearnedEntry]
    examples: int
    skipped_count: int
    changed_slots: int


class Metrics:
    """The instruments, as attributes; `render` is what `/metrics` answers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._declare_http()
        self._declare_examples()
        self._declare_learner()
        self._declare_mirror()
        self._declare_redis()
        self._requests: dict[tuple[str, str, int], Histogram] = {}
        self._predictions: dict[str, Counter] = {}
        build = self._gauge("ftrl_build_info", "Always 1; the labels say what runs.", "version", "python")
        build.labels(__version__, platform.python_version()).set(1)

    def _declare_http(self) -> None:
        self.request_seconds = self._histogram(
            "ftrl_http_request_duration_seconds",
            "Requests, from their first byte to the last of the reply.",
            REQUEST_SECONDS,
            "route",
            "method",
            "status",
        )
        self.requests_in_progress = self._gauge(
            "ftrl_http_requests_in_progress", "Requests being answered.", "route"
        )

    def _declare_examples(self) -> None:
        self.predictions = self._counter("ftrl_predictions", "Probabilities that were served.", "model")
        self.examples = self._counter(
            "ftrl_update_examples",
            "Examples of update requests by what their reply said.",
            "model",
            "status",
        )
        self.appended = self._counter(
            "ftrl_examples_appended", "Examples in appends that succeeded, repeated ones too.", "model"
        )
        self.append_seconds = self._histogram(
            "ftrl_append_duration_seconds", "One append of a micro-batch.", COMMIT_SECONDS, "model"
        )

    def _declare_learner(self) -> None:
        self.learned = self._counter("ftrl_examples_learned", "Examples that the learner committed.", "model")
        self.skipped = self._counter(
            "ftrl_examples_skipped",
            "Examples not applied because the state would not have stayed finite.",
            "model",
        )
        self.learner_active = self._gauge(
            "ftrl_learner_active", "1 where this process holds the model's lease.", "model"
        )
        self.learner_blocked = self._gauge(
            "ftrl_learner_blocked", "1 while the log holds an entry that cannot be read.", "model"
        )
        self.learner_lag_seconds = self._gauge(
            "ftrl_learner_lag_seconds", "Age of the last learned example when it was committed.", "model"
        )
        self.backlog_examples = self._gauge(
            "ftrl_backlog_examples", "Examples in the log that wait to be learned.", "model"
        )
        self.commit_seconds = self._histogram(
            "ftrl_commit_duration_seconds", "One commit of the learner.", COMMIT_SECONDS, "model"
        )
        self.commit_slots = self._histogram(
            "ftrl_commit_slots", "Slots that one commit changed.", COMMIT_SLOTS, "model"
        )

    def _declare_mirror(self) -> None:
        self.mirror_age_seconds = self._gauge(
            "ftrl_mirror_age_seconds", "Since the server last confirmed the mirror's state.", "model"
        )
        self.mirror_loads = self._gauge(
            "ftrl_mirror_loads", "How often the whole state was loaded since the start.", "model"
        )
        self.rounds = self._gauge("ftrl_model_rounds", "Completed rounds t of the mirror's state.", "model")
        self.features_seen = self._gauge(
            "ftrl_model_features_seen", "Features present in the mirror's state.", "model"
        )

        self.of_mirrors = (self.mirror_age_seconds, self.mirror_loads, self.rounds, self.features_seen)

    def _declare_redis(self) -> None:
        self.redis_up = self._gauge("ftrl_redis_up", "1 while Redis answers.")
        self.redis_memory_used_bytes = self._gauge("ftrl_redis_memory_used_bytes", "Memory that Redis uses.")
        self.redis_memory_limit_bytes = self._gauge(
            "ftrl_redis_memory_limit_bytes", "Its maxmemory; 0 is none."
        )
        self.redis_policy_ok = self._gauge(
            "ftrl_redis_policy_ok", "0 where its maxmemory-policy may evict a model."
        )
        self.redis_persists = self._gauge("ftrl_redis_persists", "0 where a restart of it loses every model.")
        self.redis_shedding = self._gauge(
            "ftrl_redis_shedding", "1 while new examples are refused for want of memory."
        )

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        key = (route, method, status)
        child = self._requests.get(key)
        if child is None:
            child = self._requests[key] = self.request_seconds.labels(route, method, str(status))
        child.observe(seconds)

    def predicted(self, model: str, count: int) -> None:
        child = self._predictions.get(model)
        if child is None:
            child = self._predictions[model] = self.predictions.labels(model)
        child.inc(count)

    def appended_examples(self, model: str, count: int, seconds: float) -> None:
        self.appended.labels(model).inc(count)
        self.append_seconds.labels(model).observe(seconds)

    def updated(self, model: str, statuses: Sequence[str]) -> None:
        for status in set(statuses):
            self.examples.labels(model, status).inc(statuses.count(status))

    def learner_state(self, model: str, *, leading: bool, blocked: bool) -> None:
        self.learner_active.labels(model).set(leading)
        self.learner_blocked.labels(model).set(blocked)

    def committed(self, model: str, work: CommittedWork, seconds: float, backlog: int) -> None:
        self.learned.labels(model).inc(work.examples)
        self.skipped.labels(model).inc(work.skipped_count)
        self.commit_seconds.labels(model).observe(seconds)
        self.commit_slots.labels(model).observe(work.changed_slots)
        self.backlog_examples.labels(model).set(backlog)
        if work.entries:
            appended = work.entries[-1].id.milliseconds / 1000
            self.learner_lag_seconds.labels(model).set(max(0.0, time.time() - appended))

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(name, help_text, labels, registry=self.registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(name, help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, help_text, labels, buckets=buckets, registry=self.registry)
