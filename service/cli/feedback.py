"""The command `ftrl feedback`."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.flags import json_or_file
from service.cli.output import write_json
from service.cli.remote import DEFAULT_URL, AsJson, Url, path_of, service_at


def feedback(
    changes: Annotated[
        str | None,
        typer.Argument(help="What to change, as JSON or as a file of it: '{\"max_bytes\": 1073741824}'."),
    ] = None,
    url: Url = DEFAULT_URL,
    model: Annotated[str, typer.Option(help="The model.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Show how a model handles predictions that await their labels, or change it.

    A change takes effect while the model predicts and learns.
    """
    fields = json_or_file(changes, "CHANGES")
    with service_at(url) as service:
        path = path_of("models", model)
        if fields is None:
            described = service.call("GET", path)
        else:
            described = service.call("PATCH", path, {"feedback": fields})
    write_json(described["feedback"], None if as_json else 2)
