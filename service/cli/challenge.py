"""`ftrl challenge`: a model that learns the log of another one, with another configuration."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from service.cli.flags import checked_model_name, json_or_file
from service.cli.output import write_json, write_lines
from service.cli.remote import DEFAULT_URL, AsJson, Url, path_of, service_at


def challenge(
    champion: Annotated[str, typer.Argument(help="The model whose log is learned, or an alias of it.")],
    name: Annotated[str, typer.Option(help="The name of the new model.", callback=checked_model_name)],
    hyper: Annotated[
        str | None,
        typer.Option(help="Other hyperparameters: JSON, or a file of it; the rest is the champion's."),
    ] = None,
    hashing: Annotated[
        str | None, typer.Option(help="Other bits, bias or prior_probability: JSON, or a file of it.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="`state`: as the champion is now; `now`: empty; `log`: empty, with all that the log still"
            " has; or a snapshot of the champion, by id or tag. Left out: `state` if that fits, else `now`."
        ),
    ] = None,
    promote_after: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Promote it automatically once it has been better than its champion, by more than chance,"
            " for so many examples. Left out: never.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Create a challenger: a model that learns the log of another one, its champion.

    It can be predicted with like any model and takes no updates of its own. The same call again changes
    nothing but --promote-after.
    """
    body: dict[str, Any] = {"follows": champion}
    if hyper is not None:
        body["hyper"] = json_or_file(hyper, "--hyper")
    if hashing is not None:
        body["hashing"] = json_or_file(hashing, "--hashing")
    if start is not None:
        body["start"] = start
    if promote_after is not None:
        body["promote"] = {"when": "better", "for_examples": promote_after}
    with service_at(url) as service:
        described = service.call("PUT", path_of("models", name), body)
    if as_json:
        write_json(described)
        return
    follows = described["follows"]
    begun = f"began with {follows['start']}, {described['t']:,} examples learned"
    write_lines([f"model {name} follows {follows['model']}: {described['hyper']['family']}, {begun}"])
