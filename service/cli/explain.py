"""The command `ftrl explain`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from service.cli.example import Model, Source, example_in
from service.cli.output import write_json, write_lines, write_table
from service.cli.remote import DEFAULT_URL, AsJson, Url, path_of, service_at


def explain(
    source: Source = "-",
    url: Url = DEFAULT_URL,
    model: Model = "default",
    as_json: AsJson = False,
) -> None:
    """Show which features make a prediction what it is, largest contributions first."""
    body = example_in(source)
    with service_at(url) as service:
        explanation = service.call("POST", path_of("models", model, "explain"), body)
    if as_json:
        write_json(explanation)
    else:
        features = sorted(explanation["features"], key=lambda part: -abs(part["contribution"]))
        headings = ("feature", "contribution", "weight", "value", "learning rate", "slot")
        write_table(headings, map(_row, features))
        write_lines(_remarks(explanation))


def _row(feature: dict[str, Any]) -> tuple[str, ...]:
    return (
        json.dumps(feature["name"], ensure_ascii=False)[1:-1],
        f"{feature['contribution']:+.6f}",
        f"{feature['weight']:+.6f}",
        f"{feature['value']:g}",
        _number(feature["learning_rate"]),
        "" if feature["slot"] is None else str(feature["slot"]),
    )


def _remarks(explanation: dict[str, Any]) -> Iterator[str]:
    for shared in explanation["shared_slots"]:
        yield f"Slot {shared['slot']} is shared: {', '.join(shared['names'])}"
    for part in explanation["features"]:
        if others := part["also_in_slot"]:
            yield f"Slot {part['slot']} of {part['name']} is also that of {', '.join(others)}"
    for number, expert in enumerate(explanation.get("experts") or []):
        yield f"expert {number}: weight {expert['weight']:.4f}, log-odds {expert['margin']:+.6f}"
    mixing = explanation.get("mixing")
    yield (
        f"log-odds {explanation['margin']:+.6f} (offset {explanation['offset']:+.6f}"
        f"{'' if mixing is None else f', mixing {mixing:+.6f}'}),"
        f" uncertainty {_number(explanation['uncertainty'])}:"
        f" probability {explanation['probability']:.6f}, revision {explanation['revision']}"
    )


def _number(value: float | None) -> str:
    return "no bound" if value is None else f"{value:.6f}"
