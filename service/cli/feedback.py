"""The command `ftrl feedback`."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Annotated

import typer

from service.cli.flags import checked_model_name, json_or_file


def feedback(
    changes: Annotated[
        str | None,
        typer.Argument(help="What to change, as JSON or as a file of it: '{\"max_bytes\": 1073741824}'."),
    ] = None,
    url: Annotated[str, typer.Option(help="Address of the service.")] = "http://127.0.0.1:8000",
    model: Annotated[str, typer.Option(help="The model.", callback=checked_model_name)] = "default",
) -> None:
    """Show how a model handles predictions that await their labels, or change it.

    A change takes effect while the model predicts and learns.
    """
    from service.cli.http_client import ServiceClient

    fields = json_or_file(changes, "CHANGES")
    with contextlib.closing(ServiceClient(url, retry_seconds=0)) as client:
        path = f"/models/{model}"
        if fields is None:
            described = client.call("GET", path)
        else:
            described = client.call("PATCH", path, {"feedback": fields})
    sys.stdout.write(json.dumps(described["feedback"], indent=2) + "\n")
