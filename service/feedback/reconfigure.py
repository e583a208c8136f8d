"""Changes of the feedback settings of a model while predictions are pending: one step for all processes.

The settings at creation stay in `config`; those in force are the field `feedback` of the model's meta. Every
script of pending predictions compares that field with the one its caller has read, so that none acts on
outdated settings: a process that is refused takes over the new ones and calls again.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from model_core.errors import InvalidInput
from service.errors import FixedAtCreation, StateUnavailable
from service.models.aliases import Aliases
from service.models.config.model import checked_config
from service.models.config.sections import FeedbackConfig
from service.models.registry import Models, OpenModel
from service.models.replica import read_meta, refresh_feedback
from service.storage.channel import Channel
from service.storage.records import Meta, ModelKeys
from service.storage.scripts.feedback import change_feedback as swap_feedback

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 20
WAITS = {
    "u": ("unshown_seconds",),
    "g": ("unshown_seconds", "grace_seconds"),
    "i": ("window_seconds",),
    "c": ("late_seconds",),
}
"""The time that each kind of pending predictions is listed (waiting.lua): the longest of these. A prediction
with a label (g) is listed for that long after it was logged or later, and its value says when its grace is
over: the sweep waits for both.
"""


async def change_model(
    models: Models, aliases: Aliases, name: str, sections: Mapping[str, Mapping[str, Any]]
) -> OpenModel:
    """Changes a model in place, in this process at once; only `feedback` can change.

    Raises what change_feedback raises, InvalidInput with the path for another section, AliasConflict,
    UnknownModel, and StateUnavailable, after which the same change may be sent again.
    """
    refuse_other_sections(sections)
    await aliases.refuse(name)
    try:
        (await models.get(name)).require_own_log()
        async with models.channel() as channel:
            changed = await change_feedback(channel, name, sections.get("feedback", {}))
            await aliases.remember_former(name, changed.longest_wait_seconds)
            model = await models.get(name)
            await refresh_feedback(channel, model.mirror.replica)
    except StateUnavailable as away:
        raise StateUnavailable(f"{away.detail} The same request again is safe.") from away
    return model


async def change_feedback(channel: Channel, model: str, fields: Mapping[str, Any]) -> FeedbackConfig:
    """Changes some fields of the settings in force, and returns the result. Pending predictions become due by
    the new times.

    Raises ModelGone, InvalidInput with the path, FixedAtCreation, ContractMismatch, StateUnavailable if other
    changes come first MAX_ATTEMPTS times, and what Channel.call raises.
    """
    for _ in range(MAX_ATTEMPTS):
        meta = await read_meta(channel, model)
        config = checked_config(model, meta)
        so_far, asked = config.feedback, config.changed({"feedback": fields}).feedback
        _refuse_fixed(model, so_far, asked)
        if asked == so_far:
            return so_far
        stored = json.dumps(asked.to_json(), sort_keys=True, separators=(",", ":")).encode()
        if await _swap(channel, model, meta, stored, _longer(so_far, asked)):
            log.info("feedback settings of model %s changed: %s", model, _differences(so_far, asked))
            return asked
    raise StateUnavailable(f"Other requests keep changing the feedback settings of {model!r}; try again.")


async def _swap(channel: Channel, model: str, meta: Meta, stored: bytes, longer: Mapping[str, int]) -> bool:
    """False if the settings in force, or the model, are no longer those of `meta`."""
    keys = ModelKeys(model, meta.incarnation)
    return await swap_feedback(channel, keys, expected=meta.feedback, new=stored, longer=longer)


def _longer(so_far: FeedbackConfig, asked: FeedbackConfig) -> dict[str, int]:
    """The seconds by which each kind is listed longer; less than 0: shorter. Lists are due at whole seconds,
    and must be due at the same time again if a change is reverted.
    """
    changes = {kind: _whole_seconds(asked, kind) - _whole_seconds(so_far, kind) for kind in WAITS}
    return {kind: seconds for kind, seconds in changes.items() if seconds}


def _whole_seconds(config: FeedbackConfig, kind: str) -> int:
    return math.ceil(max(float(getattr(config, name)) for name in WAITS[kind]))


def _refuse_fixed(model: str, so_far: FeedbackConfig, asked: FeedbackConfig) -> None:
    if asked.exposure != so_far.exposure:
        raise FixedAtCreation(
            f"feedback.exposure of {model!r} is {so_far.exposure!r} and cannot change: pending"
            f" predictions and callers rely on it. Clone the model with {asked.exposure!r} and switch an"
            " alias to the clone."
        )


def refuse_other_sections(body: Mapping[str, Any]) -> None:
    """Raises InvalidInput with the path."""
    for name in body:
        if name in ("hyper", "hashing", "evaluation", "snapshots"):
            way = "clone the model with another one" if name == "hyper" else "create another model"
            raise InvalidInput(
                (name,), f"is fixed at creation, only `feedback` changes in place; {way}", "unknown_field"
            )
        if name != "feedback":
            raise InvalidInput((name,), "unknown field; what changes in place is `feedback`", "unknown_field")


def _differences(so_far: FeedbackConfig, asked: FeedbackConfig) -> str:
    before, after = so_far.to_json(), asked.to_json()
    return ", ".join(
        f"{name} {before[name]} -> {after[name]}" for name in after if before[name] != after[name]
    )
