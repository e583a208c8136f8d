"""The command `ftrl promote`, over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.output import write_json, write_lines
from service.cli.remote import DEFAULT_URL, AsJson, Url, path_of, service_at


def promote(
    challenger: Annotated[str, typer.Argument(help="A model that follows another one.")],
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Let a challenger and its champion exchange states and configurations.

    Requests go on meanwhile. The same command once more is the way back.
    """
    with service_at(url) as service:
        earlier = service.call("GET", path_of("models", challenger, "promotions"))["promotions"]
        number = earlier[0]["number"] + 1 if earlier else 1
        reply = service.call("POST", f"{path_of('models', challenger, 'promote')}?number={number}")
    if as_json:
        write_json(reply)
        return
    model, note = reply["model"], reply["promotion"]
    replayed = f"{reply['replayed']:,} examples replayed, {reply['seconds']:.1f} s"
    write_lines(
        [
            f"{model} is what {challenger} was, since revision {reply['revision'] or 'unknown'} ({replayed})",
            f"{challenger} goes on as what {model} was (snapshot {note['before']})",
            f"the way back: ftrl promote {challenger}",
        ]
    )
