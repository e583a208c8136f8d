"""Refuses models that hash otherwise than a schema says: live requests would miss the slots of its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from service.cli.replay.summary import ReplayPlan
from service.errors import CommandFailure

MAX_SHOWN = 200


def check_contract(plan: ReplayPlan, hashing: Mapping[str, Any]) -> None:
    """Raise CommandFailure if the hash contract of the plan's model lacks what the schema declares.

    What the command's own --hashing says is not compared. The contract may declare other names, too.
    """
    given = plan.config.get("hashing", {})
    for part in plan.contract.keys() - given.keys():
        if not _has(hashing[part], plan.contract[part]):
            raise CommandFailure(
                f"model {plan.model} has other {part} than the schema: {_shown(hashing[part])}, not"
                f" {_shown(plan.contract[part])}; give the model that was created with it, or a new one"
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
