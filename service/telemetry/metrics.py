"""The metrics of a process, with one method for each event that is counted; `instruments.py` declares them.

Each application has one `Metrics`, which is passed to its parts; nothing is registered globally. Gauges of
values that exist elsewhere (ages, sizes, memory) are refreshed before each scrape, and every second if
processes share their metrics.
"""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from prometheus_client import Counter, Histogram

from model_core.evaluation.comparison import ComparisonFigures, Verdict
from model_core.evaluation.figures import Figures, Window
from model_core.evaluation.intervals import Interval
from model_core.learning.census import Census
from service import __version__
from service.telemetry.exposition import TextFormat, WrittenGauge
from service.telemetry.instruments import WORST_HIGH, WORST_LOW, Instruments
from service.telemetry.multiprocess import absent, combined_registry, process_registry, shared_directory

DETAIL_WINDOWS: tuple[Window, ...] = ("1h", "24h")
"""The windows for which there are reliability buckets and slices."""
WEIGHTINGS = {"weight": "importance", "none": "none"}
VERDICTS: Mapping[Verdict, int] = {"better": 1, "worse": -1, "undecided": 0}
FORGET_SECONDS = 60.0
"""Longer than any request in flight at the deletion of its model."""
GAUGE_REFRESH_SECONDS = 1.0
"""Interval at which a process that shares its metrics refreshes its gauges."""
FATES = (
    *("logged", "repeated", "refused", "shown", "never_shown", "orphan", "negative", "unsampled"),
    *("joined", "late", "late_joined", "duplicate", "conflict", "unknown"),
)
"""Outcomes that the scripts of logged predictions count. All start at 0, or Prometheus would miss the first
event.
"""
Unlogged = Literal["away", "full", "pending"]
"""Reasons why a prediction was not logged."""


class CommittedWork(Protocol):
    """The contents of one commit."""

    examples: int
    positives: float
    skipped_count: int
    changed_slots: int
    newest_event: int


class LogLag(Protocol):
    """Lag of the learner behind the log."""

    log_entries: int
    examples: int
    entries: float
    seconds: float
    bytes: int


class PendingPredictions(Protocol):
    """Predictions that await their labels; `counts`: totals since the model was created, by fate."""

    @property
    def bytes(self) -> int: ...
    @property
    def oldest_seconds(self) -> float: ...
    @property
    def pending(self) -> dict[str, int]: ...
    @property
    def counts(self) -> dict[str, int]: ...


class WrittenSnapshot(NamedTuple):
    """A snapshot in the store: `seconds` include the copy, during which learning paused."""

    written: datetime
    bytes: int
    slots: int
    seconds: float
    copy_seconds: float


class QualityMetrics(Instruments):
    """Gauges of a model's state and of its evaluation, which the process shows that leads the model."""

    def measured(self, model: str, measures: Census) -> None:
        for gauge, value in (
            (self.nonzero_features, measures.nonzero),
            (self.density, measures.density),
            (self.slot_load, measures.slot_load),
            (self.expected_collisions, measures.expected_collision_rate),
            (self.weight_norm, measures.weight_norm),
            (self.gradient_norm, measures.gradient_norm),
            (self.nonfinite_slots, measures.nonfinite),
        ):
            self._show(gauge, value, model)
        for expert, weight in enumerate(measures.expert_weights):
            self._show(self.expert_weight, weight, model, str(expert))

    def evaluated(self, model: str, source: str, figures: Figures) -> None:
        """Show the figures of a source; those that are unknown, as before the first click, are not shown."""
        labels = (model, source, str(figures.window), WEIGHTINGS[figures.weighting])
        for gauge, value in (
            (self.online_auc, figures.auc),
            (self.online_auc_error_bound, figures.auc_error_bound),
            (self.online_log_loss, figures.log_loss),
            (self.online_normalized_entropy, figures.normalized_entropy),
            (self.online_calibration_ratio, figures.calibration_ratio),
            (self.online_calibration_tolerance, figures.calibration_tolerance),
            (self.online_mean_prediction, figures.mean_prediction),
            (self.online_base_rate, figures.base_rate),
            (self.online_examples, figures.examples),
            (self.online_clicks, figures.clicks),
        ):
            self._show(gauge, value, *labels)
        for name, bounds in self.online_intervals.items():
            interval: Interval | None = getattr(figures, name)
            for bound, edge in zip(("low", "high"), interval or (None, None), strict=True):
                self._show(bounds, edge, *labels, bound)
        if figures.window in DETAIL_WINDOWS and figures.weighting == "weight":
            self._show_reliability(model, source, figures)

    def compared(self, model: str, champion: str, figures: ComparisonFigures) -> None:
        """Show how a challenger compares with its champion."""
        pair = (model, champion)
        self._show(self.challenger_pairs, figures.pairs, *pair)
        self._show(self.challenger_unpaired, figures.unpaired, *pair)
        self._show(self.challenger_verdict, VERDICTS[figures.verdict], *pair)
        self._show(self.challenger_difference, figures.difference, *pair)
        bounds = figures.difference_interval or (None, None)
        for bound, edge in zip(("low", "high"), bounds, strict=True):
            self._show(self.challenger_difference_bound, edge, *pair, bound)
        for name, one in (("champion", figures.champion), ("challenger", figures.challenger)):
            self._show(self.challenger_log_loss, one.log_loss, *pair, name)
            self._show(self.challenger_calibration, one.calibration_ratio, *pair, name)

    def judged(self, model: str, wrong: Mapping[str, bool]) -> None:
        """Show which checks find the predictions wrong; those that could not be made are not shown."""
        for check, is_wrong in wrong.items():
            self._show(self.online_wrong, is_wrong, model, check)
        self.online_wrong.retain({(model, check) for check in wrong}, model)

    def sliced(self, model: str, feature: str, value: str, figures: Mapping[Window, Figures]) -> None:
        """Show the figures of a slice, by weight."""
        for window in DETAIL_WINDOWS:
            found = figures[window]
            for gauge, number in (
                (self.slice_auc, found.auc),
                (self.slice_log_loss, found.log_loss),
                (self.slice_calibration_ratio, found.calibration_ratio),
                (self.slice_examples, found.examples),
                (self.slice_clicks, found.clicks),
            ):
                self._show(gauge, number, model, feature, value, window)

    def retain_slices(self, model: str, slices: Collection[tuple[str, str]]) -> None:
        """Remove all slices but these, given by feature and value."""
        wanted = {(model, *of, window) for of in slices for window in DETAIL_WINDOWS}
        for gauge in (
            *(self.slice_auc, self.slice_log_loss, self.slice_calibration_ratio),
            *(self.slice_examples, self.slice_clicks),
        ):
            gauge.retain(wanted, model)

    def _show_reliability(self, model: str, source: str, figures: Figures) -> None:
        common = (model, source, str(figures.window))
        gauges = (self.reliability_predicted, self.reliability_observed, self.reliability_examples)
        rows = {(*common, f"{row.low:g}-{row.high:g}"): row for row in figures.reliability}
        for gauge in gauges:
            gauge.retain(rows, *common)
        for labels, row in rows.items():
            for gauge, value in zip(gauges, (row.mean_prediction, row.click_rate, row.examples), strict=True):
                self._show(gauge, value, *labels)

    def _show(self, gauge: WrittenGauge, value: float | None, *labels: str) -> None:
        """Set a series of a model that this process leads, or remove it if the value is None."""
        if value is None:
            gauge.remove(*labels)
        else:
            gauge.set(value, *labels)

    def _hide(self, model: str) -> None:
        """Remove what another process now shows, but for the gauges that say that this one does not lead."""
        for gauge in self.written:
            if gauge is not self.learner_active and gauge is not self.learner_blocked:
                gauge.retain((), model)


class Metrics(QualityMetrics):
    """All metrics of a process; `render` returns the response of `/metrics`."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = shared_directory()
        self._exposed = self.registry if self.shared is None else combined_registry(self.shared)
        self._processes = process_registry(self.shared)
        self._text = TextFormat()
        self._refreshers: list[Callable[[], None]] = [self._refresh_gc]
        self._requests: dict[tuple[str, str, int], Histogram] = {}
        self._predictions: dict[str, tuple[Counter, Histogram]] = {}
        self._examples: dict[str, dict[str, Counter]] = {}  # by model and status
        self._loads: dict[str, int] = {}
        self._fates: dict[str, dict[str, int]] = {}
        self._learned: set[str] = set()  # models that this process learns, or stands by to learn
        self._deleted: dict[str, float] = {}  # models, and how long late counts of them are removed
        self._collected = [(0, 0)] * 3
        self._refused = 0
        self.build_info.labels(__version__, platform.python_version()).set(1)

    def refresh_with(self, refresher: Callable[[], None]) -> None:
        """Register a function that sets gauges; each `refresh` calls it, on the event loop of the caller."""
        self._refreshers.append(refresher)

    def refresh(self) -> None:
        for refresher in self._refreshers:
            refresher()
        for model, until in list(self._deleted.items()):
            if self._has(model) or time.monotonic() > until:
                del self._deleted[model]
            else:  # a request in flight may have counted again
                self._remove(model)

    def render(self) -> bytes:
        """Return the text, after `refresh`. Thread-safe: reading the files of several processes takes
        milliseconds.
        """
        written = "".join([gauge.text() for gauge in self.written]).encode()
        return self._text.write(self._exposed) + written + self._text.write(self._processes)

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        key = (route, method, status)
        child = self._requests.get(key)
        if child is None:
            child = self._requests[key] = self.request_seconds.labels(route, method, str(status))
        child.observe(seconds)

    def predicted(self, model: str, count: int, seconds: float) -> None:
        children = self._predictions.get(model)
        if children is None:
            children = self._predictions[model] = (
                self.predictions.labels(model),
                self.predict_seconds.labels(model),
            )
        children[0].inc(count)
        children[1].observe(seconds)

    def appended_examples(self, model: str, count: int, seconds: float) -> None:
        self.lost.labels(model)  # starts at 0, or Prometheus would see no increase at the first loss
        self.appended.labels(model).inc(count)
        self.append_seconds.labels(model).observe(seconds)

    def lost_examples(self, model: str, count: int) -> None:
        self.lost.labels(model).inc(count)

    def consumed(self, model: str, **outcomes: int) -> None:
        """Count messages of Kafka by what became of them: appended, duplicate, refused or empty."""
        self.consumer_missing.labels(model)  # starts at 0, or Prometheus would see no increase at the first
        for outcome, count in outcomes.items():
            self.consumer_messages.labels(model, outcome).inc(count)

    def missed(self, model: str, messages: int) -> None:
        self.consumer_missing.labels(model).inc(max(0, messages))

    def consumer_lag(self, model: str, topic: str, partition: int, messages: int) -> None:
        self.consumer_lag_messages.labels(model, topic, str(partition)).set(messages)

    def not_consumed(self, model: str, topic: str, partition: int) -> None:
        """Remove the lag of a partition that another consumer reads now."""
        self.consumer_lag_messages.remove_by_labels(
            {"model": model, "topic": topic, "partition": str(partition)}
        )

    def updated(self, model: str, statuses: Sequence[str]) -> None:
        children = self._examples.setdefault(model, {})
        for status in set(statuses):
            child = children.get(status)
            if child is None:
                child = children[status] = self.examples.labels(model, status)
            child.inc(statuses.count(status))

    def unlogged(self, model: str, reason: Unlogged, count: int) -> None:
        self.feedback_unlogged.labels(model, reason).inc(count)

    def label_arrived(self, model: str, delay_seconds: float) -> None:
        self.label_delay_seconds.labels(model).observe(delay_seconds)

    def show_pending(self, model: str, pending: PendingPredictions, limit_bytes: int) -> None:
        """Show the pending predictions of a model that this process leads. The counts are totals from Redis;
        the first ones are counted in full, as they include what came while no process led.
        """
        known = self._fates.get(model, {})
        for fate in FATES if pending.counts else ():
            added = pending.counts.get(fate, 0) - known.get(fate, 0)
            self.feedback_predictions.labels(model, fate).inc(max(0, added))
        self._fates[model] = pending.counts
        for stage, number in pending.pending.items():
            self._show(self.feedback_waiting, number, model, stage)
        self._show(self.feedback_bytes, pending.bytes, model)
        self._show(self.feedback_limit_bytes, limit_bytes, model)
        self._show(self.feedback_oldest_seconds, pending.oldest_seconds, model)

    def pending_shown_elsewhere(self, model: str, pending: PendingPredictions) -> None:
        """Note the counts that another leader shows; this process will not count them again."""
        if model in self._fates:
            self._fates[model] = pending.counts

    def mirrored(
        self, model: str, *, age_seconds: float, rounds: int, loads: int, mixed_names: int, unmet_names: int
    ) -> None:
        self.mirror_age_seconds.labels(model).set(age_seconds)
        self.mixed_names.labels(model).set(mixed_names)
        self.unmet_names.labels(model).set(unmet_names)
        self.mirror_rounds.labels(model).set(rounds)
        new = loads - self._loads.get(model, 0)
        self.mirror_loads.labels(model).inc(new if new >= 0 else loads)
        self._loads[model] = loads

    def retain_mirrors(self, models: Iterable[str]) -> None:
        """Remove the series of all other mirrors, whose models were deleted, unless this process learns them.
        If processes share their metrics, those of all end with the last mirror.
        """
        for model in self._loads.keys() - set(models):
            del self._loads[model]
            if self.shared is not None:
                for gauge, mode in (
                    (self.mirror_age_seconds, WORST_HIGH),
                    (self.mirror_rounds, WORST_LOW),
                    (self.mixed_names, WORST_HIGH),
                    (self.unmet_names, WORST_HIGH),
                ):
                    gauge.labels(model).set(absent(mode))
            self._forget(model)

    def refused_connections(self, total: int) -> None:
        """Count the connections to Redis that were refused so far."""
        self.redis_refused.inc(total - self._refused)
        self._refused = total

    def learner_state(self, model: str, *, leading: bool, blocked: bool) -> None:
        self._learned.add(model)
        self._show(self.learner_active, leading, model)
        self._show(self.learner_blocked, blocked, model)
        if not leading:
            self._hide(model)

    def model_deleted(self, model: str) -> None:
        """Remove all series of the learner, and all others unless this process has a mirror of the model; the
        counts of a new model of that name start at 0.
        """
        self._learned.discard(model)
        self._fates.pop(model, None)
        for gauge in self.written:
            gauge.retain((), model)
        self._forget(model)

    def _has(self, model: str) -> bool:
        return model in self._loads or model in self._learned

    def _forget(self, model: str) -> None:
        if not self._has(model):
            self._remove(model)
            self._deleted[model] = time.monotonic() + FORGET_SECONDS

    def _remove(self, model: str) -> None:
        self._predictions.pop(model, None)
        self._examples.pop(model, None)
        if self.shared is None:  # samples cannot be removed from the files
            for instrument in self.of_models:
                instrument.remove_by_labels({"model": model})
            self._text.forget_labels()

    def leading(self, model: str, *, fingerprint: str, family: str, bits: int) -> None:
        self._show(self.model_info, 1, model, fingerprint, family, str(bits))
        self.model_info.retain({(model, fingerprint, family, str(bits))}, model)
        self.checkpoint_slots.labels(model)

    def behind(self, model: str, seconds: float) -> None:
        self._show(self.checkpoint_behind_seconds, seconds, model)

    def written_behind(self, model: str, slots: int) -> None:
        self.checkpoint_slots.labels(model).inc(slots)

    def committed(self, model: str, work: CommittedWork, seconds: float) -> None:
        self.learned.labels(model, "1").inc(work.positives)
        self.learned.labels(model, "0").inc(work.examples - work.positives)
        self.skipped.labels(model).inc(work.skipped_count)
        self.commit_seconds.labels(model).observe(seconds)
        self.commit_slots.labels(model).observe(work.changed_slots)
        self.commit_examples.labels(model).observe(work.examples)
        if work.newest_event >= 0:
            age = time.time() - work.newest_event / 1000
            self._show(self.event_age_seconds, max(age, 0.0), model)  # another clock may be ahead

    def model_size(self, model: str, rounds: int, features: int) -> None:
        self._show(self.rounds, rounds, model)
        self._show(self.features_seen, features, model)

    def start_snapshot_counters(self, model: str, failures: Iterable[str]) -> None:
        """Start the counters at 0, or Prometheus would miss the first event."""
        for reason in failures:
            self.snapshot_failures.labels(model, reason)
        for counter in (self.restores, self.rollbacks, self.promotions):
            counter.labels(model)
        for histogram in (self.snapshot_seconds, self.snapshot_copy_seconds):
            histogram.labels(model)

    def start_restart_counters(self, model: str, reasons: Iterable[str]) -> None:
        """Start them at 0 as well."""
        for reason in reasons:
            self.challenger_restarts.labels(model, reason)

    def newest_snapshot(self, model: str, written: datetime) -> None:
        self._show(self.snapshot_success, written.timestamp(), model)

    def snapshot_taken(self, model: str, snapshot: WrittenSnapshot) -> None:
        self.newest_snapshot(model, snapshot.written)
        self._show(self.snapshot_bytes, snapshot.bytes, model)
        self._show(self.snapshot_slots, snapshot.slots, model)
        self.snapshot_seconds.labels(model).observe(snapshot.seconds)
        self.snapshot_copy_seconds.labels(model).observe(snapshot.copy_seconds)

    def lag(self, model: str, lag: LogLag) -> None:
        self._show(self.log_entries, lag.log_entries, model)
        self._show(self.lag_examples, lag.examples, model)
        self._show(self.lag_entries, lag.entries, model)
        self._show(self.lag_seconds, lag.seconds, model)
        self._show(self.lag_bytes, lag.bytes, model)

    def _refresh_gc(self) -> None:
        for generation, stats in enumerate(gc.get_stats()):
            runs, objects = self._collected[generation]
            self._collected[generation] = (stats["collections"], stats["collected"])
            self.gc_collections.labels(str(generation)).inc(stats["collections"] - runs)
            self.gc_collected.labels(str(generation)).inc(stats["collected"] - objects)
