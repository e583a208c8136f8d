"""`ftrl models`: the models of a running service, over HTTP."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Annotated, Any

import typer


def models(
    url: Annotated[str, typer.Option(help="Address of the service.")] = "http://127.0.0.1:8000",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array on standard output.")] = False,
) -> None:
    """List the models of a running service."""
    described = _describe_models(url)
    if as_json:
        sys.stdout.write(json.dumps(described) + "\n")
    else:
        _print_table(described)


def _describe_models(url: str) -> list[dict[str, Any]]:
    """The description of every model, in order of their names. Those that the service cannot read are
    reported on standard error. Raises CommandFailure.
    """
    from service.cli.http_client import Refused, ServiceClient

    described = []
    with contextlib.closing(ServiceClient(url, retry_seconds=0)) as client:
        for name in sorted(client.call("GET", "/models")["models"]):
            try:
                described.append(client.call("GET", f"/models/{name}"))
            except Refused as refused:
                if refused.status not in (404, 409):
                    raise
                if refused.status == 409:  # at 404 it was deleted meanwhile
                    sys.stderr.write(f"ftrl: {refused}\n")
    return described


def _print_table(described: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("model", "family", "revision", box=None)
    for column in ("examples", "features", "density"):
        table.add_column(column, justify="right")
    for model in described:
        table.add_row(
            model["name"],
            model["hyper"]["family"],
            model["revision"],
            f"{model['t']:,}",
            f"{model['features_seen']:,}",
            f"{model['density']:.3f}",
        )
    Console().print(table)
