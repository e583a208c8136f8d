"""Reads CSV (RFC 4180) and TSV (no quotes) as rows of features.

A value is text, so that `7` is the category `name=7`; in a column that the contract declares a number, it is
a number. An empty value is missing.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any

from model_core.errors import InvalidInput
from model_core.hashing.contract import HashContract, check_name
from model_core.text.lines import read_label, read_number, read_weight
from model_core.text.problems import LineError, LineProblem, TextOptions, explain
from service.parsing.files.rows import Format, ReadOptions, Row
from service.parsing.files.source import TextSource, UnreadableFile

_RANGE = re.compile(r"(.*?)(\d+)-(.*?)(\d+)")
_MOST_COLUMNS = 100_000


def parse_columns(text: str) -> tuple[str, ...]:
    """Split names separated by commas; `I1-I13` stands for I1, I2, ... I13. Raises InvalidInput."""
    names: list[str] = []
    for name in text.split(","):
        match = _RANGE.fullmatch(name)
        if match and match[1] == match[3] and int(match[2]) <= int(match[4]) <= _MOST_COLUMNS:
            names.extend(f"{match[1]}{i}" for i in range(int(match[2]), int(match[4]) + 1))
        else:
            names.append(name)
    for name in names:
        check_name(name, ("columns", name))
    return tuple(names)


def table_rows(
    source: TextSource, file_format: Format, contract: HashContract, options: ReadOptions
) -> Iterator[Row | LineError]:
    """Yield a row, or the error, for each record. Raises UnreadableFile if the columns cannot be used."""
    records = _records(source, file_format)
    names: Sequence[str] | None = options.columns
    if names is None:
        header = next(records, None)
        if header is None:
            return
        number, names_or_why = header
        if isinstance(names_or_why, str):
            raise UnreadableFile(f"{source.name}: line {number}: {names_or_why}")
        names = names_or_why
    table = _Table(source.name, names, contract, options, options.text_options(file_format))
    for number, record in records:
        yield LineError(number, record) if isinstance(record, str) else table.row(number, record)


def _records(source: TextSource, file_format: Format) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the number of the first line of each record, and its values or what is wrong with it."""
    lines = (line.decode("utf-8", "surrogateescape") for line in source.lines())
    if file_format == "tsv":
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(lines, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, str(error)
        else:
            if record:
                yield number, record


class _Table:
    """The columns of a table: label, weight, features and ignored ones."""

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        contract: HashContract,
        options: ReadOptions,
        lines: TextOptions,
    ) -> None:
        self._options = lines
        self._width = len(names)
        positions = {name: i for i, name in enumerate(names)}
        no_features = {options.label_column, *options.ignored_columns}
        if options.weight_column is not None:
            no_features.add(options.weight_column)
        _check_columns(source, names, no_features)
        self._label = positions[options.label_column]
        self._weight = None if options.weight_column is None else positions[options.weight_column]
        self._names = [None if name in no_features else name for name in names]
        self._numbers = [name for name in self._names if name and contract.types.get(name) == "number"]
        self._keep_missing = contract.missing == "indicator"

    def row(self, number: int, record: list[str]) -> Row | LineError:
        if len(record) != self._width:
            return LineError(number, f"{len(record)} values for {self._width} columns")
        try:
            label = read_label(record[self._label], self._options)
            weight = 1.0 if self._weight is None else read_weight(record[self._weight], self._options)
            return Row(number, self._features(record), label, weight)
        except LineProblem as problem:
            return LineError(number, explain(problem.code, problem.word, self._options))

    def _features(self, record: list[str]) -> dict[str, Any]:
        features: dict[str, Any] = {
            name: value for name, value in zip(self._names, record, strict=True) if value and name
        }
        for name in self._numbers:
            if name in features:
                features[name] = read_number(features[name])
        if self._keep_missing:
            features.update({name: None for name in self._names if name and name not in features})
        return features


def _check_columns(source: str, names: Sequence[str], no_features: set[str]) -> None:
    if len(set(names)) < len(names):
        repeated = next(name for i, name in enumerate(names) if name in names[:i])
        raise UnreadableFile(f"{source}: two columns are called {repeated!r}")
    for name in sorted(no_features):
        if name not in names:
            raise UnreadableFile(f"{source}: no column {name!r} among {', '.join(names)}")
    for name in names:
        if name not in no_features:
            try:
                check_name(name, ("columns", name))
            except InvalidInput as invalid:
                raise UnreadableFile(f"{source}: {invalid}") from None
