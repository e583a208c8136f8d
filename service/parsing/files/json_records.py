"""JSON lines of any objects, whose members are columns; `user.id` is the member `id` of the object `user`.

An object without a member has no value in that column. The columns that a schema mentions have to occur among
the first FIRST_LINES objects, before any of them becomes an example.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from model_core.hashing.contract import HashContract
from model_core.text.problems import NOT_UTF8, LineError, TextOptions, explain
from service.parsing.files.columns import RowBuilder, mentioned_columns, missing_column
from service.parsing.files.rows import Format, ReadOptions, Row
from service.parsing.files.source import TextSource, UnreadableFile

FIRST_LINES = 1000

_MAX_LAYOUTS = 1000

Record = tuple[int, dict[str, Any]]


def record_rows(
    source: TextSource, file_format: Format, contract: HashContract, options: ReadOptions
) -> Iterator[Row | LineError]:
    """Yield a row, or the error, for each line that is not blank. Raises UnreadableFile if a column that has
    to be there is in none of the first objects.
    """
    records = records_of(source.lines())
    first = list(islice(records, FIRST_LINES))
    _check_columns(source.name, (item for item in first if not isinstance(item, LineError)), options)
    rows = RecordRows(source.name, contract, options, options.text_options(file_format))
    for item in chain(first, records):
        yield item if isinstance(item, LineError) else rows.row(item)


class RecordRows:
    """Makes rows of objects; for each list of names that they have, a builder is retained."""

    def __init__(self, source: str, contract: HashContract, options: ReadOptions, lines: TextOptions) -> None:
        self._source = source
        self._contract = contract
        self._options = options
        self._lines = lines
        self._needed = mentioned_columns(options)
        self._builders: dict[tuple[str, ...], RowBuilder] = {}

    def row(self, item: Record) -> Row | LineError:
        """Return the row, or what is wrong with it, or with its names."""
        number, record = item
        layout = tuple(record)
        builder = self._builders.get(layout)
        if builder is None:
            try:
                builder = self._builder(layout)
            except UnreadableFile as wrong:  # a name that no feature can have
                return LineError(number, str(wrong).removeprefix(f"{self._source}: "))
        return builder.row(number, [*record.values(), *[None] * (builder.width - len(layout))])

    def _builder(self, layout: tuple[str, ...]) -> RowBuilder:
        """Raises UnreadableFile."""
        names = [*layout, *(name for name in self._needed if name not in layout)]
        builder = RowBuilder(self._source, names, self._contract, self._options, self._lines)
        if len(self._builders) == _MAX_LAYOUTS:
            self._builders.clear()
        self._builders[layout] = builder
        return builder


def records_of(lines: Iterable[bytes]) -> Iterator[Record | LineError]:
    """Yield the number and the flat object of each line that is not blank, or the error."""
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            found = json.loads(line, parse_constant=_refuse)
        except UnicodeDecodeError:
            yield LineError(number, explain(NOT_UTF8, "", TextOptions()))
        except (ValueError, RecursionError) as wrong:
            yield LineError(number, f"no JSON: {wrong}")
        else:
            if isinstance(found, dict):
                yield number, _flat(found)
            else:
                yield LineError(number, "must be an object")


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    if not any(isinstance(value, dict) for value in record.values()):
        return record
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{inner}": one for inner, one in _flat(value).items()})
        else:
            flat[name] = value
    return flat


def _check_columns(source: str, records: Iterable[Record], options: ReadOptions) -> None:
    """Raises UnreadableFile."""
    names = list(dict.fromkeys(name for _, record in records for name in record))
    for name, place in mentioned_columns(options).items() if names else ():
        if name not in names:
            raise missing_column(source, name, names, place)
