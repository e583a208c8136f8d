"""Prometheus's text format for instruments with plain names, in half of the time that the library takes.

Why this is not `prometheus_client.generate_latest`: with ten models the evaluation alone has thousands of
series, and a scrape shares its processor with predictions. All code for the text format is in this module;
nothing else of the library is replaced. `floatToGoString` is a private function of prometheus_client, so its
version has an upper bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]


class TextFormat:
    """Writes registries; caches the text of labels, which are the same in each scrape."""

    def __init__(self) -> None:
        self._labels: dict[tuple[tuple[str, str], ...], str] = {}

    def forget_labels(self) -> None:
        """To be called when series were removed; the labels of others are written again."""
        self._labels.clear()

    def write(self, registry: CollectorRegistry) -> bytes:
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


class WrittenGauge:
    """A gauge whose lines are written when it is set, so that a scrape only joins them.

    `labels`: their names, that of the model first.
    """

    type = "gauge"

    def __init__(self, name: str, documentation: str, *labels: str) -> None:
        self.name = name
        self.documentation = documentation
        self.labels = labels
        self._head = f"# HELP {name} {documentation}\n# TYPE {name} gauge\n"
        self._series: dict[Labels, str] = {}  # the name and the labels of each as they are written
        self._lines: dict[str, dict[Labels, str]] = {}  # by model

    def set(self, value: float, *labels: str) -> None:
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = self.name + written_labels(zip(self.labels, labels, strict=True))
        line = f"{series} {floatToGoString(value)}\n"  # type: ignore[no-untyped-call]
        self._lines.setdefault(labels[0], {})[labels] = line

    def remove(self, *labels: str) -> None:
        """Remove a series, if it was set."""
        lines = self._lines.get(labels[0], {})
        lines.pop(labels, None)
        if not lines:
            self._lines.pop(labels[0], None)
        self._series.pop(labels, None)

    def retain(self, wanted: Collection[Labels], *common: str) -> None:
        """Remove all series whose labels begin with `common`, except those wanted."""
        for labels in list(self._lines.get(common[0], ())):
            if labels[: len(common)] == common and labels not in wanted:
                self.remove(*labels)

    def text(self) -> str:
        """Return all lines. Thread-safe, as each copy is made in one step."""
        return self._head + "".join(["".join(list(lines.values())) for lines in list(self._lines.values())])


def written_labels(labels: Iterable[tuple[str, str]]) -> str:
    """Return labels in the text format, sorted by name."""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels))
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
