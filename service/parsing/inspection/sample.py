"""The first rows of a table of any format, column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from model_core.text.problems import LineError
from service.parsing.files.json_records import records_of
from service.parsing.files.records import Records
from service.parsing.files.rows import Format, ReadOptions
from service.parsing.files.source import TextSource, UnreadableFile
from service.parsing.files.tables import names_of
from service.parsing.inspection.sniff import SNIFFED_LINES, Sniffed, sniff

MAX_ROWS = 100_000
MAX_TEXT_BYTES = 64 * 2**20


@dataclass
class Sample:
    """Up to `max_rows` rows. names: of the columns, empty for one without a name.

    columns: the values of each, texts or what Parquet and Arrow have; None for those that these call missing.
    bad_lines: lines that are no record of these columns. complete: these are all rows.
    """

    file_format: Format
    separator: str | None
    header: bool
    names: list[str]
    columns: list[list[Any]] = field(default_factory=list)
    bad_lines: int = 0
    complete: bool = True

    @property
    def rows(self) -> int:
        return len(self.columns[0]) if self.columns else 0


def sniffed(source: TextSource) -> tuple[Sniffed | None, Iterator[bytes]]:
    """Recognise the format of a text; return all of its lines, too. Raises UnreadableFile."""
    lines = source.lines()
    first = list(islice(lines, SNIFFED_LINES))
    return sniff(first), chain(first, lines)


def sample_of_text(
    source: TextSource, lines: Iterator[bytes], found: Sniffed, options: ReadOptions, max_rows: int
) -> Sample:
    """Read a table of text; `options` may name its columns. Raises UnreadableFile."""
    separator = options.separator or found.separator
    records = Records(lines, quoted=found.file_format == "csv", separator=separator)
    header = found.header if options.header is None and options.columns is None else bool(options.header)
    first = [names_of(source.name, record) for record in islice(records, 1)]
    if not first:
        return Sample(found.file_format, separator, header, [])
    names = list(
        options.columns or ([n.strip(" ") for n in first[0]] if header else _numbered(len(first[0])))
    )
    sample = Sample(found.file_format, separator, header, names, [[] for _ in names])
    rows = _good_rows(chain([] if header else first, _values(records, sample)), sample)
    _add(sample, rows, max_rows)
    return sample


def sample_of_records(lines: Iterator[bytes], max_rows: int) -> Sample:
    """Read JSON lines of any objects; values that no feature can have are missing."""
    sample = Sample("records", None, True, [])
    columns: dict[str, list[Any]] = {}
    size = rows = 0
    for item in records_of(lines):
        if isinstance(item, LineError):
            sample.bad_lines += 1
            continue
        if rows == max_rows or size > MAX_TEXT_BYTES:
            sample.complete = False
            break
        _, record = item
        size += len(str(record))
        for name, value in record.items():
            columns.setdefault(name, [None] * rows).append(value if _is_plain(value) else None)
        rows += 1
        for values in columns.values():
            if len(values) < rows:
                values.append(None)
    sample.names, sample.columns = list(columns), list(columns.values())
    return sample


def sample_of_columns(source: TextSource, file_format: Format, max_rows: int) -> Sample:
    """Read Parquet or Arrow; columns that no feature can be made of have no values. Raises UnreadableFile,
    CommandFailure.
    """
    from service.parsing.files.arrow import open_arrow, values_of

    names, _, batches = open_arrow(source, file_format)
    sample = Sample(file_format, None, True, names, [[] for _ in names])
    for batch in batches:
        room = max_rows - sample.rows
        for name, column, values in zip(names, batch.columns, sample.columns, strict=True):
            try:
                values.extend(values_of(source, name, column, is_time=True)[:room])
            except UnreadableFile:
                values.extend([None] * min(room, batch.num_rows))
        if batch.num_rows >= room:
            sample.complete = False
            break
    return sample


def _is_plain(value: Any) -> bool:
    """Test for what a feature can be."""
    return not isinstance(value, list) or all(isinstance(item, str | int | float) for item in value)


def _numbered(width: int) -> list[str]:
    return [f"c{i}" for i in range(1, width + 1)]


def _values(records: Iterable[Any], sample: Sample) -> Iterator[Sequence[str]]:
    """The values of the records, up to MAX_TEXT_BYTES of text."""
    size = 0
    for record in records:
        if isinstance(record.values, str) or not record.is_utf8:
            sample.bad_lines += 1
            continue
        yield record.values
        size += sum(map(len, record.values))
        if size > MAX_TEXT_BYTES:
            sample.complete = False
            return


def _good_rows(rows: Iterable[Sequence[str]], sample: Sample) -> Iterator[Sequence[str]]:
    for row in rows:
        if len(row) == len(sample.names):
            yield row
        else:
            sample.bad_lines += 1


def _add(sample: Sample, rows: Iterable[Sequence[str]], max_rows: int) -> None:
    """Add rows; equal values of a column share one text, which takes a fraction of the memory."""
    known: list[dict[str, str]] = [{} for _ in sample.names]
    for row in rows:
        if sample.rows == max_rows:
            sample.complete = False
            return
        for values, texts, text in zip(sample.columns, known, row, strict=True):
            values.append(texts.setdefault(text, text))
