"""How labels are waited for, changed while predictions wait: one step for all processes.

What a model was created with stays in its `config`; what is in force by now is the field `feedback` of its
meta. Every script of predictions that wait compares that with what its caller has the settings from, so that
none acts on others than those in force: a process that is refused takes them over and calls again.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from model_core.errors import InvalidInput
from service.errors import FixedAtCreation, StateUnavailable
from service.models.aliases import Aliases
from service.models.config.model import checked_config
from service.models.config.sections import FeedbackConfig
from service.models.registry import Models, OpenModel
from service.models.replica import read_meta
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
"""How long each kind of predictions waits (waiting.lua): the longest of these. One with a label (g) is listed
so long after it was kept or later, and its value says when its grace is over: the sweep waits for both.
"""


class Changed(NamedTuple):
    """`stored`: see Meta.feedback."""

    incarnation: str
    config: FeedbackConfig
    stored: bytes


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
        async with models.channel() as channel:
            changed = await change_feedback(channel, name, sections.get("feedback", {}))
        await aliases.remember_former(name, changed.config.longest_wait_seconds)
    except StateUnavailable as away:
        raise StateUnavailable(f"{away.detail} The same request again is safe.") from away
    model = await models.get(name)
    replica = model.mirror.replica
    if replica.keys.incarnation == changed.incarnation:
        replica.take_feedback(changed.stored, changed.config)
    return model


async def change_feedback(channel: Channel, model: str, fields: Mapping[str, Any]) -> Changed:
    """Gives some fields other values, of those that are in force when it does. What waits so far is due by
    the new times.

    Raises ModelGone, InvalidInput with the path, FixedAtCreation, ContractMismatch, StateUnavailable where
    others change it all the time, and what Channel.call raises.
    """
    for _ in range(MAX_ATTEMPTS):
        meta = await read_meta(channel, model)
        config = checked_config(model, meta)
        so_far, asked = config.feedback, config.changed({"feedback": fields}).feedback
        _refuse_fixed(model, so_far, asked)
        if asked == so_far:
            return Changed(meta.incarnation, so_far, meta.feedback)
        stored = json.dumps(asked.to_json(), sort_keys=True, separators=(",", ":")).encode()
        if await _swap(channel, model, meta, stored, _longer(so_far, asked)):
            log.info("the feedback of model %s is changed: %s", model, _told(so_far, asked))
            return Changed(meta.incarnation, asked, stored)
    raise StateUnavailable(f"The feedback of {model!r} is changed by others all the time; try again.")


async def _swap(channel: Channel, model: str, meta: Meta, stored: bytes, longer: Mapping[str, int]) -> bool:
    """False where it is another one by now, or the model is."""
    keys = ModelKeys(model, meta.incarnation)
    return await swap_feedback(channel, keys, expected=meta.feedback, new=stored, longer=longer)


def _longer(so_far: FeedbackConfig, asked: FeedbackConfig) -> dict[str, int]:
    """By how many seconds each kind waits longer; less than 0: shorter. Lists are due at whole seconds, and
    are to be due again at the same where a change is taken back.
    """
    changes = {kind: _whole_seconds(asked, kind) - _whole_seconds(so_far, kind) for kind in WAITS}
    return {kind: seconds for kind, seconds in changes.items() if seconds}


def _whole_seconds(config: FeedbackConfig, kind: str) -> int:
    return math.ceil(max(float(getattr(config, name)) for name in WAITS[kind]))


def _refuse_fixed(model: str, so_far: FeedbackConfig, asked: FeedbackConfig) -> None:
    if asked.exposure != so_far.exposure:
        raise FixedAtCreation(
            f"feedback.exposure of {model!r} is {so_far.exposure!r} for good: what waits goes by it, and what"
            f" callers send. Clone the model with {asked.exposure!r} and switch an alias to the clone."
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


def _told(so_far: FeedbackConfig, asked: FeedbackConfig) -> str:
    before, after = so_far.to_json(), asked.to_json()
    return ", ".join(
        f"{name} {before[name]} -> {after[name]}" for name in after if before[name] != after[name]
    )
