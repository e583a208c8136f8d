"""The flags of `ftrl replay`, and the choice between HTTP and offline."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.flags import (
    FileFlags,
    Files,
    checked_model_name,
    files_named,
    json_or_file,
    with_file_flags,
    with_settings,
)
from service.settings import Settings
from service.telemetry.logs import configure_logging

if TYPE_CHECKING:
    from service.cli.replay.summary import ReplayPlan, ReplaySummary


@with_settings
@with_file_flags
def replay(
    settings: Settings,
    flags: FileFlags,
    files: Files,
    url: Annotated[
        str | None, typer.Option(help="Send the examples to the service at this address; FTRL_URL.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Learn here, then load the whole state into Redis at once.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Learn here from an empty state, and store nothing.")
    ] = False,
    model: Annotated[
        str,
        typer.Option(help="The model that learns; created if there is none.", callback=checked_model_name),
    ] = "default",
    hyper: Annotated[
        str | None, typer.Option(help="Hyperparameters of a model that is created: JSON, or a file of it.")
    ] = None,
    hashing: Annotated[
        str | None, typer.Option(help="Hash contract of a model that is created: JSON, or a file of it.")
    ] = None,
    passes: Annotated[int, typer.Option(min=1, help="How often the file is learned.")] = 1,
    holdout: Annotated[
        int,
        typer.Option(min=0, help="Do not learn the last ROWS examples; predict them.", metavar="ROWS"),
    ] = 0,
    curve: Annotated[bool, typer.Option("--curve", help="Figures of 20 consecutive parts.")] = False,
    slices: Annotated[
        str, typer.Option(help="Features, comma-separated: figures of their most frequent values.")
    ] = "",
    predictions: Annotated[
        Path | None, typer.Option(help="Write the prediction of each example to this file, as CSV.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="With --url: record in this file how far the replay has come; if it is there, go on there.",
            metavar="FILE",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
) -> None:
    """Learn from a file of examples, and report how good its predictions were.

    Each example is predicted before it is learned.
    """
    from service.cli.replay.summary import ReplayPlan, print_summary

    if url is None and not offline and not dry_run:
        from service.cli.remote import url_of_environment

        url = url_of_environment()
    if (url is not None) + offline + dry_run != 1:
        raise typer.BadParameter("give one of --url, --offline and --dry-run")
    sliced = tuple(filter(None, slices.split(",")))
    _refuse_over_http(
        url, {"passes": passes > 1, "holdout": holdout, "slices": sliced, "predictions": predictions}
    )
    named = files_named(files)
    if resume is not None and (url is None or named == ("-",)):
        raise typer.BadParameter("only with --url, and files that can be read again", param_hint="--resume")
    if passes > 1 and named == ("-",):
        raise typer.BadParameter("standard input can be read once only", param_hint="--passes")
    config = _config(json_or_file(hyper, "--hyper"), json_or_file(hashing, "--hashing"))
    kind, options = flags.format_of(named), flags.options(settings)
    plan = ReplayPlan(
        *(named, kind, options, model, config, flags.on_error, passes, holdout, curve, sliced, predictions),
        contract=flags.contract(),
        resume=resume,
    )
    configure_logging(settings.log_level, settings.log_format)
    signal.signal(signal.SIGTERM, _stop)
    summary = _run(plan, settings, url, dry_run)
    if as_json:
        sys.stdout.write(json.dumps(summary.to_json(), allow_nan=False) + "\n")
    else:
        print_summary(summary)


def _run(plan: ReplayPlan, settings: Settings, url: str | None, dry_run: bool) -> ReplaySummary:
    if url is not None:
        from service.cli.replay.http import replay_over_http

        return replay_over_http(plan, url)
    from service.cli.replay.offline import replay_offline, replay_without_loading

    if dry_run:
        return replay_without_loading(plan, settings)
    from service.cli.errand import with_redis_url

    with with_redis_url(settings, errand=True) as found:
        return replay_offline(plan, found)


def _refuse_over_http(url: str | None, given: dict[str, object]) -> None:
    """Raises typer.BadParameter for a flag that needs the whole model in this process."""
    for name, value in given.items():
        if url is not None and value:
            raise typer.BadParameter("only with --offline or --dry-run", param_hint=f"--{name}")


def _stop(number: int, _: object) -> None:
    """Exit through SystemExit, so that an embedded server is stopped, too."""
    sys.exit(128 + number)


def _config(hyper: dict[str, Any] | None, hashing: dict[str, Any] | None) -> dict[str, Any]:
    """The body of a PUT that creates such a model; empty if neither is given."""
    from model_core.errors import InvalidInput
    from service.models.config.model import ModelConfig

    given = {"hyper": hyper, "hashing": hashing}
    body = {name: value for name, value in given.items() if value is not None}
    try:
        ModelConfig.from_json(body)
    except InvalidInput as wrong:
        raise typer.BadParameter(str(wrong), param_hint=f"--{wrong.path[0]}") from None
    return body
