"""The command `ftrl inspect`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.flags import FileFlags, Files, files_named, format_of, with_file_flags, with_settings
from service.cli.output import write_json, write_lines, write_table
from service.settings import Settings
from service.telemetry.logs import configure_logging

if TYPE_CHECKING:
    from service.parsing.files.rows import Format, ReadOptions
    from service.parsing.files.schema import Schema
    from service.parsing.inspection.report import Inspection

MAX_ROWS = 100_000
_SHOWN_CHARACTERS = 20
_SHOWN_COLUMNS = 100
_DRAFT = "schema.json"


@with_settings
@with_file_flags
def inspect(
    settings: Settings,
    flags: FileFlags,
    files: Files,
    rows: Annotated[int, typer.Option(min=1, help="Read at most so many rows.", metavar="ROWS")] = MAX_ROWS,
    out: Annotated[Path | None, typer.Option(help="Write the schema to this file.")] = None,
    example_request: Annotated[
        bool,
        typer.Option(
            "--example-request",
            help="Print only the body of the POST /update that means the first row; the features of a"
            " /predict are the same.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as one JSON object.")] = False,
) -> None:
    """Draft the schema of a log from its first rows, with a reason for each column.

    Check and correct the draft before `ftrl replay --schema` and `ftrl tune --schema` read it. Of several
    files the first one is read. With --schema, that one is applied instead.
    """
    from service.parsing.inspection.report import inspect_file

    configure_logging(settings.log_level, settings.log_format)
    file, *_ = files_named(files)
    options, schema = flags.options(settings), flags.schema_document()
    if example_request and file == "-" and schema is None:
        raise typer.BadParameter("standard input can be read once only: give --schema", param_hint="FILE")
    file_format = flags.format_of([file]) if schema is not None else flags.file_format or _by_name(file)
    if example_request and schema is not None:
        _print_example(file, flags.format_of([file]), options, schema)
        return
    found = inspect_file(file, file_format, options, schema, rows)
    if example_request:
        assert found.schema.format is not None
        _print_example(file, found.schema.format, found.schema.options(options.limits), found.schema)
        return
    if out is not None:
        out.write_text(json.dumps(found.schema.to_json(), indent=2, ensure_ascii=False) + "\n")
    if as_json:
        write_json(found.to_json())
    else:
        _print(found, file, flags.schema or (str(out) if out else None))


def _by_name(file: str) -> Format | None:
    """The format by the file's name; None: recognise it by the text."""
    try:
        return format_of(file)
    except typer.BadParameter:
        return None


def _print_example(file: str, file_format: Format, options: ReadOptions, schema: Schema) -> None:
    from service.parsing.inspection.report import first_example

    write_json(first_example(file, file_format, options, schema).to_request(), indent=2)


def _print(found: Inspection, file: str, schema: str | None) -> None:
    write_lines(_figures(found))
    write_lines([""])
    headings = ("column", "is", "values", "missing", "most frequent", "why")
    shown = [
        (
            column.name,
            column.kind,
            f"{column.values:,}",
            f"{column.missing:,}",
            ", ".join(f"{_cut(value)} ({count:,})" for value, count in column.most_frequent),
            column.reason,
        )
        for column in found.columns[:_SHOWN_COLUMNS]
    ]
    write_table(headings, shown, texts=2, last_texts=2)
    write_lines(_remarks(found, file, schema))


def _figures(found: Inspection) -> Iterator[str]:
    yield f"rows        {found.rows:,}{'' if found.complete else ', the first ones of the file'}"
    yield f"click rate  {found.clicks / max(found.rows, 1):.4f}"
    yield f"format      {found.schema.format}"
    if found.bad_lines:
        yield f"bad lines   {found.bad_lines:,}"
    if found.times is not None:
        first, last = (f"{datetime.fromtimestamp(t / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" for t in found.times)
        yield f"times       {first} to {last}"


def _remarks(found: Inspection, file: str, schema: str | None) -> Iterator[str]:
    if len(found.columns) > _SHOWN_COLUMNS:
        yield f"and {len(found.columns) - _SHOWN_COLUMNS:,} more"
    yield ""
    if schema is None:
        yield "The schema:"
        yield json.dumps(found.schema.to_json(), indent=2, ensure_ascii=False)
        yield ""
        if found.known is not None:
            yield f"The columns are those of a known log: --schema {found.known}"
        yield f"With --out {_DRAFT} it is written to a file, and"
    yield f"ftrl replay {shlex.quote(file)} --schema {shlex.quote(schema or _DRAFT)} --dry-run"
    yield "learns the log and reports how good its predictions were."


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
