"""Prometheus's text format, of instruments whose names are plain: in half of the library's time.

With ten models the evaluation alone has thousands of series, and a scrape shares its processor with
predictions.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.utils import floatToGoString

from service.written_gauges import written_labels


class TextFormat:
    """Remembers the labels that it has written: they are the same in each scrape."""

    def __init__(self) -> None:
        self._labels: dict[tuple[tuple[str, str], ...], str] = {}

    def of(self, registry: CollectorRegistry) -> bytes:
        return "".join(self._lines(registry)).encode()

    def _lines(self, registry: CollectorRegistry) -> Iterator[str]:
        known = self._labels
        for metric in registry.collect():
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            yield f"# HELP {name} {metric.documentation}\n# TYPE {name} {metric.type}\n"
            for sample in metric.samples:
                key = tuple(sample.labels.items())
                labels = known.get(key)
                if labels is None:
                    labels = known[key] = written_labels(key)
                yield f"{sample.name}{labels} {floatToGoString(sample.value)}\n"  # type: ignore[no-untyped-call]
