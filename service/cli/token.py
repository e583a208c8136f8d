"""`ftrl token create`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from service.api.security.tokens import SCOPES, TokenFileError, digest_of, grant_of, new_token
from service.errors import CommandFailure

app = typer.Typer()


@app.callback()
def token() -> None:
    """Make bearer tokens; see FTRL_TOKENS_FILE."""


@app.command()
def create(
    scope: Annotated[
        str, typer.Option(help=f"One or more of {','.join(SCOPES)}; admin includes the others.")
    ],
    models: Annotated[str, typer.Option(help="Names of models, or * for all.")] = "*",
    name: Annotated[str, typer.Option(help="Purpose of the token; shown in messages and in the file.")] = "",
    file: Annotated[Path | None, typer.Option(help="Append its line to this file.")] = None,
) -> None:
    """Make a token: it is printed once and stored nowhere. The service's file holds its digest."""
    made = new_token()
    line = json.dumps(_entry(made, name, scope, models)) + "\n"
    if file is None:
        sys.stdout.write(f"token: {made}\nline for FTRL_TOKENS_FILE: {line}")
        return
    try:
        with file.open("a") as tokens:
            tokens.write(line)
    except OSError as failure:
        raise CommandFailure(f"cannot write {file}: {failure.strerror}") from failure
    sys.stdout.write(made + "\n")


def _entry(made: str, name: str, scope: str, models: str) -> dict[str, object]:
    entry = {
        "name": name,
        "sha256": digest_of(made.encode()).hex(),
        "scopes": scope.split(","),
        "models": "*" if models == "*" else models.split(","),
    }
    try:
        return grant_of(entry).to_json()
    except TokenFileError as wrong:
        raise typer.BadParameter(str(wrong)) from None
