"""What `ftrl models` shows, asked of a running service over HTTP."""

from __future__ import annotations

import contextlib
from typing import Any

from service.cli.http_client import ServiceClient


def describe_models(url: str) -> list[dict[str, Any]]:
    """The description of every model, in order of their names. Raises CommandFailure."""
    with contextlib.closing(ServiceClient(url, patience_seconds=0)) as client:
        names = client.call("GET", "/models")["models"]
        return [client.call("GET", f"/models/{name}") for name in sorted(names)]


def print_table(described: list[dict[str, Any]]) -> None:
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
