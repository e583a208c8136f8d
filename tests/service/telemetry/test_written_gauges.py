"""Written gauges have the text of the library's own."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from service.telemetry.exposition import WrittenGauge

VALUES = (0.0, 1.0, 0.1, -3.5, 1e-9, 1e21, 123456789.0, math.inf, True, 7)


def samples(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_the_text_equals_that_of_the_library() -> None:
    registry = CollectorRegistry()
    theirs = Gauge("ftrl_x", "What it is.", ("model", "value", "feature"), registry=registry)
    ours = WrittenGauge("ftrl_x", "What it is.", "model", "value", "feature")
    for number, value in enumerate(VALUES):
        labels = ("ads", f'a "quoted" \\ text\nof {number}', "é")
        theirs.labels(*labels).set(value)
        ours.set(value, *labels)
    assert ours.text() == generate_latest(registry).decode()


def test_a_series_that_is_set_again_has_its_last_value() -> None:
    gauge = WrittenGauge("ftrl_x", "What it is.", "model")
    gauge.set(1, "ads")
    gauge.set(2, "ads")
    assert samples(gauge.text()) == [Sample("ftrl_x", {"model": "ads"}, 2.0)]


def test_retain_removes_only_series_with_the_common_labels() -> None:
    gauge = WrittenGauge("ftrl_x", "What it is.", "model", "source", "bucket")
    for model, source in (("ads", "served"), ("ads", "progressive"), ("shop", "served")):
        for bucket in ("low", "high"):
            gauge.set(1, model, source, bucket)
    gauge.retain([("ads", "served", "low")], "ads", "served")
    gauge.retain((), "shop")
    assert [tuple(sample.labels.values()) for sample in samples(gauge.text())] == [
        ("low", "ads", "served"),
        ("low", "ads", "progressive"),
        ("high", "ads", "progressive"),
    ]


def test_an_empty_gauge_has_only_its_head() -> None:
    gauge = WrittenGauge("ftrl_x", "What it is.", "model")
    gauge.remove("ads")
    gauge.set(1, "ads")
    gauge.remove("ads")
    assert gauge.text() == "# HELP ftrl_x What it is.\n# TYPE ftrl_x gauge\n"
