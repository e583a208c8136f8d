"""The flags that say how a file of examples is to be read, of every command that reads one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from service.settings import Settings

if TYPE_CHECKING:
    from service.parsing.files.rows import ReadOptions

Format = Literal["vw", "libsvm", "csv", "tsv", "jsonl"]
_FORMATS: dict[str, Format] = {
    ".vw": "vw",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
}


@dataclass(frozen=True)
class FileFlags:
    """A field for each flag."""

    file_format: Annotated[
        Format | None, typer.Option("--format", help="Of the file; by default as its name tells.")
    ] = None
    labels: Annotated[
        Literal["zero_one", "minus_plus"] | None,
        typer.Option(help="Labels of the file: 0 and 1, or -1 and 1 (the default of vw and libsvm)."),
    ] = None
    namespaces: Annotated[
        Literal["ignore", "prefix"],
        typer.Option(help="Of Vowpal Wabbit text; prefix puts `f^` before the names in namespace f."),
    ] = "ignore"
    columns: Annotated[
        str | None, typer.Option(help="Names of a table's columns, comma-separated, if it has no header.")
    ] = None
    label_column: Annotated[str, typer.Option(help="The column of a table with the label.")] = "label"
    weight_column: Annotated[str | None, typer.Option(help="The column of a table with the weight.")] = None
    ignored_columns: Annotated[
        str, typer.Option(help="Columns of a table that are no features, comma-separated.")
    ] = ""
    on_error: Annotated[
        Literal["fail", "skip"], typer.Option(help="What to do at a line that cannot be read.")
    ] = "fail"

    def format_of(self, file: str) -> Format:
        """Raises typer.BadParameter."""
        return self.file_format or format_of(file)

    def options(self, settings: Settings) -> ReadOptions:
        """Raises typer.BadParameter."""
        from service.models.config.model import limits_of
        from service.parsing.files.rows import ReadOptions

        return ReadOptions(
            self.labels,
            self.namespaces,
            _parsed_columns(self.columns),
            self.label_column,
            self.weight_column,
            frozenset(filter(None, self.ignored_columns.split(","))),
            limits_of(settings),
        )


def with_file_flags(command: Callable[..., None]) -> Callable[..., None]:
    """To be put below `with_settings`: the command takes `settings`, `flags` (FileFlags) and, by keyword,
    parameters of its own.
    """
    fields = inspect.signature(FileFlags, eval_str=True).parameters

    @functools.wraps(command)
    def run(settings: Settings, **arguments: Any) -> None:
        flags = FileFlags(**{name: arguments.pop(name) for name in fields})
        command(settings, flags, **arguments)

    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "flags"]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *fields.values())]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def format_of(file: str) -> Format:
    """By the file's name. Raises typer.BadParameter."""
    for suffix in reversed(Path(file).suffixes):
        if suffix in _FORMATS:
            return _FORMATS[suffix]
    raise typer.BadParameter("the file's name does not tell its format", param_hint="--format")


def _parsed_columns(text: str | None) -> tuple[str, ...] | None:
    """The names of a table's columns. Raises typer.BadParameter."""
    from model_core.errors import InvalidInput
    from service.parsing.files.tables import parse_columns

    try:
        return None if text is None else parse_columns(text)
    except InvalidInput as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--columns") from None
