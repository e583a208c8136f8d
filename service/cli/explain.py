"""The command `ftrl explain`."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.flags import checked_model_name
from service.errors import CommandFailure


def explain(
    file: Annotated[
        str,
        typer.Argument(help='A JSON object of features, or {"features": ..., "context": ...}; - is stdin.'),
    ] = "-",
    url: Annotated[str, typer.Option(help="Address of the service.")] = "http://127.0.0.1:8000",
    model: Annotated[
        str, typer.Option(help="The model or alias that predicts.", callback=checked_model_name)
    ] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="The explanation as one JSON object.")] = False,
) -> None:
    """Show which features make a prediction what it is, largest contributions first."""
    from service.cli.http_client import ServiceClient

    body = _body(file)
    with contextlib.closing(ServiceClient(url, retry_seconds=0)) as client:
        explanation = client.call("POST", f"/models/{model}/explain", body)
    if as_json:
        sys.stdout.write(json.dumps(explanation) + "\n")
    else:
        _print(explanation)


def _body(file: str) -> dict[str, Any]:
    """Raises CommandFailure."""
    try:
        read = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text())
    except (OSError, ValueError) as wrong:
        raise CommandFailure(f"{file}: no JSON object: {wrong}") from wrong
    if not isinstance(read, dict):
        raise CommandFailure(f"{file}: not a JSON object")
    features = read.get("features")
    are_features = isinstance(features, dict) or (isinstance(features, list) and _are_pairs(features))
    return read if are_features and read.keys() <= {"features", "context"} else {"features": read}


def _are_pairs(items: list[Any]) -> bool:
    """Return whether these are pairs of name and value, and not the values of a feature."""
    return bool(items) and all(isinstance(item, list) for item in items)


def _print(explanation: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("feature", box=None)
    for column in ("contribution", "weight", "value", "learning rate", "slot"):
        table.add_column(column, justify="right")
    for feature in sorted(explanation["features"], key=lambda part: -abs(part["contribution"])):
        table.add_row(
            json.dumps(feature["name"], ensure_ascii=False)[1:-1],
            f"{feature['contribution']:+.6f}",
            f"{feature['weight']:+.6f}",
            f"{feature['value']:g}",
            _number(feature["learning_rate"]),
            "" if feature["slot"] is None else str(feature["slot"]),
        )
    console = Console()
    console.print(table)
    for shared in explanation["shared_slots"]:
        console.print(f"Slot {shared['slot']} is shared: {', '.join(shared['names'])}", markup=False)
    for number, expert in enumerate(explanation.get("experts") or []):
        console.print(
            f"expert {number}: weight {expert['weight']:.4f}, log-odds {expert['margin']:+.6f}",
            highlight=False,
        )
    mixing = explanation.get("mixing")
    console.print(
        f"log-odds {explanation['margin']:+.6f} (offset {explanation['offset']:+.6f}"
        f"{'' if mixing is None else f', mixing {mixing:+.6f}'}),"
        f" uncertainty {_number(explanation['uncertainty'])}:"
        f" probability {explanation['probability']:.6f}, revision {explanation['revision']}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _number(value: float | None) -> str:
    return "no bound" if value is None else f"{value:.6f}"
