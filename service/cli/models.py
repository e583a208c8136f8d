"""`ftrl models`: the models of a running service, over HTTP."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from service.cli.output import write_json, write_lines, write_table
from service.cli.remote import DEFAULT_URL, URL_VARIABLE, AsJson, Url, path_of, service_at

if TYPE_CHECKING:
    from service.cli.http_client import ServiceClient

Name = Annotated[str, typer.Argument(help="The model.")]

app = typer.Typer()


@app.callback(invoke_without_command=True)
def models(context: typer.Context, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List, create, describe and delete models.

    Without a command, the models are listed.
    """
    command = context.invoked_subcommand
    if command is None:
        list_models(url, as_json)
    elif as_json or url not in (DEFAULT_URL, os.environ.get(URL_VARIABLE)):
        raise typer.BadParameter(f"give --url and --json after the command: ftrl models {command} ...")


@app.command("list")
def list_models(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the models of a running service."""
    with service_at(url) as service:
        described = _describe_models(service)
    if as_json:
        write_json(described)
    else:
        write_table(
            ("model", "family", "follows", "revision", "examples", "features", "density"),
            map(_row, described),
            4,
        )


@app.command()
def show(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Describe a model: its configuration, and how much it has learned."""
    with service_at(url) as service:
        write_json(service.call("GET", path_of("models", name)), None if as_json else 2)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The name of the new model.")],
    config: Annotated[
        str,
        typer.Argument(
            help="Its configuration: JSON, or a file of it, such as `ftrl tune --out` writes;"
            " by default a mixture of four FTRL-Proximal experts, which needs no tuning."
        ),
    ] = "{}",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Create a model.

    The same call again changes nothing; one with another configuration is refused.
    """
    from service.cli.flags import json_or_file

    with service_at(url) as service:
        described = service.call("PUT", path_of("models", name), json_or_file(config, "CONFIG"))
    if as_json:
        write_json(described)
    else:
        write_lines([f"model {name}: {described['hyper']['family']}, {described['t']:,} examples learned"])


@app.command()
def features(
    name: Name,
    by: Annotated[
        Literal["seen", "weight"], typer.Option(help="The most seen first, or the largest weights.")
    ] = "weight",
    most: Annotated[int, typer.Option(min=1, max=1000, help="Max features.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List features of a model with their weights, as far as their names are known."""
    with service_at(url) as service:
        query = {"by": by, "most": str(most)}
        reply = service.call("GET", path_of("models", name, "features"), query=query)
    if as_json:
        write_json(reply)
    elif found := reply["features"]:
        write_table(("feature", "weight", "learning rate", "slot"), map(_feature_row, found))
    else:
        sys.stderr.write(f"ftrl: no feature of {name} has a known name (yet, or FTRL_FEATURE_NAMES is off)\n")


def _feature_row(feature: dict[str, Any]) -> tuple[str, ...]:
    """Several names of one slot are in one line."""
    rate = feature["learning_rate"]
    return (
        " | ".join(json.dumps(name, ensure_ascii=False)[1:-1] for name in feature["names"]),
        f"{feature['weight']:+.6f}",
        "no bound" if rate is None else f"{rate:.6f}",
        str(feature["slot"]),
    )


@app.command()
def delete(
    name: Name,
    url: Url = DEFAULT_URL,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; what it has learned is lost.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a model and all that it has learned, except for its snapshots."""
    with service_at(url) as service:
        described = service.call("GET", path_of("models", name))
        if not yes:
            question = f"Delete {name} and the {described['t']:,} examples that it has learned?"
            typer.confirm(question, abort=True, err=True)
        service.call("DELETE", path_of("models", name))
    if as_json:
        write_json({"deleted": name, "t": described["t"], "revision": described["revision"]})
    else:
        write_lines([f"deleted {name}, which had learned {described['t']:,} examples"])


def _describe_models(service: ServiceClient) -> list[dict[str, Any]]:
    """The description of every model, in order of their names. Those that the service cannot read are
    reported on standard error. Raises CommandFailure.
    """
    from service.cli.http_client import Refused

    described = []
    for name in sorted(service.call("GET", "/models")["models"]):
        try:
            described.append(service.call("GET", path_of("models", name)))
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
            if refused.status == 409:  # at 404 it was deleted meanwhile
                sys.stderr.write(f"ftrl: {refused}\n")
    return described


def _row(model: dict[str, Any]) -> tuple[str, ...]:
    return (
        *(model["name"], model["hyper"]["family"], _champion(model), model["revision"]),
        *(f"{model['t']:,}", f"{model['features_seen']:,}", f"{model['density']:.3f}"),
    )


def _champion(model: dict[str, Any]) -> str:
    follows = model["follows"]
    if follows is None:
        return "-"
    return f"{follows['model']} (deleted)" if follows["status"] == "champion_deleted" else follows["model"]
