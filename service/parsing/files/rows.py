"""An example of a file before it is encoded, and the options for reading it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from model_core.hashing.contract import Limits
from model_core.hashing.encoder import Features
from model_core.text.problems import Labels, Namespaces, TextOptions
from service.parsing.files.source import InputFiles, TextSource

Format = Literal["vw", "libsvm", "csv", "tsv", "jsonl", "records", "parquet", "arrow"]
Source = str | Path | BinaryIO | TextSource | InputFiles
TimePart = Literal["hour", "weekday", "day_sin", "day_cos", "week_sin", "week_cos"]

_LABELS_ARE_MINUS_PLUS = ("vw", "libsvm")


class Row(NamedTuple):
    """An example as in an update request; `features` are those of its JSON.

    file: its name, if several are read.
    """

    line_number: int
    features: Features
    label: float
    weight: float = 1.0
    event_id: str | None = None
    event_time_ms: int | None = None
    file: str = ""

    def to_request(self) -> dict[str, Any]:
        """Return the body of the update request."""
        example: dict[str, Any] = {"features": self.features, "label": self.label}
        if self.weight != 1.0:
            example["weight"] = self.weight
        if self.event_id is not None:
            example["event_id"] = self.event_id
        if self.event_time_ms is not None:
            example["event_time"] = self.event_time_ms / 1000
        return example


@dataclass(frozen=True)
class TimeRule:
    """The rule by which the time of an example is read from a column of a table.

    form: "s", "ms", "us" or "ns" since 1970, "iso" for ISO 8601, or a pattern of strptime.
    zone: of times without an offset, and of the parts. parts: features that are made of the time.
    """

    column: str
    form: str = "iso"
    zone: str = "UTC"
    parts: tuple[TimePart, ...] = ()


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file; flags and schemas make them. All but the first three are of tables.

    labels: "zero_one" or "minus_plus"; None takes the default of the format: -1 and 1 in vw and libsvm, 0 and
        1, or any number between, in tables. JSON lines have such a number, false or true.
    namespaces: of vw, "ignore" or "prefix".
    columns: the names of the columns; None reads them from the first line. header: whether there is a first
        line with names; None: if `columns` is None.
    separator: between values; None: that of the format.
    label_column, weight_column, sample_rate_column, event_id_column, time: where these are, if anywhere.
    positive, negative: texts of labels, where `labels` does not name them; None: any other text.
    ignored_columns: columns that are no features. nulls: texts that stand for a missing value, besides
        nothing and `\\N`.
    json_columns: values that JSON writes as numbers are numbers, others texts. lists: columns with lists, and
        the separators of their items.
    mentioned: other columns that there have to be, and where a schema mentions them. optional: columns that
        need not be there.
    """

    labels: Labels | None = None
    namespaces: Namespaces = "ignore"
    limits: Limits = field(default_factory=Limits)
    columns: tuple[str, ...] | None = None
    header: bool | None = None
    separator: str | None = None
    label_column: str = "label"
    positive: frozenset[str] | None = None
    negative: frozenset[str] | None = None
    weight_column: str | None = None
    sample_rate_column: str | None = None
    event_id_column: str | None = None
    time: TimeRule | None = None
    ignored_columns: frozenset[str] = frozenset()
    nulls: frozenset[str] = frozenset()
    json_columns: frozenset[str] = frozenset()
    lists: Mapping[str, str] = field(default_factory=dict)
    mentioned: Mapping[str, str] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()

    def text_options(self, file_format: Format) -> TextOptions:
        """Return the options for single lines."""
        usual: Labels = "minus_plus" if file_format in _LABELS_ARE_MINUS_PLUS else "zero_one"
        return TextOptions(self.labels or usual, self.namespaces, self.limits)
