"""Prometheus's text format for instruments with plain names, written in half of the library's time.

Why this is not `prometheus_client.generate_latest`: with ten models the evaluation alone has thousands of
series, and a scrape shares its processor with predictions. All that knows the text format is in this module;
nothing else of the library is replaced. `floatToGoString` is a private function of prometheus_client, so that
has an upper bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.utils import floatToGoString


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


Labels = tuple[str, ...]


class WrittenGauge:
    """`labels`: their names, that of the model first."""

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
        """Also what was never set."""
        self._lines.get(labels[0], {}).pop(labels, None)
        self._series.pop(labels, None)

    def keep(self, wanted: Collection[Labels], *common: str) -> None:
        """Removes all series but those wanted, of the ones whose labels begin with `common`."""
        for labels in list(self._lines.get(common[0], ())):
            if labels[: len(common)] == common and labels not in wanted:
                self.remove(*labels)

    def text(self) -> str:
        """From any thread: the copies are made in one step each."""
        return self._head + "".join(["".join(list(lines.values())) for lines in list(self._lines.values())])


def written_labels(labels: Iterable[tuple[str, str]]) -> str:
    """As Prometheus reads them, in the order of their names."""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels))
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
