"""An example of a file before it is encoded, and the options for reading it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from model_core.hashing.contract import Limits
from model_core.hashing.encoder import Features
from model_core.text.problems import Labels, Namespaces, TextOptions
from service.parsing.files.source import InputFiles, TextSource

Format = Literal["vw", "libsvm", "csv", "tsv", "jsonl"]
Source = str | Path | BinaryIO | TextSource | InputFiles


class Row(NamedTuple):
    """An example as in an update request; `features` are those of its JSON."""

    line_number: int
    features: Features
    label: int
    weight: float = 1.0
    event_id: str | None = None
    event_time_ms: int | None = None


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file.

    labels: "zero_one" or "minus_plus"; None takes the default of the format: -1 and 1 in vw and libsvm, 0 and
        1 in tables. JSON lines have 0, 1, false or true.
    namespaces: of vw, "ignore" or "prefix".
    columns: the names of a table's columns; None reads them from the first line.
    label_column, weight_column: of a table. ignored_columns: columns that are no features.
    null: a text that stands for a missing value in a table, besides nothing and `\\N`.
    """

    labels: Labels | None = None
    namespaces: Namespaces = "ignore"
    columns: tuple[str, ...] | None = None
    label_column: str = "label"
    weight_column: str | None = None
    ignored_columns: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    null: str | None = None

    def text_options(self, file_format: Format) -> TextOptions:
        """Return the options for single lines."""
        usual: Labels = "zero_one" if file_format in ("csv", "tsv") else "minus_plus"
        return TextOptions(self.labels or usual, self.namespaces, self.limits)
