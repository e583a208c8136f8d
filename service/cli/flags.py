"""The flags that commands share: every setting, how a file of examples is read, and the name of a model.

The settings' flags are made here rather than by pydantic-settings' own command line: that one uses argparse,
so that a command could not add flags to them, and its help lists neither topics nor variables.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import ByteSize, ValidationError
from pydantic.fields import FieldInfo

from service.cli.main import COMPLETION
from service.settings import Settings, topic_of

if TYPE_CHECKING:
    from service.parsing.files.rows import ReadOptions
    from service.parsing.files.schema import Schema


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Make a typer command of a function that takes `settings` and, by keyword, parameters of its own.

    The help has the command's own flags; those of the settings are listed by `--help-settings`.
    """

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        del arguments["help_settings"]
        given = {name: arguments.pop(name) for name in Settings.model_fields}
        settings = read_settings({name: value for name, value in given.items() if value is not None})
        command(settings, **arguments)

    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + _flags()
    parameters.append(
        inspect.Parameter(
            "help_settings", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_HelpSettings
        )
    )
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def read_settings(given: Mapping[str, object]) -> Settings:
    """Settings from flags and environment. Raises typer.BadParameter, which names the flag or variable."""
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as e:
        from service.parsing.field_errors import reworded

        first = e.errors()[0]
        text = reworded(first["msg"])
        if not first["loc"]:
            raise typer.BadParameter(text) from None
        name = str(first["loc"][0]).lower().removeprefix("ftrl_")
        hint = flag_name(name) if name in given else variable_name(name)
        shown = "" if "password" in name or "url" in name else f" (it is {first['input']!r})"
        raise typer.BadParameter(f"{text}{shown}", param_hint=hint) from None


def misspelt_variables(environment: Iterable[str] = os.environ) -> list[tuple[str, str]]:
    """Unknown variables with the prefix of settings, each with the setting that was probably meant."""
    import difflib

    known = [variable_name(name) for name in Settings.model_fields]
    unknown = sorted(name for name in environment if name.startswith("FTRL_") and name not in known)
    guesses = [(name, difflib.get_close_matches(name, known, n=1, cutoff=0.85)) for name in unknown]
    return [(name, guess[0]) for name, guess in guesses if guess]


def flag_name(setting: str) -> str:
    return "--" + setting.replace("_", "-")


def variable_name(setting: str) -> str:
    return "FTRL_" + setting.upper()


def _print_settings(context: typer.Context, asked: bool) -> None:
    """Print the flags of all settings by topic, and exit."""
    if not asked or context.resilient_parsing:
        return
    flags: dict[str | None, Any] = {flag.name: flag for flag in context.command.params}
    lines = ["Settings of the service. Each is a flag and an environment variable; the flag wins."]
    for topic, names in itertools.groupby(Settings.model_fields, topic_of):
        lines += ["", f"{topic}:"]
        for name in names:
            flags[name].hidden = False
            written, meaning = flags[name].get_help_record(context)
            lines += [f"  {written}", f"      {meaning}"]
    typer.echo("\n".join(lines))
    raise typer.Exit


_HelpSettings = Annotated[
    bool,
    typer.Option(
        "--help-settings",
        help="List the settings of the service, which are flags too, and exit.",
        is_eager=True,
        callback=_print_settings,
    ),
]


def _flags() -> list[inspect.Parameter]:
    return [_flag(name, field) for name, field in Settings.model_fields.items()]


def _flag(name: str, field: FieldInfo) -> inspect.Parameter:
    is_bool = field.annotation is bool
    option = typer.Option(
        f"{flag_name(name)}/--no-{name.replace('_', '-')}" if is_bool else flag_name(name),
        help=f"{field.description} ({variable_name(name)}{_default_text(field)})",
        metavar=None if is_bool else _metavar(name, field),
        show_default=False,
        hidden=COMPLETION not in os.environ,  # `--help-settings` shows it, and shells complete it
    )
    value: Any = bool | None if is_bool else str | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[value, option]
    )


def _default_text(field: FieldInfo) -> str:
    if field.default is None:
        return ""
    value = field.default
    if isinstance(value, ByteSize):
        value = value.human_readable(decimal=False).replace(".0", "") if value else 0
    elif isinstance(value, bool):
        value = "yes" if value else "no"
    elif isinstance(value, int | float):
        value = f"{value:.12g}"
    return f"; default {value}"


def _metavar(name: str, field: FieldInfo) -> str:
    choices = getattr(field.annotation, "__args__", ())
    if choices and all(isinstance(choice, str) for choice in choices):
        return "|".join(choices)
    if field.annotation is ByteSize:
        return "SIZE"
    if field.annotation in (int, float):
        return "NUMBER"
    is_path = name.endswith(("_dir", "_cert", "_key", "_model", "_file"))
    return "PATH" if is_path else "TEXT"


Format = Literal["vw", "libsvm", "csv", "tsv", "jsonl", "records", "parquet", "arrow"]
_FORMATS: dict[str, Format] = {
    ".vw": "vw",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}


@dataclass(frozen=True)
class FileFlags:
    """A field for each flag."""

    schema: Annotated[
        str | None,
        typer.Option(
            help="What the columns of a table mean: a file of JSON, which `ftrl inspect` drafts, or criteo,"
            " avazu, talkingdata, ipinyou, open-bandit. Other flags win over it.",
            metavar="FILE|NAME",
        ),
    ] = None
    file_format: Annotated[
        Format | None, typer.Option("--format", help="Format of the file; by default from its name.")
    ] = None
    labels: Annotated[
        Literal["zero_one", "minus_plus"] | None,
        typer.Option(help="Labels of the file: from 0 to 1, or -1 and 1 (the default of vw and libsvm)."),
    ] = None
    namespaces: Annotated[
        Literal["ignore", "prefix"] | None,
        typer.Option(
            help="Namespaces of Vowpal Wabbit text, by default ignore; prefix puts `f^` before the names in"
            " namespace f."
        ),
    ] = None
    columns: Annotated[
        str | None, typer.Option(help="Names of a table's columns, comma-separated, if it has no header.")
    ] = None
    label_column: Annotated[
        str | None, typer.Option(help="The column of a table with the label; default label.")
    ] = None
    weight_column: Annotated[str | None, typer.Option(help="The column of a table with the weight.")] = None
    ignored_columns: Annotated[
        str, typer.Option(help="Columns of a table that are no features, comma-separated.")
    ] = ""
    null: Annotated[
        str | None,
        typer.Option(help="A text that means a missing value in a table, such as NULL; `\\N` always does."),
    ] = None
    on_error: Annotated[
        Literal["fail", "skip"], typer.Option(help="What to do at a line that cannot be read.")
    ] = "fail"

    def format_of(self, files: Sequence[str]) -> Format:
        """Return the format that all files have. Raises typer.BadParameter."""
        schema = self.schema_document()
        given = self.file_format or (None if schema is None else schema.format)
        if given is not None:
            return given
        found = {format_of(file): file for file in files}
        if len(found) > 1:
            one, other = list(found.values())[:2]
            raise typer.BadParameter(
                f"{one} and {other} are named as files of different formats: replay them one by one, or give"
                " the format of both",
                param_hint="--format",
            )
        return next(iter(found))

    def options(self, settings: Settings) -> ReadOptions:
        """Those of the schema, if there is one, with the flags in their place. Raises typer.BadParameter."""
        from service.models.config.model import limits_of
        from service.parsing.files.rows import ReadOptions

        limits = limits_of(settings)
        schema = self.schema_document()
        base = ReadOptions(limits=limits) if schema is None else schema.options(limits)
        given: dict[str, Any] = {
            "labels": self.labels,
            "namespaces": self.namespaces,
            "columns": _parsed_columns(self.columns),
            "label_column": self.label_column,
            "weight_column": self.weight_column,
            "ignored_columns": _ignored(self.ignored_columns),
            "nulls": None if self.null is None else frozenset({self.null}),
        }
        if self.labels is not None:
            base = replace(base, positive=None, negative=None)
        return replace(base, **{name: value for name, value in given.items() if value is not None})

    def schema_document(self) -> Schema | None:
        """The schema, if there is one. Raises typer.BadParameter."""
        if self.schema is None:
            return None
        from service.parsing.files.schema import BadSchema, load_schema

        try:
            return load_schema(self.schema)
        except BadSchema as wrong:
            raise typer.BadParameter(str(wrong), param_hint="--schema") from None

    def contract(self) -> dict[str, Any]:
        """What the schema says of the model's hash contract; empty without one. Raises typer.BadParameter."""
        schema = self.schema_document()
        return {} if schema is None else schema.hashing


def with_flags_of(kind: type[Any], name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """To be put below `with_settings`: the command takes `settings`, `name` (a `kind` with a field for each
    flag) and, by keyword, parameters of its own. Of two, the upper one comes first.
    """
    fields = inspect.signature(kind, eval_str=True).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*leading: Any, **arguments: Any) -> None:
            flags = kind(**{field: arguments.pop(field) for field in fields})
            command(*leading, flags, **arguments)

        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != name]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *fields.values())]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


with_file_flags = with_flags_of(FileFlags, "flags")

_FILE = typer.Argument(
    metavar="FILE",
    help="Examples: files in the order in which they are read, quoted patterns such as 'part-*.csv', URLs"
    " such as s3://bucket/clicks.csv, or `-` for standard input. .gz, .xz, .lzma, .bz2 and .zst are"
    " decompressed.",
)
Files = Annotated[list[str], _FILE]
FilesIfAny = Annotated[list[str] | None, _FILE]


def files_named(words: Sequence[str]) -> tuple[str, ...]:
    """Return the files that the words name, in their order. Raises typer.BadParameter."""
    from service.parsing.files.source import UnreadableFile, files_of

    try:
        return files_of(words)
    except UnreadableFile as wrong:
        raise typer.BadParameter(str(wrong), param_hint="FILE") from None


def format_of(file: str) -> Format:
    """Infer the format from the file's name. Raises typer.BadParameter."""
    for suffix in reversed(Path(file).suffixes):
        if suffix.lower() in _FORMATS:
            return _FORMATS[suffix.lower()]
    raise typer.BadParameter(
        "the format is not clear from the file's name: give it, or a schema (`ftrl inspect` drafts one)",
        param_hint="--format",
    )


def _ignored(text: str) -> frozenset[str] | None:
    """The names and those that ranges stand for; None if there is none."""
    if not text:
        return None
    from service.parsing.files.columns import expanded

    return frozenset(expanded(list(filter(None, text.split(",")))))


def _parsed_columns(text: str | None) -> tuple[str, ...] | None:
    """The names of a table's columns. Raises typer.BadParameter."""
    if text is None:
        return None
    from model_core.errors import InvalidInput
    from service.parsing.files.columns import parse_columns

    try:
        return parse_columns(text)
    except InvalidInput as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--columns") from None


def checked_model_name(name: str) -> str:
    """Raises typer.BadParameter; the callback of flags that name a model."""
    from service.errors import InvalidModelName
    from service.storage.records import checked_name

    try:
        return checked_name(name)
    except InvalidModelName as refusal:
        raise typer.BadParameter(refusal.detail) from None


def json_or_file(text: str | None, flag: str) -> dict[str, Any] | None:
    """The object in the text itself, or in the file that it names. Raises typer.BadParameter."""
    if text is None:
        return None
    decoded = any_json_or_file(text, flag)
    if not isinstance(decoded, dict):
        raise typer.BadParameter("not a JSON object", param_hint=flag)
    return decoded


def any_json_or_file(text: str, flag: str) -> Any:
    """The object or array in the text itself, or in the file that it names. Raises typer.BadParameter."""
    try:
        return json.loads(text if text.lstrip().startswith(("{", "[")) else Path(text).read_text())
    except (OSError, ValueError, RecursionError) as wrong:
        raise typer.BadParameter(f"no JSON object nor a file of one: {wrong}", param_hint=flag) from None
