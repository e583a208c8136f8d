"""What `ftrl models` shows, asked of a running service over HTTP."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import urlopen

from service.serving import CommandFailure

TIMEOUT_SECONDS = 10


def describe_models(url: str) -> list[dict[str, Any]]:
    """The description of every model, in order of their names. Raises CommandFailure."""
    base = url.rstrip("/")
    names = _get(f"{base}/models")["models"]
    return [_get(f"{base}/models/{quote(name, safe='')}") for name in sorted(names)]


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


def _get(url: str) -> Any:
    try:
        with urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            return json.load(response)
    except HTTPError as e:
        raise CommandFailure(f"{url} answers {e.code} {e.reason}") from e
    except (URLError, OSError, ValueError) as e:
        reason = e.reason if isinstance(e, URLError) else e
        raise CommandFailure(f"no ftrl service answers at {url}: {reason}") from e
