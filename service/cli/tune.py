"""The command `ftrl tune`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import typer

from service.cli.flags import (
    FileFlags,
    FilesIfAny,
    json_or_file,
    with_file_flags,
    with_settings,
)
from service.cli.remote import AsJson
from service.cli.whatif import (
    Jobs,
    LogFlags,
    Memory,
    Out,
    Present,
    Top,
    bad_parameters,
    plan_of,
    report,
    source_of,
    with_log_flags,
)
from service.settings import Settings
from service.telemetry.logs import configure_logging

Number = TypeVar("Number", int, float)


@with_settings
@with_file_flags
@with_log_flags
def tune(
    settings: Settings,
    flags: FileFlags,
    log: LogFlags,
    *,
    files: FilesIfAny = None,
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
    present: Present = None,
    search: Annotated[
        Literal["grid", "halving"] | None,
        typer.Option(
            help="halving (default where the length is known): a third stays after 1/9 of the examples and"
            " after 1/3; grid: all learn all of them."
        ),
    ] = None,
    memory: Memory = "5GiB",
    jobs: Jobs = None,
    top: Top = 20,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Try many models on a log of your own in one pass, and rank them.

    The log is that of files, or of a model. The ranking is by progressive log loss. Every candidate is
    compared with the present configuration on the same examples; the intervals hold for all candidates
    together at 95 %.

    Lists are separated by commas; every combination is tried, and the mixture of a new model, unless its rate
    is given. The result is the body of a PUT /models/{name} that creates the best one, or the present one if
    it is as good.
    """
    from lab.experiments.space import Space
    from lab.experiments.tuning import rank

    configure_logging(settings.log_level, settings.log_format)
    plan = plan_of(search, memory, jobs)
    source = source_of(settings, flags, log, files)
    space = Space(
        json_or_file(hyper, "--hyper") or {},
        tuple(source.contract | (json_or_file(text, "--hashing") or {}) for text in hashing or ["{}"]),
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
    body = json_or_file(present, "--present")
    with bad_parameters():
        options, left_out = space.options()
        compared = space.present(source.default if body is None else body)
        source.check([*options, compared])
    ranking = rank(plan, source.source, options, compared, left_out)
    report(ranking, source.challenged(log, ranking), top, out, as_json)


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
