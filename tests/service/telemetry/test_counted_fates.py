"""Counts of logged predictions: the leader shows those of Redis, and no process counts them twice."""

from __future__ import annotations

from service.feedback.store import Swept
from service.telemetry.metrics import Metrics

MODEL = "clicks"


def swept(**counts: int) -> Swept:
    return Swept(False, 0, 0.0, {}, counts)


def counted(metrics: Metrics, fate: str) -> float | None:
    labels = {"model": MODEL, "fate": fate}
    return metrics.registry.get_sample_value("ftrl_feedback_predictions_total", labels)


def test_a_new_leader_counts_what_came_before() -> None:
    metrics = Metrics()
    metrics.pending_shown_elsewhere(MODEL, swept(logged=3))
    assert counted(metrics, "logged") is None, "only the leader shows it"
    metrics.show_pending(MODEL, swept(logged=5, shown=1), 1)
    assert (counted(metrics, "logged"), counted(metrics, "shown"), counted(metrics, "late")) == (5, 1, 0)


def test_counts_of_another_leader_are_not_counted_again() -> None:
    metrics = Metrics()
    metrics.show_pending(MODEL, swept(logged=5), 1)
    metrics.pending_shown_elsewhere(MODEL, swept(logged=9))
    metrics.show_pending(MODEL, swept(logged=10), 1)
    assert counted(metrics, "logged") == 6


def test_a_model_without_logged_predictions_has_no_series() -> None:
    metrics = Metrics()
    metrics.show_pending(MODEL, swept(), 1)
    assert counted(metrics, "logged") is None
