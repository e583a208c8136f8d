"""The command `ftrl whatif`, and the flags that it shares with `ftrl tune`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError

from service.cli.errand import run_errand
from service.cli.flags import (
    FileFlags,
    FilesIfAny,
    any_json_or_file,
    checked_model_name,
    files_named,
    json_or_file,
    with_file_flags,
    with_flags_of,
    with_settings,
)
from service.cli.output import write_json, write_lines
from service.cli.remote import AsJson
from service.errors import ServiceError
from service.settings import Settings
from service.telemetry.logs import configure_logging

if TYPE_CHECKING:
    from lab.experiments.file_source import FileSource
    from lab.experiments.log_window import Wanted
    from lab.experiments.model_log import LogSource
    from lab.experiments.race import RacePlan, Search
    from lab.experiments.space import Option
    from lab.experiments.tuning import Ranking
    from service.models.config.model import ModelConfig
    from service.storage.channel import Channel

NICENESS = 10
"""Replays of a model's log have a low priority: a service on the same machine comes first."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)


@dataclass(frozen=True)
class LogFlags:
    """A field for each flag: which log of a model is replayed."""

    model: Annotated[
        str | None,
        typer.Option(
            help="Replay the log of this model, or of the one that an alias means, by default `default`, in"
            " place of a FILE. It is read from Redis, and from its archive: give the --redis-url or"
            " --data-dir of the service.",
            callback=lambda name: name and checked_model_name(name),
        ),
    ] = None
    last: Annotated[
        str | None,
        typer.Option(help="The last part of the log by the model's time, such as 90m, 24h or 7d."),
    ] = None
    since: Annotated[
        str | None, typer.Option(help="From this time of the model on: RFC 3339, or seconds since 1970.")
    ] = None
    until: Annotated[str | None, typer.Option(help="To before this time.")] = None
    start: Annotated[
        Literal["snapshot", "empty"],
        typer.Option(
            help="snapshot: begin with the state that the model then had, where a candidate can have it;"
            " empty: all begin with nothing."
        ),
    ] = "empty"
    challenge: Annotated[
        Literal["best"] | None,
        typer.Option(
            help="Start the best candidate as a challenger of the model, from the state that it has reached,"
            " unless the model's own configuration is the best."
        ),
    ] = None
    challenger: Annotated[
        str | None,
        typer.Option(
            help="The name of that challenger; by default the model's with `-b`.",
            callback=lambda name: name and checked_model_name(name),
        ),
    ] = None

    def window(self) -> Wanted:
        """Raises typer.BadParameter."""
        from lab.experiments.log_window import Wanted

        if self.last is not None and self.since is not None:
            raise typer.BadParameter("give --last or --since, not both", param_hint="--last")
        last = None if self.last is None else _milliseconds(self.last, "--last")
        wanted = Wanted(_time(self.since, "--since"), _time(self.until, "--until"), last)
        if wanted.since is not None and wanted.until is not None and wanted.since >= wanted.until:
            raise typer.BadParameter("must be after --since", param_hint="--until")
        return wanted


with_log_flags = with_flags_of(LogFlags, "log")

Memory = Annotated[str, typer.Option(help="Max total memory of the candidates.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Candidates at once; default: processors.")]
Top = Annotated[int, typer.Option(min=1, help="Number of candidates in the table.")]
Out = Annotated[Path | None, typer.Option(help="Write the body of the PUT to this file.")]
Present = Annotated[
    str | None,
    typer.Option(
        help="The configuration to compare with: JSON of a PUT, or a file of it; by default that of the model"
        " whose log it is, or else of the model `default`."
    ),
]


@with_settings
@with_file_flags
@with_log_flags
def whatif(
    settings: Settings,
    flags: FileFlags,
    log: LogFlags,
    *,
    files: FilesIfAny = None,
    grid: Annotated[
        str,
        typer.Option(
            help="What to try: JSON, or a file of it. An object of values such as"
            ' {"alpha": [0.05, 0.1], "half_life": [null, 100000], "bits": [20, 22]}, all combinations of'
            " which are tried in place of those of the present configuration; or an array of bodies of PUT"
            " /models/{name}."
        ),
    ],
    present: Present = None,
    search: Annotated[
        Literal["grid", "halving"],
        typer.Option(help="grid: all learn all examples; halving: a third stays after 1/9 and after 1/3."),
    ] = "grid",
    memory: Memory = "5GiB",
    jobs: Jobs = None,
    top: Top = 20,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Replay the real log of a model, or files, with other configurations, and compare them.

    All learn side by side, and each row is read once. The figures of the present configuration over the whole
    log are those of the live evaluation, to the last digit. The intervals hold for all candidates together at
    95 %. Nothing of the model is changed.
    """
    from lab.experiments.grid import options_of
    from lab.experiments.tuning import rank

    configure_logging(settings.log_level, settings.log_format)
    document = any_json_or_file(grid, "--grid")
    plan = plan_of(search, memory, jobs)
    source = source_of(settings, flags, log, files)
    with bad_parameters("--present"):
        compared = source.compared(json_or_file(present, "--present"))
    with bad_parameters("--grid"):
        options, present_option, left_out = options_of(document, compared)
        source.check([*options, present_option])
    ranking = rank(plan, source.source, options, present_option, left_out)
    report(ranking, source.challenged(log, ranking), top, out, as_json)


@dataclass(frozen=True)
class Examples:
    """The examples that are learned: those of files, or the log of a model.

    default: the configuration to compare with, as in the body of a PUT, unless another is given. contract:
    what the examples say of the hash contract: it comes before the default, and a given one before it.
    """

    source: FileSource | LogSource
    default: dict[str, Any]
    contract: dict[str, Any]

    def compared(self, given: dict[str, Any] | None) -> ModelConfig:
        """The configuration to compare with. Raises InvalidInput."""
        from service.models.config.model import ModelConfig

        if given is None:
            hyper, hashing = self.default.get("hyper", {}), self.default.get("hashing", {}) | self.contract
        else:
            hyper, hashing = given.get("hyper", {}), given.get("hashing", {})
            hashing = self.contract | hashing if isinstance(hashing, dict) else hashing
        return ModelConfig.from_json({"hyper": hyper, "hashing": hashing})

    def check(self, options: Sequence[Option]) -> None:
        """Raises InvalidInput if the examples cannot be learned with one of these."""
        for option in options:
            self.source.check(option.config)

    def challenged(self, log: LogFlags, ranking: Ranking) -> Challenged | None:
        """Start the challenger that the flags ask for, if any; a failure is to be raised after the report."""
        from redis.exceptions import RedisError

        from lab.experiments.model_log import LogSource

        if log.challenge is None or not isinstance(self.source, LogSource):
            return None
        best = ranking.results[0]
        if best.is_present:
            return Challenged("no challenger was started: no candidate is better than the present one")
        name = log.challenger or f"{self.source.model}-b"
        try:
            created = self.source.challenge(name, best)
        except (ServiceError, RedisError, OSError) as failure:
            return Challenged(f"no challenger was started: {failure}", failure=failure)
        done = "follows" if created else "already followed"
        return Challenged(f"{name} {done} {self.source.model} with the best configuration", name)


class Challenged(NamedTuple):
    """The outcome of `--challenge`: a sentence, the name of the challenger, if any, and the failure."""

    text: str
    name: str | None = None
    failure: Exception | None = None


def source_of(settings: Settings, flags: FileFlags, log: LogFlags, files: list[str] | None) -> Examples:
    """Open the files, or the log of a model. Raises typer.BadParameter, and what `run_errand` raises."""
    from lab.experiments.file_source import FileSource

    if not files:
        return _logged(settings, flags, log)
    if log != LogFlags():
        raise typer.BadParameter("give files, or a window of the log of a model, not both", param_hint="FILE")
    named = files_named(files)
    source = FileSource(named, flags.format_of(named), flags.options(settings), flags.on_error)
    return Examples(source, _default_model(settings), flags.contract())


def _logged(settings: Settings, flags: FileFlags, log: LogFlags) -> Examples:
    from lab.experiments.log_window import find_window
    from lab.experiments.model_log import LogSource
    from service.models.alias_store import read_aliases
    from service.models.config.model import DEFAULT_MODEL
    from service.snapshots.store.catalogue import SnapshotStore

    if flags != FileFlags():
        raise typer.BadParameter(
            "flags that say how a file is read need a FILE; the log of a model holds encoded examples"
        )
    wanted = log.window()

    async def errand(channel: Channel, found: Settings) -> LogSource:
        name = log.model or DEFAULT_MODEL
        model = (await read_aliases(channel)).targets.get(name, name)
        window = await find_window(channel, SnapshotStore(found).of(model), wanted)
        return LogSource(found, window, log.start)

    source = run_errand(settings, errand)
    os.nice(NICENESS)
    present = source.present.to_json()
    return Examples(source, present, present["hashing"])


def _default_model(settings: Settings) -> dict[str, Any]:
    """The body of a PUT that creates the model `default`; empty without a setting of its own."""
    if settings.default_model is None:
        return {}
    from service.models.config.model import default_config

    return default_config(settings).to_json()


@contextmanager
def bad_parameters(flag: str | None = None) -> Iterator[None]:
    """Raises typer.BadParameter in place of InvalidInput."""
    from model_core.errors import InvalidInput

    try:
        yield
    except InvalidInput as wrong:
        raise typer.BadParameter(str(wrong), param_hint=flag) from None


def plan_of(search: Search | None, memory: str, jobs: int | None) -> RacePlan:
    """Raises typer.BadParameter."""
    from lab.experiments.race import RacePlan

    try:
        size = int(TypeAdapter(ByteSize).validate_python(memory))
    except ValidationError:
        raise typer.BadParameter(f"{memory!r} is no size, such as 2GiB", param_hint="--memory") from None
    return RacePlan(search, size, jobs)


def report(
    ranking: Ranking, challenged: Challenged | None, top: int, out: Path | None, as_json: bool
) -> None:
    """Write the body of the recommended model to `out`, and the ranking to standard output.

    Raises the failure to start a challenger, if there was one.
    """
    from lab.experiments.tuning import print_ranking

    if out is not None:
        out.write_text(json.dumps(ranking.body, indent=2) + "\n")
    if as_json:
        name = {} if challenged is None else {"challenger": challenged.name}
        write_json(ranking.to_json() | name)
    else:
        print_ranking(ranking, top)
    if challenged is None:
        return
    if challenged.failure is not None:
        raise challenged.failure
    if not as_json:
        write_lines([challenged.text])


def _milliseconds(text: str, flag: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or float(match[1]) <= 0.0:
        raise typer.BadParameter(f"{text!r} is no duration, such as 90m, 24h or 7d", param_hint=flag)
    return round(float(match[1]) * _UNITS[match[2]] * 1000)


def _time(text: str | None, flag: str) -> int | None:
    """Milliseconds since 1970."""
    if text is None:
        return None
    from service.parsing.event_time import milliseconds_of

    is_number = re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII)
    with bad_parameters(flag):
        return milliseconds_of(float(text) if is_number else text, ())
