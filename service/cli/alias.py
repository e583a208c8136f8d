"""`ftrl alias`: other names for the models of a running service, over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.output import write_json, write_lines, write_table
from service.cli.remote import DEFAULT_URL, AsJson, Url, path_of, service_at

Alias = Annotated[str, typer.Argument(help="The alias.")]

app = typer.Typer()


@app.callback()
def alias() -> None:
    """Give models other names, which can be switched while clients go on."""


@app.command("set")
def set_alias(
    name: Alias,
    model: Annotated[str, typer.Argument(help="The model that it is to refer to.")],
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Make a name refer to a model, also one that refers to another model now."""
    with service_at(url) as service:
        reply = service.call("PUT", path_of("aliases", name), {"model": model})
    if as_json:
        write_json(reply)
    else:
        write_lines([f"{name} refers to {model}"])


@app.command("list")
def list_aliases(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the aliases, with the model of each."""
    with service_at(url) as service:
        aliases = service.call("GET", "/aliases")["aliases"]
    if as_json:
        write_json(aliases)
    else:
        write_table(("alias", "model"), sorted(aliases.items()), texts=2)


@app.command()
def remove(name: Alias, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Remove an alias; the model remains."""
    with service_at(url) as service:
        reply = service.call("GET", path_of("aliases", name))
        service.call("DELETE", path_of("aliases", name))
    if as_json:
        write_json(reply)
    else:
        write_lines([f"{name} no longer refers to {reply['model']}"])
