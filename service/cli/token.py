"""`ftrl token`: bearer tokens, and the file that lists them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from service.api.security.tokens import SCOPES, TokenFileError, digest_of, grant_of, new_token, read_tokens
from service.cli.output import write_json, write_lines, write_table
from service.cli.remote import AsJson
from service.errors import CommandFailure

app = typer.Typer()


@app.callback()
def token() -> None:
    """Make and list bearer tokens; see FTRL_TOKENS_FILE."""


@app.command()
def create(
    scope: Annotated[
        str, typer.Option(help=f"One or more of {','.join(SCOPES)}; admin includes the others.")
    ],
    models: Annotated[str, typer.Option(help="Names of models, or * for all.")] = "*",
    name: Annotated[str, typer.Option(help="Purpose of the token; shown in messages and in the file.")] = "",
    file: Annotated[Path | None, typer.Option(help="Append its line to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token: it is printed once and stored nowhere. The service's file holds its digest."""
    made = new_token()
    entry = _entry(made, name, scope, models)
    line = json.dumps(entry)
    if file is not None:
        try:
            with file.open("a") as tokens:
                tokens.write(line + "\n")
        except OSError as failure:
            raise CommandFailure(f"cannot write {file}: {failure.strerror}") from failure
    if as_json:
        write_json({"token": made, "entry": entry})
    elif file is not None:
        write_lines([made])
    else:
        write_lines([f"token: {made}", f"line for FTRL_TOKENS_FILE: {line}"])


@app.command("list")
def list_tokens(
    file: Annotated[
        Path, typer.Option(envvar="FTRL_TOKENS_FILE", help="The file of the tokens that clients need.")
    ],
    as_json: AsJson = False,
) -> None:
    """List the tokens of a file: their names and what they allow.

    A token itself is not in the file; its digest begins as shown.
    """
    grants = [grant.to_json() for grant in read_tokens(file).values()]
    if as_json:
        write_json(grants)
    else:
        write_table(("name", "scopes", "models", "digest"), map(_row, grants), texts=4)


def _row(grant: dict[str, Any]) -> tuple[str, ...]:
    models = grant["models"] if grant["models"] == "*" else ",".join(grant["models"])
    return grant["name"] or "-", ",".join(grant["scopes"]), models, grant["sha256"][:12]


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
