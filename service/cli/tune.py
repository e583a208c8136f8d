"""The command `ftrl tune`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError

from service.cli.flags import FileFlags, Files, files_named, json_or_file, with_file_flags, with_settings
from service.settings import Settings
from service.telemetry.logs import configure_logging

if TYPE_CHECKING:
    from lab.experiments.space import Space
    from lab.experiments.tuning import Ranking

Number = TypeVar("Number", int, float)


@with_settings
@with_file_flags
def tune(
    settings: Settings,
    flags: FileFlags,
    files: Files,
    families: Annotated[str, typer.Option(help="ftrl, rda, comid, aogd; default ftrl.")] = "",
    updates: Annotated[str, typer.Option(help="first_order, implicit; default first_order.")] = "",
    alphas: Annotated[
        str, typer.Option(help="Values of alpha, for the adaptive rate; default 0.02,0.05,0.1,0.2,0.5,1,2.")
    ] = "",
    betas: Annotated[
        str, typer.Option(help="Values of beta; default 0.1,1 where no rate is given, or else 1.")
    ] = "",
    gammas: Annotated[str, typer.Option(help="Values of gamma, for the rate gamma.")] = "",
    l1: Annotated[str, typer.Option(help="Default 0,0.5.")] = "",
    l2: Annotated[str, typer.Option(help="Default 0.")] = "",
    half_lives: Annotated[
        str,
        typer.Option(help="Half-lives in examples, or `none`; default none,100000 where no rate is given."),
    ] = "",
    bits: Annotated[str, typer.Option(help="Slots are 2^bits; default 22.")] = "",
    numeric: Annotated[str, typer.Option(help="bucket, log, raw: encoding of numbers; default bucket.")] = "",
    hyper: Annotated[
        str | None, typer.Option(help="Hyperparameters shared by all: JSON, or a file of it.")
    ] = None,
    hashing: Annotated[
        list[str] | None, typer.Option(help="A hash contract: JSON, or a file of it. Repeat to try several.")
    ] = None,
    present: Annotated[
        str | None,
        typer.Option(
            help="The configuration to compare with: JSON of a PUT, or a file of it; by default that of the"
            " model `default`."
        ),
    ] = None,
    search: Annotated[
        Literal["grid", "halving"],
        typer.Option(help="grid: all learn the whole file; halving: a third stays after 1/9 and after 1/3."),
    ] = "grid",
    memory: Annotated[str, typer.Option(help="Max total memory of the candidates.")] = "5GiB",
    jobs: Annotated[int | None, typer.Option(min=1, help="Candidates at once; default: processors.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of candidates in the table.")] = 20,
    out: Annotated[Path | None, typer.Option(help="Write the body of the PUT to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The ranking as one JSON object.")] = False,
) -> None:
    """Try many models on a log of your own in one pass, and rank them.

    The ranking is by progressive log loss. Every candidate is compared with the present configuration on the
    same examples; the intervals hold for all candidates together at 95 %.

    Lists are separated by commas; every combination is tried, and the mixture of a new model, unless its rate
    is given. The result is the body of a PUT
    /models/{name} that creates the best one, or the present one if it is as good.
    """
    from lab.experiments.race import RacePlan
    from lab.experiments.space import Space

    configure_logging(settings.log_level, settings.log_format)
    space = Space(
        json_or_file(hyper, "--hyper") or {},
        tuple(flags.contract() | (json_or_file(text, "--hashing") or {}) for text in hashing or ["{}"]),
        _words(families),
        _words(updates),
        _numbers(alphas, float, "--alphas"),
        _numbers(betas, float, "--betas"),
        _numbers(gammas, float, "--gammas"),
        _numbers(l1, float, "--l1"),
        _numbers(l2, float, "--l2"),
        _numbers(bits, int, "--bits"),
        _words(numeric),
        _half_lives(half_lives),
    )
    named = files_named(files)
    kind, options = flags.format_of(named), flags.options(settings)
    plan = RacePlan(named, kind, options, search, flags.on_error, _bytes(memory), jobs)
    compared = json_or_file(present, "--present") or _default_model(settings)
    _report(_ranked(plan, space, compared), top, out, as_json)


def _default_model(settings: Settings) -> dict[str, Any]:
    """The body of a PUT that creates the model `default`; empty without a setting of its own."""
    if settings.default_model is None:
        return {}
    from service.models.config.model import default_config

    return default_config(settings).to_json()


def _ranked(plan: Any, space: Space, present: dict[str, Any]) -> Ranking:
    from lab.experiments.tuning import tune as run
    from model_core.errors import InvalidInput

    try:
        return run(plan, space, present)
    except InvalidInput as wrong:
        raise typer.BadParameter(str(wrong)) from None


def _report(ranking: Ranking, top: int, out: Path | None, as_json: bool) -> None:
    from lab.experiments.tuning import print_ranking

    if out is not None:
        out.write_text(json.dumps(ranking.body, indent=2) + "\n")
    if as_json:
        sys.stdout.write(json.dumps(ranking.to_json(), allow_nan=False) + "\n")
    else:
        print_ranking(ranking, top)


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def _numbers(text: str, kind: type[Number], flag: str) -> tuple[Number, ...]:
    try:
        return tuple(kind(word) for word in _words(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint=flag) from None


def _half_lives(text: str) -> tuple[float | None, ...]:
    words = _words(text)
    numbers = _numbers(",".join(word for word in words if word != "none"), float, "--half-lives")
    return (None,) * ("none" in words) + numbers


def _bytes(text: str) -> int:
    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise typer.BadParameter(f"{text!r} is no size, such as 2GiB", param_hint="--memory") from None
