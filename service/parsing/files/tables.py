"""Reads CSV (RFC 4180) and TSV (no quotes) as rows of features.

A value is text, so that `7` is the category `name=7`. In a column that the contract declares a number, it is
a number; in one that it declares a category, `7.0` is the category `name=7`, as in every other format. An
empty value is missing, and so are `\\N` and the text of `ReadOptions.null`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from model_core.errors import InvalidInput
from model_core.hashing.contract import HashContract, check_name
from model_core.hashing.feature_text import decimal_text
from model_core.text.lines import read_label, read_number, read_weight
from model_core.text.problems import NOT_UTF8, LineError, LineProblem, TextOptions, explain
from service.parsing.files.records import Record, Records
from service.parsing.files.rows import Format, ReadOptions, Row
from service.parsing.files.source import TextSource, UnreadableFile

_RANGE = re.compile(r"(.*?)(\d+)-(.*?)(\d+)")
_MAX_COLUMNS = 100_000
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,69})(?:\.[0-9]+)?(?:[eE][+-][0-9]{1,2})?")
_BOOLEANS = {word: word.lower() for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
NULL = "\\N"
"""The marks that Hive, MySQL and PostgreSQL write for a missing value."""

log = logging.getLogger(__name__)


def parse_columns(text: str) -> tuple[str, ...]:
    """Split names separated by commas; `I1-I13` stands for I1, I2, ... I13. Raises InvalidInput."""
    names: list[str] = []
    for name in text.split(","):
        match = _RANGE.fullmatch(name)
        if match and match[1] == match[3] and int(match[2]) <= int(match[4]) <= _MAX_COLUMNS:
            names.extend(f"{match[1]}{i}" for i in range(int(match[2]), int(match[4]) + 1))
        else:
            names.append(name)
    for name in names:
        check_name(name, ("columns", name))
    if (repeated := _repeated(names)) is not None:
        raise InvalidInput(("columns", repeated), "is there twice: each column needs a name of its own")
    return tuple(names)


def _repeated(names: Sequence[str]) -> str | None:
    """The first name that was there before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def table_rows(
    source: TextSource, file_format: Format, contract: HashContract, options: ReadOptions
) -> Iterator[Row | LineError]:
    """Yield a row, or the error, for each record. Raises UnreadableFile if the columns cannot be used."""
    records = Records(source, quoted=file_format == "csv")
    names: Sequence[str] | None = options.columns
    if names is None:
        header = next(iter(records), None)
        if header is None:
            return
        names = _names_of(source.name, header)
        if file_format == "csv" and len(names) > 1 and all(name[:1] == " " for name in names[1:]):
            names = _names_of(source.name, records.again_without_spaces())
        names = [name.strip(" ") for name in names]
    table = _Table(source.name, names, contract, options, options.text_options(file_format))
    for record in records:
        if isinstance(record.values, str):
            yield LineError(record.line, record.values)
            continue
        row = table.row(record, record.values)
        if row is None:
            records.resume_after_first_line(record)
            yield LineError(record.line, f"{len(record.values)} values for {len(names)} columns")
        else:
            yield row


def _names_of(source: str, header: Record) -> list[str]:
    """Return the names in the first line. Raises UnreadableFile."""
    if isinstance(header.values, str):
        raise UnreadableFile(f"{source}: line {header.line}: {header.values}")
    if not header.is_utf8:
        raise UnreadableFile(f"{source}: line {header.line}: {explain(NOT_UTF8, '', TextOptions())}")
    return header.values


class _Table:
    """The columns of a table: label, weight, features, and ignored or nameless ones."""

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
        no_features = dict.fromkeys(options.ignored_columns, "--ignored-columns")
        no_features[options.label_column] = "--label-column"
        if options.weight_column is not None:
            no_features[options.weight_column] = "--weight-column"
        _check_columns(source, names, no_features)
        self._label = positions[options.label_column]
        self._weight = None if options.weight_column is None else positions[options.weight_column]
        self._names = [None if name in no_features else name for name in names]
        self._numbers = [name for name in self._names if name and contract.types.get(name) == "number"]
        self._categories = [name for name in self._names if name and contract.types.get(name) == "category"]
        self._missing = frozenset({"", NULL, options.null or ""})
        self._keep_missing = contract.missing == "indicator"

    def row(self, record: Record, values: list[str]) -> Row | LineError | None:
        """Return the row, or what is wrong with it; None if it has too few or too many values."""
        number = record.line
        if len(values) != self._width:
            return None
        try:
            if not record.is_utf8:
                raise LineProblem(NOT_UTF8)
            label = self._read_label(values[self._label])
            weight = 1.0 if self._weight is None else read_weight(values[self._weight], self._options)
            return Row(number, self._features(values), label, weight)
        except LineProblem as problem:
            return LineError(number, explain(problem.code, problem.word, self._options), record.lines)

    def _read_label(self, text: str) -> int:
        """Return 0 or 1, also for true and false, as pandas or as JSON writes them."""
        if text in _BOOLEANS:
            return int(_BOOLEANS[text] == "true")
        return read_label(text, self._options)

    def _features(self, record: list[str]) -> dict[str, Any]:
        missing = self._missing
        features: dict[str, Any] = {
            name: value
            for name, value in zip(self._names, record, strict=True)
            if name and value not in missing
        }
        for name in self._numbers:
            if name in features:
                features[name] = read_number(features[name])
        for name in self._categories:
            if name in features:
                features[name] = _category(features[name])
        if self._keep_missing:
            features.update({name: None for name in self._names if name and name not in features})
        return features


def _category(text: str) -> str:
    """Return the category of a value in a declared column: that of a number or a boolean is as in JSON.

    A number with leading zeros, a plus or an exponent without a sign (hashes such as 12e34567 look like that)
    is text as it stands.
    """
    if _JSON_NUMBER.fullmatch(text):
        return decimal_text(read_number(text), ())
    return _BOOLEANS.get(text, text)


def _check_columns(source: str, names: Sequence[str], no_features: Mapping[str, str]) -> None:
    """Raises UnreadableFile. `no_features`: the flag that gives the name of each column without a feature."""
    named = [name for name in names if name]
    if (repeated := _repeated(named)) is not None:
        raise UnreadableFile(
            f"{source}: two columns are called {repeated!r}: rename one, or give the names with --columns if"
            " the first line is no header"
        )
    for name, flag in sorted(no_features.items()):
        if name not in names:
            raise UnreadableFile(
                f"{source}: no column {name!r} among {', '.join(named)}: give that of the file with {flag}"
            )
    for name in named:
        if name not in no_features:
            try:
                check_name(name, ("columns", name))
            except InvalidInput as invalid:
                raise UnreadableFile(f"{source}: {invalid}") from None
    nameless = [str(i) for i, name in enumerate(names, 1) if not name]
    if nameless:
        log.warning(
            "%s: column %s has no name in the first line and is left out", source, ", ".join(nameless)
        )
