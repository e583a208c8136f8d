"""Refuses models that hash otherwise than a schema says: live requests would miss the slots of its rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from service.errors import CommandFailure

MAX_SHOWN = 200


def check_contract(
    model: str, wanted: Mapping[str, Any], hashing: Mapping[str, Any], given: Collection[str] = ()
) -> None:
    """Raise CommandFailure if a model's hash contract lacks what is `wanted`, that is what a schema declares.

    Parts that are `given` by the command itself are not compared. The contract may declare other names, too.
    """
    for part in wanted.keys() - set(given):
        if not _has(hashing[part], wanted[part]):
            raise CommandFailure(
                f"model {model} has other {part} than the schema: {_shown(hashing[part])}, not"
                f" {_shown(wanted[part])}; give the model that was created with it, or a new one"
                " (--model NAME)"
            )


def _has(part: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return all(cross in part for cross in wanted)
    if isinstance(part, dict) and isinstance(wanted, dict):
        return all(part.get(name) == value for name, value in wanted.items())
    return bool(part == wanted)


def _shown(part: object) -> str:
    text = json.dumps(part, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
