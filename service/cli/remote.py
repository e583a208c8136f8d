"""Flags and client of the commands that call a running service."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

if TYPE_CHECKING:
    from service.cli.http_client import ServiceClient

URL_VARIABLE = "FTRL_URL"
DEFAULT_URL = "http://127.0.0.1:8000"

Url = Annotated[str, typer.Option("--url", envvar=URL_VARIABLE, help="Address of the service.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


def url_of_environment() -> str | None:
    """The address in URL_VARIABLE; None without one."""
    return os.environ.get(URL_VARIABLE, "").strip() or None


@contextlib.contextmanager
def service_at(url: str) -> Iterator[ServiceClient]:
    """Yield a client that does not repeat what is refused, as a person waits. Raises CommandFailure."""
    from service.cli.http_client import ServiceClient

    with contextlib.closing(ServiceClient(url, retry_seconds=0)) as client:
        yield client


def path_of(*names: str) -> str:
    """The path of a resource from its parts, such as a model's from "models" and its name."""
    return "".join(f"/{quote(name, safe='')}" for name in names)
