"""Drafts the schema of a table from its first rows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from model_core.errors import InvalidInput
from model_core.hashing.contract import check_name
from service.errors import CommandFailure
from service.parsing.files.columns import nearest
from service.parsing.files.known_schemas import KNOWN_SCHEMAS
from service.parsing.files.rows import ReadOptions, TimeRule
from service.parsing.files.schema import Schema, schema_of
from service.parsing.files.times import CATEGORIES, TimeReader
from service.parsing.inspection.columns import (
    NULL_WORDS,
    UNIQUE,
    Column,
    Labels,
    Verdict,
    is_part_of_a_click,
    judge,
    label_values,
)
from service.parsing.inspection.sample import Sample

_NAMES_OF_LABELS = (
    *(
        "label",
        "click",
        "clicked",
        "is_click",
        "isclick",
        "clk",
        "is_clicked",
        "is_attributed",
        "target",
        "y",
    ),
    *("converted", "conversion", "is_conversion", "outcome", "event", "event_type", "action"),
)
_NAMES_OF_WEIGHTS = re.compile(r"(sample_?|importance_?)?weight", re.IGNORECASE)
_NAMES_OF_RATES = re.compile(r"(down)?sampl(e|ing)_?rate", re.IGNORECASE)
_TYPES = ("number", "category", "json")
_FEATURES = (*_TYPES, "list", "text")
_DROPPED = ("id", "leak", "empty", "unusable")
_RANGE_LENGTH = 3


Judged = Sequence[tuple[Column, Verdict]]


@dataclass(frozen=True)
class Draft:
    """A schema, and the columns of the sample with what they are.

    labels float64[r]: those of the rows. known: the name of the schema for a known log with these columns.
    times: the first and the last, in milliseconds since 1970.
    """

    sample: Sample
    schema: Schema
    columns: Judged
    labels: Labels
    known: str | None
    times: tuple[int, int] | None


def draft_schema(sample: Sample, options: ReadOptions) -> Draft:
    """Draft the schema of a table; `options` may give names, label, weight and null texts.

    Raises CommandFailure if there is no row, or nothing that can be the label.
    """
    if not sample.rows:
        raise CommandFailure("there is no row")
    named = [name for name in sample.names if name]
    if len(set(named)) < len(named):
        repeated = next(name for name in named if named.count(name) > 1)
        raise CommandFailure(f"two columns are called {repeated!r}: give other names with --columns")
    known = _known(sample)
    nulls = options.nulls | _nulls(sample)
    columns = [
        Column.of(name, values, frozenset(nulls))
        for name, values in zip(sample.names, sample.columns, strict=True)
        if name
    ]
    label, (positive, negative) = _label(columns, options)
    values = (text in positive for text in label.texts) if positive else map(float, label.present)
    labels = np.fromiter(values, np.float64, sample.rows)
    judged = _one_time([(column, _verdict(column, label, labels, options)) for column in columns])
    document = {
        **_fields_of_format(sample, nulls),
        **_fields_of_label(label, positive, negative),
        **_fields_of_roles(sample, judged),
        **_fields_of_features(judged),
    }
    schema = schema_of(document, "the draft")
    return Draft(sample, schema, judged, labels, known, _time_span(schema, judged))


def _known(sample: Sample) -> str | None:
    """Name the known log that has these columns, and give those without a header their names."""
    for name, document in KNOWN_SCHEMAS.items():
        schema = schema_of(document, name)
        options = schema.options(ReadOptions().limits)
        if options.columns is not None:
            if (
                not sample.header
                and len(options.columns) == len(sample.names)
                and schema.format == sample.file_format
            ):
                sample.names = list(options.columns)
                return name
            continue
        needed = {*options.mentioned, *options.ignored_columns} - options.optional
        if needed <= set(sample.names) and sample.file_format == schema.format:
            return name
    return None


def _nulls(sample: Sample) -> frozenset[str]:
    words = set(NULL_WORDS)
    return frozenset(
        word for values in sample.columns for word in {v for v in values if isinstance(v, str)} & words
    )


def _label(columns: Sequence[Column], options: ReadOptions) -> tuple[Column, tuple[list[str], list[str]]]:
    """Find the label: the column that the options name, or else the one whose name and values fit best.

    With the texts of clicks and of others; without any if the labels are numbers from 0 to 1.
    """
    by_name = {column.name: column for column in columns}
    named = by_name.get(options.label_column)
    if named is None and options.label_column != ReadOptions().label_column:
        raise CommandFailure(
            f"no column {options.label_column!r}{nearest(options.label_column, tuple(by_name))}"
        )
    if options.positive is not None and named is not None:
        return named, (sorted(options.positive), sorted(options.negative or ()))
    lower = {column.name.lower(): column for column in columns}
    of_known_name = [lower[name] for name in _NAMES_OF_LABELS if name in lower]
    candidates = [] if named is None else [named]
    if options.label_column == ReadOptions().label_column:
        candidates += [*of_known_name, columns[0], columns[-1], *columns]
    for column in candidates:
        found = label_values(column)
        if found is not None and (column.distinct == 2 or column in of_known_name or column is named):
            return column, found
        if column in of_known_name and "click" in column.present:
            return column, (["click"], [])
        if (column is named or column in of_known_name) and is_part_of_a_click(column):
            return column, ([], [])
    raise CommandFailure(
        "no column looks like a label (0 and 1, -1 and 1, true and false, click and view): name it, or one of"
        " numbers from 0 to 1, with --label-column"
    )


def _verdict(column: Column, label: Column, labels: Labels, options: ReadOptions) -> Verdict:
    if column is label:
        return Verdict("label")
    if column.name == options.weight_column or _NAMES_OF_WEIGHTS.fullmatch(column.name):
        return Verdict("weight", "by its name")
    if _NAMES_OF_RATES.fullmatch(column.name):
        return Verdict("sample rate", "by its name")
    verdict = judge(column, labels)
    if verdict.kind in _FEATURES:
        try:
            check_name(column.name, ())
        except InvalidInput as wrong:
            return Verdict("unusable", f"{wrong}: give other names with --columns")
    return verdict


def _one_time(judged: Judged) -> Judged:
    """Keep one time, the one that most rows have; the others are known later, perhaps after the click."""
    times = [column for column, verdict in judged if verdict.kind == "time"]
    if not times:
        return judged
    main = min(times, key=lambda column: int(column.missing.sum()))
    return [
        (column, Verdict("leak", f"a time beside {main.name}: is it known before the click?"))
        if verdict.kind == "time" and column is not main
        else (column, verdict)
        for column, verdict in judged
    ]


def _fields_of_format(sample: Sample, nulls: frozenset[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"format": sample.file_format}
    if sample.separator is not None:
        fields["separator"] = sample.separator
    if not sample.header:
        fields["columns"] = ranges_of(sample.names)
    if nulls:
        fields["null"] = sorted(nulls)
    return fields


def _fields_of_label(label: Column, positive: list[str], negative: list[str]) -> dict[str, Any]:
    if not positive:
        return {"label": label.name}
    spelling = (positive[0].lower(), negative[0].lower() if negative else "")
    if spelling == ("1", "-1"):
        return {"labels": "minus_plus", "label": label.name}
    if spelling in (("1", "0"), ("true", "false")):
        return {"label": label.name}
    texts = {"positive": positive} | ({"negative": negative} if negative else {})
    return {"label": {"column": label.name, **texts}}


def _fields_of_roles(sample: Sample, judged: Judged) -> dict[str, Any]:
    """Weight, sample rate, event id, time, and the columns that are dropped."""
    kinds = {column.name: verdict.kind for column, verdict in judged}
    fields: dict[str, Any] = {
        field: name
        for field, kind in (("weight", "weight"), ("sample_rate", "sample rate"))
        for name in _first_of(kinds, kind)
    }
    event_id = next((column.name for column, verdict in judged if verdict.detail == UNIQUE), None)
    if event_id is not None:
        fields["event_id"] = event_id
    dropped = {name for name, kind in kinds.items() if kind in _DROPPED and name != event_id}
    for column, verdict in judged:
        if verdict.kind == "time":
            fields["time"] = {"column": column.name, "format": verdict.detail}
            if parts := _parts(column, verdict.detail, kinds.keys() - {column.name} - dropped):
                fields["time"]["parts"] = parts
    if dropped:
        fields["drop"] = ranges_of([name for name in sample.names if name in dropped])
    return fields


def _first_of(kinds: Mapping[str, str], kind: str) -> list[str]:
    return [name for name, one in kinds.items() if one == kind][:1]


def _fields_of_features(judged: Judged) -> dict[str, Any]:
    types: dict[str, str] = {c.name: v.kind for c, v in judged if v.kind in _TYPES}
    lists = {column.name: v.detail for column, v in judged if v.kind == "list" and v.detail}
    fields = {"types": _ranged(types), "lists": lists}
    return {name: value for name, value in fields.items() if value}


def _parts(column: Column, form: str, taken: Set[str]) -> list[str]:
    """The parts of the time in which the rows differ, and whose names are free."""
    reader = TimeReader(TimeRule(column.name, form, parts=CATEGORIES))
    of_rows = [reader.parts(time) for time in _milliseconds(reader, column)]
    return [part for part in CATEGORIES if part not in taken and len({one[part] for one in of_rows}) > 1]


def _milliseconds(reader: TimeReader, column: Column) -> list[int]:
    """The different times of a column, those left out that cannot be read."""
    found = []
    for value in {value for value, text in zip(column.values, column.texts, strict=True) if text}:
        with contextlib.suppress(InvalidInput):  # a bad line of its own
            found.append(reader.milliseconds(value))
    return found


def _time_span(schema: Schema, judged: Judged) -> tuple[int, int] | None:
    """The first and the last time in milliseconds since 1970."""
    time = schema.time
    if time is None:
        return None
    (column,) = (column for column, _ in judged if column.name == time.column)
    found = _milliseconds(TimeReader(TimeRule(time.column, time.format, time.zone)), column)
    return min(found), max(found)


def ranges_of(names: Sequence[str]) -> list[str]:
    """The names, with `I1-I13` for at least three in a row."""
    found: list[list[str]] = []
    for name in names:
        if found and _follows(found[-1][-1], name):
            found[-1].append(name)
        else:
            found.append([name])
    return [word for run in found for word in ([f"{run[0]}-{run[-1]}"] if len(run) >= _RANGE_LENGTH else run)]


def _ranged(by_name: Mapping[str, str]) -> dict[str, str]:
    """The same with a key for each range of names of one value."""
    kinds = list(dict.fromkeys(by_name.values()))
    return {
        word: kind
        for kind in kinds
        for word in ranges_of([name for name, value in by_name.items() if value == kind])
    }


def _follows(name: str, following: str) -> bool:
    one, other = re.fullmatch(r"(.*?)(0|[1-9][0-9]*)", name), re.fullmatch(r"(.*?)(0|[1-9][0-9]*)", following)
    return one is not None and other is not None and one[1] == other[1] and int(one[2]) + 1 == int(other[2])
