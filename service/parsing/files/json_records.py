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
    needed = mentioned_columns(options)
    builders: dict[tuple[str, ...], RowBuilder] = {}
    for item in chain(first, records):
        if isinstance(item, LineError):
            yield item
            continue
        number, record = item
        layout = tuple(record)
        builder = builders.get(layout)
        if builder is None:
            if len(builders) == _MAX_LAYOUTS:
                builders.clear()
            names = [*layout, *(name for name in needed if name not in record)]
            try:
                builder = RowBuilder(source.name, names, contract, options, options.text_options(file_format))
            except UnreadableFile as wrong:  # a name that no feature can have
                yield LineError(number, str(wrong).removeprefix(f"{source.name}: "))
                continue
            builders[layout] = builder
        yield builder.row(number, [*record.values(), *[None] * (builder.width - len(layout))])


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
