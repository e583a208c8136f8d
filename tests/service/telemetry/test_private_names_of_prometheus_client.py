"""What `service/telemetry` relies on in prometheus_client beyond its documented interface.

The upper bound in pyproject.toml is raised once this passes with the newer version.
"""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, values
from prometheus_client.utils import floatToGoString


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1.0"), (0.25, "0.25"), (float("inf"), "+Inf"), (float("nan"), "NaN")]
)
def test_numbers_are_written_as_go_writes_them(value: float, text: str) -> None:
    assert floatToGoString(value) == text


def test_collected_metrics_have_what_the_exposition_writes() -> None:
    registry = CollectorRegistry()
    Counter("clicks", "Clicks.", ["model"], registry=registry).labels("default").inc()
    (metric,) = registry.collect()
    assert (metric.name, metric.type, metric.documentation) == ("clicks", "counter", "Clicks.")
    sample = metric.samples[0]
    assert (sample.name, sample.labels, sample.value) == ("clicks_total", {"model": "default"}, 1.0)


def test_the_class_of_values_is_chosen_in_the_module_values() -> None:
    assert callable(values.ValueClass)
