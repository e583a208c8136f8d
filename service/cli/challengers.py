"""`ftrl challengers`: how the challengers of a model of a running service compare with it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from service.cli.output import write_json, write_lines, write_table
from service.cli.remote import DEFAULT_URL, AsJson, Url, path_of, service_at


def challengers(
    model: Annotated[str, typer.Argument(help="The champion.")] = "default",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Compare the challengers of a model with it, on the same examples, predicted before they were learned.

    A gain above 0 is a lower log loss of the challenger. Its interval may be looked at at any time.
    """
    with service_at(url) as service:
        reply = service.call("GET", path_of("models", model, "challengers"))
    if as_json:
        write_json(reply)
    elif not reply["challengers"]:
        write_lines([f"no model follows {reply['model']}"])
    else:
        headings = (
            "challenger",
            "verdict",
            "since pair",
            "behind",
            "pairs",
            "gain",
            "low",
            "high",
            "calibration",
        )
        write_table((*headings, "differs in"), map(_row, reply["challengers"]), 2, 1)


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    compared = one["comparison"]
    loss = compared["champion"]["log_loss"]
    gain, bounds = compared["difference"], compared["interval"] or (None, None)
    return (
        *(one["name"], compared["verdict"], f"{compared['verdict_pairs']:,}"),
        *(f"{one['behind_examples']:,}", f"{compared['pairs']:,}"),
        *(f"{number / loss:+.2%}" if loss and number is not None else "-" for number in (gain, *bounds)),
        compared["calibration"],
        ", ".join(f"{path}: {_short(value['challenger'])}" for path, value in one["differs"].items()) or "-",
    )


def _short(value: Any) -> str:
    return "..." if isinstance(value, (dict, list)) else str(value)
