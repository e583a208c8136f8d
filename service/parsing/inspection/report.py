"""The report of `ftrl inspect`: figures of the first rows, their columns or features, and a schema."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from model_core.hashing.contract import HashContract
from model_core.kernels.number_text import plain_number
from model_core.text.problems import LineError
from service.errors import CommandFailure
from service.parsing.files.reader import read_rows
from service.parsing.files.rows import Format, ReadOptions, Row
from service.parsing.files.schema import Schema
from service.parsing.files.source import STANDARD_INPUT, TextSource
from service.parsing.inspection.draft import Draft, draft_schema
from service.parsing.inspection.sample import sample_of_columns, sample_of_records, sample_of_text, sniffed
from service.parsing.inspection.sniff import Sniffed

_OF_ROWS: tuple[Format, ...] = ("vw", "libsvm", "jsonl")
_OF_COLUMNS: tuple[Format, ...] = ("parquet", "arrow")
_MOST_FREQUENT = 3
_MANY_BAD = 0.5


@dataclass(frozen=True)
class Found:
    """A column, or a feature of rows that have none. values: the number of different ones."""

    name: str
    kind: str
    values: int
    missing: int
    most_frequent: list[tuple[str, int]]
    reason: str = ""


@dataclass(frozen=True)
class Inspection:
    """rows: examples that were read, `complete` if these are all. times: the first and the last, in
    milliseconds since 1970. known: the name of the schema for a known log with these columns.
    """

    rows: int
    clicks: float
    bad_lines: int
    complete: bool
    columns: list[Found]
    schema: Schema
    known: str | None = None
    times: tuple[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "clicks": self.clicks,
            "bad_lines": self.bad_lines,
            "complete": self.complete,
            "times": self.times,
            "known": self.known,
            "columns": [asdict(column) for column in self.columns],
            "schema": self.schema.to_json(),
        }


def inspect_file(
    file: str, file_format: Format | None, options: ReadOptions, schema: Schema | None, max_rows: int
) -> Inspection:
    """Report on the first rows of a file, read by the schema if there is one.

    file_format: None: that of the text itself. Raises UnreadableFile, CommandFailure.
    """
    with TextSource(file) as source:
        if schema is not None and file_format is not None:
            return _of_rows(source, file_format, options, schema, max_rows)
        if file_format in _OF_COLUMNS:
            return _of_draft(draft_schema(sample_of_columns(source, file_format, max_rows), options))
        found, lines = sniffed(source)
        seen = _seen(file_format, found)
        if seen is None:
            raise CommandFailure(f"{file}: the format is not clear from its first lines: give --format")
        if seen.file_format == "records":
            return _of_draft(draft_schema(sample_of_records(lines, max_rows), options))
        if seen.file_format not in _OF_ROWS:
            return _of_draft(draft_schema(sample_of_text(source, lines, seen, options, max_rows), options))
    return _with_labels(file, seen.file_format, options, max_rows)


def _seen(named: Format | None, found: Sniffed | None) -> Sniffed | None:
    """Return what was found, unless the name of the file, or a flag, says something else."""
    if named is None or (found is not None and (named, found.file_format) == ("jsonl", "records")):
        return found
    return found if found is not None and found.file_format == named else Sniffed(named)


def first_example(file: str, file_format: Format, options: ReadOptions, schema: Schema) -> Row:
    """The first row that can be read. Raises UnreadableFile, CommandFailure."""
    contract = HashContract.from_json(schema.hashing)
    with (
        TextSource(file) as source,
        contextlib.closing(read_rows(source, file_format, contract, options)) as rows,
    ):
        for row in rows:
            if isinstance(row, Row):
                return row
    raise CommandFailure(f"{file}: no row can be read")


def _of_draft(draft: Draft) -> Inspection:
    return Inspection(
        draft.sample.rows,
        plain_number(float(draft.labels.sum())),
        draft.sample.bad_lines,
        draft.sample.complete,
        [
            Found(
                column.name,
                verdict.kind,
                column.distinct,
                int(column.missing.sum()),
                column.most_frequent(_MOST_FREQUENT),
                verdict.reason,
            )
            for column, verdict in draft.columns
        ],
        draft.schema,
        draft.known,
        draft.times,
    )


def _with_labels(file: str, file_format: Format, options: ReadOptions, max_rows: int) -> Inspection:
    """Report on rows of text whose labels are -1 and 1 or, if most of them are bad lines so, 0 and 1."""
    if file == STANDARD_INPUT:
        raise CommandFailure(
            "the labels are found by reading the text more than once, which standard input does not allow:"
            " give a file, or a schema"
        )
    results: list[Inspection] = []
    for labels in (options.labels,) if options.labels or file_format == "jsonl" else (None, "zero_one"):
        document: dict[str, Any] = {"format": file_format} | ({"labels": labels} if labels else {})
        schema = Schema.model_validate(document)
        with TextSource(file) as source:
            asked = schema.options(options.limits)
            results.append(_of_rows(source, file_format, asked, schema, max_rows))
    return min(results, key=lambda one: one.bad_lines)


def _of_rows(
    source: TextSource, file_format: Format, options: ReadOptions, schema: Schema, max_rows: int
) -> Inspection:
    contract = HashContract.from_json(schema.hashing)
    values: dict[str, Counter[str]] = {}
    kinds: dict[str, str] = {}
    rows_with: Counter[str] = Counter()
    rows = bad_lines = 0
    clicks: float = 0
    times: list[int] = []
    reader = read_rows(source, file_format, contract, options)
    with contextlib.closing(reader):
        for item in islice(reader, max_rows):
            if isinstance(item, LineError):
                bad_lines += item.lines
                continue
            rows += 1
            clicks += item.label
            if item.event_time_ms is not None:
                times = [min([*times[:1], item.event_time_ms]), max([*times[1:], item.event_time_ms])]
            pairs = list(_pairs(item))
            rows_with.update({name for name, _ in pairs})
            for name, value in pairs:
                kinds[name] = _kind(value) if kinds.get(name) in (None, _kind(value)) else "mixed"
                values.setdefault(name, Counter())[str(value)] += 1
        complete = next(reader, None) is None
    columns = [
        Found(name, kinds[name], len(values[name]), rows - count, values[name].most_common(_MOST_FREQUENT))
        for name, count in rows_with.most_common()
    ]
    span = (times[0], times[1]) if times else None
    return Inspection(rows, clicks, bad_lines, complete, columns, schema, None, span)


def _pairs(row: Row) -> Iterator[tuple[str, Any]]:
    pairs = row.features if isinstance(row.features, list) else row.features.items()
    for name, value in pairs:
        for one in value if isinstance(value, list) else (value,):
            if one is not None:
                yield name, one


def _kind(value: object) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else "text"
