"""The command `ftrl predict`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from service.cli.example import Model, Source, example_in
from service.cli.output import write_json, write_lines
from service.cli.remote import DEFAULT_URL, AsJson, Url, path_of, service_at


def predict(
    source: Source = "-",
    url: Url = DEFAULT_URL,
    model: Model = "default",
    as_json: AsJson = False,
) -> None:
    """Predict the click probability of an example.

    Nothing is logged or learned. `ftrl explain` shows where the probability comes from.
    """
    body = example_in(source)
    with service_at(url) as service:
        reply = service.call("POST", path_of("models", model, "predict"), body)
    if as_json:
        write_json(reply)
    else:
        write_lines(_lines_of(reply))


def _lines_of(reply: dict[str, Any]) -> Iterator[str]:
    for one in reply.get("predictions", [reply]):
        name = f"  {one['id']}" if "id" in one else ""
        yield f"{one['probability']:.6f}{name}"
    yield f"model {reply['model']}, revision {reply['revision']}"
