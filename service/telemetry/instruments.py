"""Every Prometheus instrument of the service, declared once: names, labels, buckets, and nothing else.

If several API processes share their metrics (`multiprocess.py`), a gauge is the worst of their values, their
sum, or the most recent one. Gauges of the learner are served only by the process that leads, so that no two
targets can disagree, and their lines are written when they are set (`exposition.py`).
"""

from __future__ import annotations

from typing import Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from service.telemetry.exposition import WrittenGauge

disable_created_metrics()  # type: ignore[no-untyped-call]  # half of a scrape would be times of creation

REQUEST_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
COMMIT_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
PREDICT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
SNAPSHOT_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
DELAY_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 21_600.0, 86_400.0)
COMMIT_SLOTS = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0, 30_000.0, 100_000.0)
COMMIT_EXAMPLES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)

Mode = Literal["livemin", "livemax", "livesum", "livemostrecent"]
WORST_HIGH: Mode = "livemax"
WORST_LOW: Mode = "livemin"
SUM: Mode = "livesum"
NEWEST: Mode = "livemostrecent"

INTERVALS = {
    "auc_interval": "auc",
    "log_loss_interval": "log_loss",
    "calibration_ratio_interval": "calibration_ratio",
    "base_rate_interval": "base_rate_ratio",
}
"""Intervals of figures, and after which gauges theirs are named."""
OF_WINDOW = ("model", "source", "window", "weighting")
OF_SLICE = ("model", "feature", "value", "window")
OF_BUCKET = ("model", "source", "window", "bucket")


Instrument = Counter | Gauge | Histogram | WrittenGauge
AnyInstrument = TypeVar("AnyInstrument", Counter, Gauge, Histogram, WrittenGauge)


class Instruments:
    """All instruments as attributes; `declared` lists them in order."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.declared: list[Instrument] = []
        self._labels: dict[Instrument, tuple[str, ...]] = {}
        self._declare_http()
        self._declare_examples()
        self._declare_feedback()
        self._declare_consumer()
        self._declare_learner()
        self._declare_commits()
        self._declare_mirror()
        self._declare_evaluation()
        self._declare_comparison()
        self._declare_model()
        self._declare_snapshots()
        self._declare_redis()
        self._declare_process()
        self.written = [one for one in self.declared if isinstance(one, WrittenGauge)]
        self.of_models = [
            one for one in self.declared if not isinstance(one, WrittenGauge) and "model" in self._labels[one]
        ]

    def _declare_http(self) -> None:
        self.request_seconds = self._histogram(
            "ftrl_http_request_duration_seconds",
            "Requests, from their first byte to the last of the reply.",
            REQUEST_SECONDS,
            *("route", "method", "status"),
        )
        self.requests_in_progress = self._gauge(
            "ftrl_http_requests_in_progress", "Requests being answered.", "route", mode=SUM
        )
        self.live_streams = self._gauge(
            "ftrl_live_streams", "Pages that are connected for their live figures.", mode=SUM
        )
        self.update_streams = self._gauge(
            "ftrl_update_streams", "Updates whose bodies are being streamed.", mode=SUM
        )

    def _declare_examples(self) -> None:
        self.predictions = self._counter("ftrl_predictions", "Probabilities that were served.", "model")
        self.predict_seconds = self._histogram(
            "ftrl_predict_duration_seconds",
            "Predictions of one request, from its parsing to the reply: without receiving and sending.",
            PREDICT_SECONDS,
            "model",
        )
        self.examples = self._counter(
            "ftrl_update_examples",
            "Examples of update requests by what their reply said.",
            *("model", "status"),
        )
        self.appended = self._counter(
            "ftrl_examples_appended", "Examples in appends that succeeded, repeated ones too.", "model"
        )
        self.lost = self._counter(
            "ftrl_examples_lost",
            "Examples that Redis had acknowledged and lost (failover or crash).",
            "model",
        )
        self.append_seconds = self._histogram(
            "ftrl_append_duration_seconds", "One append of a micro-batch.", COMMIT_SECONDS, "model"
        )

    def _declare_feedback(self) -> None:
        self.feedback_predictions = self._counter(
            "ftrl_feedback_predictions",
            "Logged predictions by what happened to them; a label counts by what became of it.",
            *("model", "fate"),
        )
        self.feedback_unlogged = self._counter(
            "ftrl_feedback_unlogged", "Predictions served but not logged.", "model", "reason"
        )
        self.feedback_waiting = self._written(
            "ftrl_feedback_waiting", "Logged predictions in Redis, by what they wait for.", "model", "stage"
        )
        self.feedback_bytes = self._written(
            "ftrl_feedback_bytes", "What they take of Redis, all stages together.", "model"
        )
        self.feedback_limit_bytes = self._written(
            "ftrl_feedback_limit_bytes", "Beyond it predictions are not logged.", "model"
        )
        self.feedback_oldest_seconds = self._written(
            "ftrl_feedback_oldest_seconds",
            "Age of the oldest open impression, labelled or not: at most its window and a little.",
            "model",
        )
        self.label_delay_seconds = self._histogram(
            "ftrl_feedback_label_delay_seconds", "From an impression to its label.", DELAY_SECONDS, "model"
        )

    def _declare_consumer(self) -> None:
        self.consumer_messages = self._counter(
            "ftrl_consumer_messages", "Messages of Kafka by what became of them.", "model", "outcome"
        )
        self.consumer_missing = self._counter(
            "ftrl_consumer_missing_messages",
            "Messages that were not there any more when their turn came.",
            "model",
        )
        self.consumer_lag_messages = self._gauge(
            "ftrl_consumer_lag_messages",
            "Messages of a partition that are not appended yet; by the consumer that reads it.",
            *("model", "topic", "partition"),
        )
        self.consumer_waiting = self._gauge(
            "ftrl_consumer_waiting",
            "1 while messages are left with the broker: a full backlog, no Redis, no broker, no model.",
            "model",
        )

    def _declare_learner(self) -> None:
        self.learned = self._counter(
            "ftrl_examples_learned",
            "Examples that the learner committed; by parts where the label is between 0 and 1.",
            "model",
            "label",
        )
        self.skipped = self._counter(
            "ftrl_examples_skipped",
            "Examples not applied because the state would not have stayed finite.",
            "model",
        )
        self.learner_active = self._written(
            "ftrl_learner_active", "1 where this process holds the model's lease.", "model"
        )
        self.learner_blocked = self._written(
            "ftrl_learner_blocked", "1 while the log holds an entry that cannot be read.", "model"
        )
        self.lag_seconds = self._written(
            "ftrl_learner_lag_seconds", "Age of the oldest example that waits to be learned, or 0.", "model"
        )
        self.lag_examples = self._written(
            "ftrl_learner_lag_examples", "Examples in the log that wait to be learned.", "model"
        )
        self.lag_bytes = self._written(
            "ftrl_learner_lag_bytes", "Size of the examples in the log that wait to be learned.", "model"
        )
        self.lag_entries = self._written(
            "ftrl_learner_lag_entries",
            "Log entries that wait to be learned, counted as if all were of the same size.",
            "model",
        )
        self.log_entries = self._written(
            "ftrl_log_entries", "Entries in the example log, learned and waiting.", "model"
        )
        self.event_age_seconds = self._written(
            "ftrl_event_age_seconds",
            "Age of the newest event in the last commit whose examples had an event_time.",
            "model",
        )

    def _declare_commits(self) -> None:
        self.commit_seconds = self._histogram(
            "ftrl_commit_duration_seconds", "One commit of the learner.", COMMIT_SECONDS, "model"
        )
        self.commit_slots = self._histogram(
            "ftrl_commit_slots", "Slots that one commit changed.", COMMIT_SLOTS, "model"
        )
        self.commit_examples = self._histogram(
            "ftrl_commit_examples", "Examples that one commit learned.", COMMIT_EXAMPLES, "model"
        )
        self.checkpoint_slots = self._counter(
            "ftrl_checkpoint_slots", "Slots written into the state behind the commits.", "model"
        )
        self.checkpoint_behind_seconds = self._written(
            "ftrl_checkpoint_behind_seconds",
            "Age of the oldest commit that is not written into the state yet, or 0.",
            "model",
        )

    def _declare_mirror(self) -> None:
        self.mirror_age_seconds = self._gauge(
            "ftrl_mirror_age_seconds",
            "Since the server last confirmed the mirror's state.",
            "model",
            mode=WORST_HIGH,
        )
        self.mirror_rounds = self._gauge(
            "ftrl_mirror_rounds", "Completed rounds t of the mirror's state.", "model", mode=WORST_LOW
        )
        self.mixed_names = self._gauge(
            "ftrl_mixed_names",
            "Undeclared feature names that came both as text and as a number: two features each.",
            "model",
            mode=WORST_HIGH,
        )
        self.unmet_names = self._gauge(
            "ftrl_unmet_names",
            "Names in a model's types, transforms or crosses that no example has had, once 1,000 came.",
            "model",
            mode=WORST_HIGH,
        )
        self.mirror_loads = self._counter(
            "ftrl_mirror_loads", "How often a mirror loaded the whole state.", "model"
        )

    def _declare_evaluation(self) -> None:
        self.online_auc = self._of_window("auc", "Area under the ROC curve of the predictions.")
        self.online_auc_error_bound = self._of_window(
            "auc_error_bound", "How far the exact AUC is from ftrl_online_auc at most."
        )
        self.online_log_loss = self._of_window("log_loss", "Mean log loss, in nats.")
        self.online_normalized_entropy = self._of_window(
            "normalized_entropy", "Log loss over the entropy of the window's own click rate."
        )
        self.online_calibration_ratio = self._of_window(
            "calibration_ratio", "Predicted clicks over clicks; 1 is right."
        )
        self.online_calibration_tolerance = self._of_window(
            "calibration_tolerance", "How far from 1 ftrl_online_calibration_ratio may be by chance."
        )
        self.online_mean_prediction = self._of_window("mean_prediction_ratio", "Mean predicted probability.")
        self.online_base_rate = self._of_window("base_rate_ratio", "Share of clicks.")
        self.online_examples = self._of_window("examples", "Examples of the window, whatever they weigh.")
        self.online_clicks = self._of_window(
            "clicks", "Clicks of the window (the sum of the labels), whatever they weigh."
        )
        self.online_intervals = {
            figure: self._written(
                f"ftrl_online_{name}_interval",
                f"Bounds, low and high, of the 95 % interval of ftrl_online_{name}.",
                *(*OF_WINDOW, "bound"),
            )
            for figure, name in INTERVALS.items()
        }
        self.online_wrong = self._written(
            "ftrl_online_wrong",
            "1 where the check finds the predictions wrong, beyond what chance explains.",
            *("model", "check"),
        )
        self.reliability_predicted = self._of_bucket(
            "predicted_ratio", "Mean of the predictions in the bucket."
        )
        self.reliability_observed = self._of_bucket("observed_ratio", "Share of clicks among them.")
        self.reliability_examples = self._of_bucket("examples", "Their number, by weight.")
        self.slice_auc = self._of_slice("auc", "Of the slice: area under the ROC curve.")
        self.slice_log_loss = self._of_slice("log_loss", "Of the slice: mean log loss, in nats.")
        self.slice_calibration_ratio = self._of_slice(
            "calibration_ratio", "Of the slice: predicted clicks over clicks."
        )
        self.slice_examples = self._of_slice("examples", "Examples of the slice, whatever they weigh.")
        self.slice_clicks = self._of_slice(
            "clicks", "Clicks of the slice (the sum of the labels), whatever they weigh."
        )

    def _declare_comparison(self) -> None:
        of_pair = ("model", "champion")
        self.challenger_pairs = self._written(
            "ftrl_challenger_paired_examples",
            "Examples that both a challenger (model) and its champion predicted before they learned them.",
            *of_pair,
        )
        self.challenger_unpaired = self._written(
            "ftrl_challenger_unpaired_examples", "Examples that only one of them predicted.", *of_pair
        )
        self.challenger_log_loss = self._written(
            "ftrl_challenger_log_loss",
            "Mean log loss of the paired examples, in nats, of the champion and of the challenger.",
            *(*of_pair, "of"),
        )
        self.challenger_difference = self._written(
            "ftrl_challenger_log_loss_difference",
            "Mean log loss of the champion minus that of the challenger: above 0 the challenger is better.",
            *of_pair,
        )
        self.challenger_difference_bound = self._written(
            "ftrl_challenger_log_loss_difference_bound",
            "Bounds of it that hold at every time together with 95 % probability.",
            *(*of_pair, "bound"),
        )
        self.challenger_calibration = self._written(
            "ftrl_challenger_calibration_ratio",
            "Predicted clicks over clicks of the paired examples, of the champion and of the challenger.",
            *(*of_pair, "of"),
        )
        self.challenger_verdict = self._written(
            "ftrl_challenger_verdict",
            "1 once the bounds are above 0: the challenger is better; -1 once they are below; else 0.",
            *of_pair,
        )

    def _declare_model(self) -> None:
        self.model_info = self._of_model(
            "info", "Always 1; the labels say what is learned.", "hash_fingerprint", "family", "bits"
        )
        self.rounds = self._of_model("rounds", "Completed rounds t of the learner's state.")
        self.features_seen = self._of_model("features_seen", "Features present in the state.")
        self.nonzero_features = self._of_model("nonzero_features", "Features whose weight is not 0.")
        self.density = self._of_model("density_ratio", "Features with a weight other than 0 over those seen.")
        self.slot_load = self._of_model("slot_load_ratio", "Slots in use over slots.")
        self.expected_collisions = self._of_model(
            "expected_collision_ratio", "Share of features expected to share a slot with another."
        )
        self.weight_norm = self._of_model("weight_norm", "Euclidean norm of the weights.")
        self.gradient_norm = self._of_model(
            "gradient_norm", "Square root of the sum of all squared gradients of all rounds."
        )
        self.expert_weight = self._of_model(
            "expert_weight_ratio", "Weight of each expert of a mixture, by its place in hyper.", "expert"
        )
        self.nonfinite_slots = self._of_model("nonfinite_slots", "Slots that are not finite: always 0.")

    def _declare_snapshots(self) -> None:
        self.snapshot_success = self._written(
            "ftrl_snapshot_success_timestamp_seconds", "When the newest snapshot was written.", "model"
        )
        self.snapshot_bytes = self._written(
            "ftrl_snapshot_bytes", "Size of the newest snapshot's file.", "model"
        )
        self.snapshot_slots = self._written("ftrl_snapshot_slots", "Slots in the newest snapshot.", "model")
        self.snapshot_seconds = self._histogram(
            "ftrl_snapshot_duration_seconds", "One snapshot, copied and written.", SNAPSHOT_SECONDS, "model"
        )
        self.snapshot_copy_seconds = self._histogram(
            "ftrl_snapshot_copy_duration_seconds", "Standstill of the learner.", COMMIT_SECONDS, "model"
        )
        self.snapshot_failures = self._counter(
            "ftrl_snapshot_failures", "Snapshots that could not be written.", "model", "reason"
        )
        self.archive_failures = self._counter(
            "ftrl_log_archive_failures", "Attempts to archive the log that failed.", "model"
        )
        self.challenger_restarts = self._counter(
            "ftrl_challenger_restarts",
            "Times that a challenger had to start again: its place in the log was trimmed (cut_off) or lost.",
            "model",
            "reason",
        )
        self.restores = self._counter(
            "ftrl_restores", "Times that the whole state was replaced under the learner.", "model"
        )
        self.rollbacks = self._counter(
            "ftrl_rollbacks", "Restores that the learner made because the model had become worse.", "model"
        )
        self.promotions = self._counter(
            "ftrl_promotions", "Times that a challenger took the place of the model.", "model"
        )

    def _declare_redis(self) -> None:
        self.redis_up = self._gauge("ftrl_redis_up", "1 while Redis answers.", mode=WORST_LOW)
        self.redis_memory_used_bytes = self._gauge("ftrl_redis_memory_used_bytes", "Memory that Redis uses.")
        self.redis_memory_limit_bytes = self._gauge(
            "ftrl_redis_memory_limit_bytes", "Its maxmemory; 0 is none."
        )
        self.redis_policy_ok = self._gauge(
            "ftrl_redis_policy_ok", "0 where its maxmemory-policy may evict a model.", mode=WORST_LOW
        )
        self.redis_persists = self._gauge(
            "ftrl_redis_persists", "0 where a restart of it loses every model.", mode=WORST_LOW
        )
        self.redis_persistence_ok = self._gauge(
            "ftrl_redis_persistence_ok", "0 while its last write to disk failed.", mode=WORST_LOW
        )
        for unless_found_otherwise in (
            self.redis_up,
            self.redis_policy_ok,
            self.redis_persists,
            self.redis_persistence_ok,
        ):  # a process that has just started is no sign of the contrary
            unless_found_otherwise.set(1)
        self.redis_refused = self._counter(
            "ftrl_redis_connections_refused", "Connections to Redis that a limit (maxclients, files) refused."
        )
        self.redis_shedding = self._gauge(
            "ftrl_redis_shedding", "1 while new examples are refused for want of memory.", mode=WORST_HIGH
        )

    def _declare_process(self) -> None:
        self.ready = self._gauge(
            "ftrl_ready", "1 where /readyz answers 200 for the purpose.", "purpose", mode=WORST_LOW
        )
        self.build_info = self._gauge(
            "ftrl_build_info", "Always 1; the labels say what runs.", "version", "python", mode=WORST_HIGH
        )
        self.gc_collections = self._counter(
            "python_gc_collections", "Runs of the garbage collector.", "generation"
        )
        self.gc_collected = self._counter(
            "python_gc_objects_collected", "Objects that it freed.", "generation"
        )

    def _of_window(self, name: str, help_text: str) -> WrittenGauge:
        return self._written(f"ftrl_online_{name}", help_text, *OF_WINDOW)

    def _of_slice(self, name: str, help_text: str) -> WrittenGauge:
        return self._written(f"ftrl_slice_{name}", help_text, *OF_SLICE)

    def _of_bucket(self, name: str, help_text: str) -> WrittenGauge:
        return self._written(f"ftrl_online_reliability_{name}", help_text, *OF_BUCKET)

    def _of_model(self, name: str, help_text: str, *labels: str) -> WrittenGauge:
        return self._written(f"ftrl_model_{name}", help_text, "model", *labels)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return self._noted(Counter(name, help_text, labels, registry=self.registry), labels)

    def _gauge(self, name: str, help_text: str, *labels: str, mode: Mode = NEWEST) -> Gauge:
        gauge = Gauge(name, help_text, labels, registry=self.registry, multiprocess_mode=mode)
        return self._noted(gauge, labels)

    def _written(self, name: str, help_text: str, *labels: str) -> WrittenGauge:
        return self._noted(WrittenGauge(name, help_text, *labels), labels)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        histogram = Histogram(name, help_text, labels, buckets=buckets, registry=self.registry)
        return self._noted(histogram, labels)

    def _noted(self, instrument: AnyInstrument, labels: tuple[str, ...]) -> AnyInstrument:
        self.declared.append(instrument)
        self._labels[instrument] = labels
        return instrument
