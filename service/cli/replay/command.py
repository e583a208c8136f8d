"""The command `ftrl replay`."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.file_flags import FileFlags, with_file_flags
from service.cli.model_option import checked_model_name
from service.cli.serve import with_redis_url
from service.cli.setting_flags import with_settings
from service.settings import Settings
from service.telemetry.logs import configure_logging

if TYPE_CHECKING:
    from service.cli.replay.summary import ReplayPlan, ReplaySummary


@with_settings
@with_file_flags
def replay(
    settings: Settings,
    flags: FileFlags,
    file: Annotated[str, typer.Argument(help="Examples; `-` is standard input. .gz, .xz and .bz2 are read.")],
    url: Annotated[str | None, typer.Option(help="Send the examples to the service at this address.")] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Learn here, then load the whole state into Redis at once.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Learn here from an empty state, and keep nothing.")
    ] = False,
    model: Annotated[
        str, typer.Option(help="The model that learns; created if need be.", callback=checked_model_name)
    ] = "default",
    hyper: Annotated[
        str | None, typer.Option(help="Hyperparameters of a model that is created: JSON, or a file of it.")
    ] = None,
    hashing: Annotated[
        str | None, typer.Option(help="Hash contract of a model that is created: JSON, or a file of it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
) -> None:
    """Learn from a file of examples, and tell how good the predictions made before each one were."""
    from service.cli.replay.summary import ReplayPlan, print_summary

    if (url is not None) + offline + dry_run != 1:
        raise typer.BadParameter("give one of --url, --offline and --dry-run")
    config = _config(json_or_file(hyper, "--hyper"), json_or_file(hashing, "--hashing"))
    kind, options = flags.format_of(file), flags.options(settings)
    plan = ReplayPlan(file, kind, options, model, config, flags.on_error)
    configure_logging(settings.log_level, settings.log_format)
    signal.signal(signal.SIGTERM, _stop)
    summary = _run(plan, settings, url, dry_run)
    if as_json:
        sys.stdout.write(json.dumps(summary.to_json(), allow_nan=False) + "\n")
    else:
        print_summary(summary)


def _run(plan: ReplayPlan, settings: Settings, url: str | None, dry_run: bool) -> ReplaySummary:
    from service.cli.replay.http import replay_over_http
    from service.cli.replay.offline import replay_offline, replay_without_loading

    if url is not None:
        return replay_over_http(plan, url)
    if dry_run:
        return replay_without_loading(plan, settings)
    with with_redis_url(settings, errand=True) as found:
        return replay_offline(plan, found)


def _stop(number: int, _: object) -> None:
    """So that an embedded server is stopped, too."""
    sys.exit(128 + number)


def json_or_file(text: str | None, flag: str) -> dict[str, Any] | None:
    """The object that stands in the text itself, or in the file that it names. Raises typer.BadParameter."""
    if text is None:
        return None
    try:
        decoded = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
    except (OSError, ValueError) as wrong:
        raise typer.BadParameter(f"no JSON object nor a file of one: {wrong}", param_hint=flag) from None
    if not isinstance(decoded, dict):
        raise typer.BadParameter("not a JSON object", param_hint=flag)
    return decoded


def _config(hyper: dict[str, Any] | None, hashing: dict[str, Any] | None) -> dict[str, Any]:
    """The body of a PUT that makes such a model; empty where neither is given."""
    from model_core.errors import InvalidInput
    from service.models.config.model import ModelConfig

    given = {"hyper": hyper, "hashing": hashing}
    body = {name: value for name, value in given.items() if value is not None}
    try:
        ModelConfig.from_json(body)
    except InvalidInput as wrong:
        raise typer.BadParameter(str(wrong), param_hint=f"--{wrong.path[0]}") from None
    return body
