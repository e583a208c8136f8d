"""Rates and latencies from instruments, and from those of several processes together."""

from __future__ import annotations

import pytest

from service.api.dashboard.traffic import Rates, Totals, Traffic, latency_between, quantile, read_totals
from service.telemetry.metrics import Metrics


def counted() -> Metrics:
    metrics = Metrics()
    metrics.predicted("ads", 7, 0.001)
    for seconds, status in ((0.0004, 200), (0.004, 200), (0.3, 503)):
        metrics.observe_request("/models/{name}/predict", "POST", status, seconds)
    metrics.observe_request("/update", "POST", 202, 0.03)
    for route in ("/metrics", "/", "/models/{name}/live", "/dashboard/{file:path}"):
        metrics.observe_request(route, "GET", 200, 0.03)
    return metrics


def test_what_was_counted_is_read_and_probes_are_left_out() -> None:
    totals = read_totals(counted())
    assert totals.predictions == {"ads": 7}
    assert (totals.of_models["ads"][0.0005], totals.of_models["ads"][0.001]) == (0, 1)
    assert (totals.requests, totals.failures) == (4, 1)
    assert totals.durations["predict"][0.0005] == 1
    assert totals.durations["predict"][float("inf")] == 2, "without the one that failed"
    assert totals.durations["update"][0.05] == 1


def test_rates_cover_the_last_seconds_and_latencies_the_last_minute() -> None:
    traffic = Traffic()
    for second in range(101):
        predictions = {"ads": 10.0 * second + 90.0 * max(0, second - 95)}
        buckets = {0.001: float(second), 0.01: 2.0 * second, float("inf"): 2.0 * second}
        traffic.add(
            Totals(second, predictions, 3.0 * second, 0.3 * second, {"predict": buckets}, {"ads": buckets})
        )
    rates = traffic.of("ads")
    assert rates.predictions == 100
    assert rates.requests == 3
    assert rates.failures == pytest.approx(0.1)
    assert (rates.failed, rates.failing) == (18, True)
    assert rates.of_model == rates.predict
    assert traffic.of("other").of_model is None
    assert rates.predict is not None
    assert rates.predict.requests == 120
    assert rates.predict.p50 == pytest.approx(0.001)
    assert rates.predict.p99 == pytest.approx(0.00982)
    assert rates.update is None
    assert traffic.of("unheard of").predictions == 0


def test_before_the_second_look_nothing_is_known() -> None:
    traffic = Traffic()
    assert traffic.of("ads") == Rates()
    traffic.add(Totals(1.0))
    assert traffic.of("ads") == Rates()
    traffic.add(Totals(9.0))
    assert traffic.of("ads") == Rates(predictions=0, requests=0)


def test_what_is_slower_than_every_bucket_is_as_slow_as_the_last() -> None:
    assert quantile(0.99, [0.1, 5.0, float("inf")], [0.0, 1.0, 100.0]) == 5.0


def test_no_request_has_no_latency() -> None:
    assert latency_between({}, {}) is None
    assert latency_between({1.0: 4.0}, {1.0: 4.0}) is None
