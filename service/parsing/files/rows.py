"""One example of a file, before it is encoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from model_core.hashing.contract import Limits
from model_core.text.problems import Labels, Namespaces, TextOptions
from service.parsing.files.source import TextSource

Format = Literal["vw", "libsvm", "csv", "tsv", "jsonl"]
Source = str | Path | BinaryIO | TextSource


class Row(NamedTuple):
    """What an update request says of an example; `features` are as in its JSON."""

    line_number: int
    features: dict[str, Any]
    label: int
    weight: float = 1.0
    event_id: str | None = None
    event_time_ms: int | None = None


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file.

    labels: "zero_one" or "minus_plus"; None takes what is usual: -1 and 1 in vw and libsvm, 0 and 1 in
        tables. JSON lines have 0, 1, false or true.
    namespaces: of vw, "ignore" or "prefix".
    columns: the names of a table's columns; None takes the first line for them.
    label_column, weight_column: of a table; ignored_columns: no features.
    """

    labels: Labels | None = None
    namespaces: Namespaces = "ignore"
    columns: tuple[str, ...] | None = None
    label_column: str = "label"
    weight_column: str | None = None
    ignored_columns: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)

    def text_options(self, file_format: Format) -> TextOptions:
        """What of this concerns single lines."""
        usual: Labels = "zero_one" if file_format in ("csv", "tsv") else "minus_plus"
        return TextOptions(self.labels or usual, self.namespaces, self.limits)
