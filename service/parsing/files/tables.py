"""Reads CSV (RFC 4180) and TSV (no quotes) as rows of features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model_core.hashing.contract import HashContract
from model_core.text.problems import NOT_UTF8, LineError, TextOptions, explain
from service.parsing.files.columns import RowBuilder
from service.parsing.files.records import Record, Records
from service.parsing.files.rows import Format, ReadOptions, Row
from service.parsing.files.source import TextSource, UnreadableFile


def table_rows(
    source: TextSource, file_format: Format, contract: HashContract, options: ReadOptions
) -> Iterator[Row | LineError]:
    """Yield a row, or the error, for each record. Raises UnreadableFile if the columns cannot be used."""
    records = Records(source.lines(), quoted=file_format == "csv", separator=options.separator)
    names = header_of(source.name, records, options)
    if names is None:
        return
    lines = options.text_options(file_format)
    builder = RowBuilder(source.name, names, contract, options, lines)
    for record in records:
        if isinstance(record.values, str):
            yield LineError(record.line, record.values)
        elif len(record.values) != builder.width:
            records.resume_after_first_line(record)
            yield LineError(record.line, f"{len(record.values)} values for {builder.width} columns")
        elif not record.is_utf8:
            yield LineError(record.line, explain(NOT_UTF8, "", lines), record.lines)
        else:
            yield builder.row(record.line, record.values, record.lines)


def header_of(source: str, records: Records, options: ReadOptions) -> Sequence[str] | None:
    """Read the first line, if it has names, and return those of the columns; None: the file is empty.

    Raises UnreadableFile.
    """
    if options.columns is not None and not options.header:
        return options.columns
    header = next(iter(records), None)
    if header is None:
        return None
    names = names_of(source, header)
    if records.quoted and len(names) > 1 and all(name[:1] == " " for name in names[1:]):
        names = names_of(source, records.again_without_spaces())
    return options.columns or [name.strip(" ") for name in names]


def names_of(source: str, header: Record) -> list[str]:
    """Return the names in the first line. Raises UnreadableFile."""
    if isinstance(header.values, str):
        raise UnreadableFile(f"{source}: line {header.line}: {header.values}")
    if not header.is_utf8:
        raise UnreadableFile(f"{source}: line {header.line}: {explain(NOT_UTF8, '', TextOptions())}")
    return header.values
