"""The example of `ftrl predict` and `ftrl explain`: where it is read, and what is sent for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from service.errors import CommandFailure

Source = Annotated[
    str,
    typer.Argument(
        metavar="EXAMPLE",
        help='An object of features as JSON, such as \'{"ad": "a17"}\', or the whole body of a request;'
        " or a file of either; - is standard input.",
    ),
]
Model = Annotated[str, typer.Option("--model", help="The model or alias that predicts.")]

PARTS = {"features", "context", "instances"}
OF_UPDATES = {"label", "weight", "sample_rate", "event_id", "event_time"}


def example_in(source: str) -> dict[str, Any]:
    """The body of a request: what is read itself, its features if it is that of an update, or what is read as
    the features. Raises CommandFailure.
    """
    name = "the example" if source.lstrip().startswith("{") else source
    try:
        read = json.loads(source if name != source else _text_of(source))
    except (OSError, ValueError) as wrong:
        raise CommandFailure(f"{name}: no JSON object: {wrong}") from wrong
    if not isinstance(read, dict):
        raise CommandFailure(f"{name}: not a JSON object")
    body = {name: value for name, value in read.items() if name not in OF_UPDATES}
    return body if _is_body(body) else {"features": read}


def _text_of(file: str) -> str:
    if file != "-":
        return Path(file).read_text()
    if sys.stdin.isatty():
        sys.stderr.write("ftrl: reading an example as JSON from standard input, until Ctrl-D\n")
    return sys.stdin.read()


def _is_body(read: dict[str, Any]) -> bool:
    """Return whether these are the parts of a body, and not features that happen to have their names."""
    if not read.keys() <= PARTS:
        return False
    features, instances = read.get("features"), read.get("instances")
    if instances is not None:
        return "features" not in read and isinstance(instances, list) and _are(instances, dict)
    return isinstance(features, dict) or (isinstance(features, list) and _are(features, list))


def _are(items: list[Any], kind: type) -> bool:
    return bool(items) and all(isinstance(item, kind) for item in items)
