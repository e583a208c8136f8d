"""The command `ftrl status`: what the page shows of all models, a line for each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from service.cli.output import write_json, write_table
from service.cli.remote import DEFAULT_URL, AsJson, Url, service_at
from service.errors import CommandFailure

Text = Callable[[dict[str, Any]], str]


def status(
    url: Url = DEFAULT_URL,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Only this model or alias; repeat it for several. By default all."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show whether each model is up, learning and right.

    Verdict and figures are those of the page: of the window that is judged, with the age of the newest
    snapshot. The exit code is 1 if any verdict is `bad`.
    """
    with service_at(url) as service:
        overview = service.call("GET", "/overview")
    found = [line | {"snapshot_age_seconds": _age(line["snapshot"])} for line in overview["models"]]
    if model:
        found = [line_of(name, found, overview["left_out"], url) for name in model]
    if as_json:
        write_json(found)
    else:
        rows = [[text(line) for text in COLUMNS.values()] for line in found]
        write_table(list(COLUMNS), rows, texts=2, last_texts=3)
    if overview["left_out"] and not model:
        sys.stderr.write(f"ftrl: {len(overview['left_out'])} more models are not shown\n")
    if any(line["level"] == "bad" for line in found):
        raise typer.Exit(1)


def line_of(name: str, lines: list[dict[str, Any]], left_out: list[str], url: str) -> dict[str, Any]:
    """Find the line of a model or alias. Raises CommandFailure."""
    for line in lines:
        if name in (line["model"], *line["aliases"]):
            return line
    if name in left_out:
        raise CommandFailure(
            f"{url} summarizes {len(lines)} models, and {name} is not among them: see {url}/?model={name}"
        )
    raise CommandFailure(f"{url} shows no model or alias {name!r}; `ftrl models` lists the models")


def _age(snapshot: str | None) -> float | None:
    """The time since a snapshot was written, which its id begins with."""
    if snapshot is None:
        return None
    written = datetime.strptime(snapshot.partition("-")[0], "%Y%m%dT%H%M%S%fZ").replace(tzinfo=UTC)
    return round(time.time() - written.timestamp(), 1)


def _figure(name: str, digits: int) -> Text:
    return lambda line: "-" if line[name] is None else f"{line[name]:.{digits}f}"


def _lag(line: dict[str, Any]) -> str:
    examples, seconds = line["lag"]["examples"], line["lag"]["seconds"]
    return f"{examples:,}, {_duration(seconds)}" if examples and seconds is not None else f"{examples:,}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "none"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


COLUMNS: dict[str, Text] = {
    "model": lambda line: line["model"],
    "verdict": lambda line: line["level"],
    "AUC": _figure("auc", 4),
    "log loss": _figure("log_loss", 4),
    "calibration": _figure("calibration_ratio", 3),
    "updates": lambda line: f"{line['t']:,}",
    "lag": _lag,
    "snapshot": lambda line: _duration(line["snapshot_age_seconds"]),
    "follows": lambda line: line["follows"] or "-",
    "aliases": lambda line: ",".join(line["aliases"]) or "-",
    "": lambda line: line["headline"],
}
