"""Reads Parquet and Arrow files (IPC, Feather) as rows of features; their values are what they are in JSON.

| type | value |
|---|---|
| string, dictionary of strings, boolean, integer | as in JSON |
| float, decimal | a number; NaN is missing |
| list of these | a list; items that are missing are left out |
| timestamp, date | only the time of an example |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from model_core.text.problems import LineError
from service.errors import CommandFailure
from service.parsing.files.columns import RowBuilder
from service.parsing.files.rows import Format, ReadOptions, Row
from service.parsing.files.source import TextSource, UnreadableFile

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 8192

_FILE_BEGINNING = b"ARROW1"


class ArrowFile(NamedTuple):
    """An open file: the names and the types of its columns, and its rows in batches."""

    names: list[str]
    types: list[pa.DataType]
    batches: Iterator[pa.RecordBatch]


def arrow_rows(
    source: TextSource, file: ArrowFile, builder: RowBuilder, options: ReadOptions
) -> Iterator[Row | LineError]:
    """Yield a row, or the error, for each row, counted from 1.

    Raises UnreadableFile if a column cannot be used.
    """
    time = None if options.time is None else options.time.column
    number = 1
    for batch in file.batches:
        columns = [
            values_of(source, name, column, is_time=name == time) if used else repeat(None)
            for name, column, used in zip(file.names, batch.columns, builder.used, strict=True)
        ]
        for i, values in enumerate(zip(*columns, strict=False)):
            yield builder.row(number + i, values)
        number += batch.num_rows


def open_arrow(source: TextSource, file_format: Format, batch_rows: int = BATCH_ROWS) -> ArrowFile:
    """Open a file with batches of at most `batch_rows` rows. Raises UnreadableFile, CommandFailure."""
    arrow = require_pyarrow()
    if not source.binary.seekable() and file_format == "parquet":
        raise UnreadableFile(f"{source.name}: a Parquet file cannot be read from a pipe: give its name")
    try:
        schema, batches = (_parquet if file_format == "parquet" else _arrow)(source.binary)
    except (arrow.ArrowInvalid, OSError) as wrong:
        raise UnreadableFile(f"{source.name}: this is no {file_format} file: {_one_line(wrong)}") from wrong
    pieces = _pieces(_reported(source, batches, arrow.ArrowException), batch_rows)
    return ArrowFile(list(schema.names), list(schema.types), pieces)


def require_pyarrow() -> Any:
    """Import pyarrow. Raises CommandFailure."""
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise CommandFailure(
            "Parquet and Arrow files need pyarrow, which is not installed: pip install 'ftrl-service[files]'"
        ) from None
    return pa


def _parquet(file: IO[bytes]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    from pyarrow.parquet import ParquetFile

    opened = ParquetFile(file)
    return opened.schema_arrow, opened.iter_batches(BATCH_ROWS)


def _arrow(file: IO[bytes]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Open the file format, which has an index at its end, or the stream."""
    from pyarrow import ipc

    is_file = False
    if file.seekable():
        is_file = file.read(len(_FILE_BEGINNING)) == _FILE_BEGINNING
        file.seek(0)
    if not is_file:
        stream = ipc.open_stream(file)
        return stream.schema, iter(stream)
    opened = ipc.open_file(file)
    return opened.schema, map(opened.get_batch, range(opened.num_record_batches))


def _pieces(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(
        (batch.slice(first, rows) for first in range(0, batch.num_rows, rows)) for batch in batches
    )


def _reported(
    source: TextSource, batches: Iterator[pa.RecordBatch], failure: type[Exception]
) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (failure, OSError) as wrong:
        raise UnreadableFile(f"{source.name}: the file is damaged: {_one_line(wrong)}") from wrong


def values_of(source: TextSource, name: str, column: pa.Array, *, is_time: bool) -> Sequence[Any]:
    """Return the values of a column as JSON has them, and times as datetimes. Raises UnreadableFile."""
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if is_time and (types.is_timestamp(kind) or types.is_date(kind)):
        return _times(column)
    for is_kind, convert in _conversions(types):
        if is_kind(kind):
            return convert(column)
    hint = " or name it as the time in a schema" if types.is_temporal(kind) else " or convert it"
    raise UnreadableFile(
        f"{source.name}: the column {name!r} is of type {kind}, which no feature has: leave it out"
        f" (--ignored-columns),{hint}"
    )


def _conversions(types: Any) -> Iterator[tuple[Callable[[Any], bool], Callable[[Any], Sequence[Any]]]]:
    def is_plain(kind: Any) -> bool:
        of_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        return bool(of_text or types.is_boolean(kind) or types.is_integer(kind) or types.is_null(kind))

    def is_list(kind: Any) -> bool:
        of_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return of_list and (is_plain(kind.value_type) or types.is_floating(kind.value_type))

    yield is_plain, lambda column: column.to_pylist()
    yield types.is_floating, lambda column: [_number(value) for value in column.to_pylist()]
    yield is_list, lambda column: [_list(value) for value in column.to_pylist()]
    yield types.is_decimal, lambda column: column.cast("float64").to_pylist()


def _number(value: float | None) -> float | None:
    return value if value is None or value == value else None


def _list(value: list[Any] | None) -> list[Any] | None:
    return None if value is None else [item for item in value if item is not None and item == item]


def _times(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    zone = getattr(column.type, "tz", None)
    return list(column.cast(pa.timestamp("us", zone), safe=False).to_pylist())


def _one_line(failure: Exception) -> str:
    return " ".join(str(failure).split())[:200]
