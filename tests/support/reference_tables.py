"""The tables of docs/operations.md that follow from the code.

`python -m tests.support.reference_tables` writes them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pydantic import ByteSize

from service.cli.flags import variable_name
from service.settings import Settings, topic_of
from service.telemetry.exposition import WrittenGauge
from service.telemetry.metrics import Metrics
from tests.support.shared_data import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "operations.md"

Row = tuple[str, ...]


def settings_tables() -> str:
    """One for each topic of `ftrl serve --help`, which has the same."""
    rows: dict[str, list[Row]] = {}
    for name, field in Settings.model_fields.items():
        row = (f"`{variable_name(name)}`", _default(field.default), field.description or "")
        rows.setdefault(topic_of(name), []).append(row)
    return "\n".join(_table((topic, "default", ""), of_topic) for topic, of_topic in rows.items())


def metrics_table() -> str:
    return _table(("name", "type", "labels", ""), _metrics())


def _metrics() -> Iterator[Row]:
    for instrument in Metrics().declared:
        if isinstance(instrument, WrittenGauge):
            yield f"`{instrument.name}`", "gauge", ", ".join(instrument.labels), instrument.documentation
            continue
        for metric in instrument.describe():
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            yield f"`{name}`", metric.type, ", ".join(instrument._labelnames), metric.documentation


def _default(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, ByteSize):
        return value.human_readable(decimal=False).replace(".0", "") if value else "0"
    return f"{value:.12g}" if isinstance(value, int | float) else f"`{value}`"


def _table(header: Row, rows: Iterable[Row]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def with_tables(text: str) -> str:
    """The document with what stands between its markers replaced."""
    for name, tables in (("settings", settings_tables()), ("metrics", metrics_table())):
        marked = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- end -->)", re.DOTALL)
        text, found = marked.subn(lambda m, tables=tables: f"{m[1]}{tables}{m[2]}", text)  # type: ignore[misc]
        assert found == 1, name
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text()))
