"""Settings as flags: one `--some-name` for every field of Settings."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import typer
from pydantic import ByteSize, ValidationError
from pydantic.fields import FieldInfo

from service.settings import Settings

# A topic of the help begins at the setting that is named here.
TOPICS = {
    "host": "Listening",
    "tokens_file": "Security",
    "log_level": "Logging",
    "redis_url": "Redis",
    "data_dir": "Embedded server",
    "update_timeout_seconds": "Updates and the example log",
    "lease_seconds": "Learner",
    "snapshots": "Snapshots",
    "stale_after_seconds": "Mirrors and models",
    "max_body_bytes": "Limits of a request",
}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Make a typer command of a function that takes `settings` and, by keyword, parameters of its own."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in Settings.model_fields}
        settings = read_settings({name: value for name, value in given.items() if value is not None})
        command(settings, **arguments)

    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + _flags()
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def read_settings(given: Mapping[str, object]) -> Settings:
    """Settings from flags and environment. Raises typer.BadParameter, which names the flag or variable."""
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as e:
        first = e.errors()[0]
        text = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            raise typer.BadParameter(text) from None
        name = str(first["loc"][0]).lower().removeprefix("ftrl_")
        hint = flag_name(name) if name in given else variable_name(name)
        shown = "" if "password" in name or "url" in name else f" (it is {first['input']!r})"
        raise typer.BadParameter(f"{text}{shown}", param_hint=hint) from None


def misspelt_variables(environment: Iterable[str] = os.environ) -> list[tuple[str, str]]:
    """Variables that look like a setting's without being one, each with the one that was probably meant."""
    known = [variable_name(name) for name in Settings.model_fields]
    unknown = sorted(name for name in environment if name.startswith("FTRL_") and name not in known)
    guesses = [(name, difflib.get_close_matches(name, known, n=1, cutoff=0.85)) for name in unknown]
    return [(name, guess[0]) for name, guess in guesses if guess]


def flag_name(setting: str) -> str:
    return "--" + setting.replace("_", "-")


def variable_name(setting: str) -> str:
    return "FTRL_" + setting.upper()


def _flags() -> list[inspect.Parameter]:
    flags, topic = [], ""
    for name, field in Settings.model_fields.items():
        topic = TOPICS.get(name, topic)
        flags.append(_flag(name, field, topic))
    return flags


def _flag(name: str, field: FieldInfo, topic: str) -> inspect.Parameter:
    is_bool = field.annotation is bool
    option = typer.Option(
        f"{flag_name(name)}/--no-{name.replace('_', '-')}" if is_bool else flag_name(name),
        help=f"{field.description} ({variable_name(name)}{_default_text(field)})",
        metavar=None if is_bool else _metavar(name, field),
        rich_help_panel=topic,
        show_default=False,
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
