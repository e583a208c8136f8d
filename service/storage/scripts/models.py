"""Creates, reads, copies, fills, replaces and deletes the stored state of a model."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.storage.channel import Channel, Script
from service.storage.records import (
    DELETION_REMEMBERED_SECONDS,
    LogId,
    ModelKeys,
    alias_key,
    bytes_of,
    deleted_key,
    mapping_of,
    meta_key,
)

_HEAD = Script("head")
_SINCE = Script("since")
_CREATE = Script("create_model")
_CREATE_FILLED = Script("create_filled")
_DELETE = Script("delete_model")
_NUMBER = Script("new_generation")
_FILL = Script("fill_state", after=("hash_fields", "drop_slots"))
_SWITCH = Script("switch_generation")
_RESTORE = Script("restore", after=("log_ids",))
_SET_PROMOTION = Script("set_promotion")


class Head(NamedTuple):
    """``meta`` as field, value, ..., and the last entry of the commits stream at the same moment."""

    meta: list[bytes]
    last_commit: LogId


class Creation(Enum):
    """The outcome of an attempt to create a model. Only CREATED changes anything."""

    CREATED = "created"
    EXISTS = "exists"
    NAME_CLAIMED = "claimed"
    """An alias has claimed the name."""
    INCOMPLETE = "incomplete"
    """The filled state does not hold all its slots any more."""


_CREATION = {1: Creation.CREATED, 0: Creation.EXISTS, -1: Creation.NAME_CLAIMED}
_CREATION_FILLED = {
    b"CREATED": Creation.CREATED,
    b"EXISTS": Creation.EXISTS,
    b"CLAIMED": Creation.NAME_CLAIMED,
    b"INCOMPLETE": Creation.INCOMPLETE,
}


async def set_promotion(channel: Channel, keys: ModelKeys, after: int | None) -> None:
    """Sets for how many examples a challenger has to stay better to be promoted automatically; None: never.
    Changes nothing if the model is gone.
    """
    await _SET_PROMOTION(channel, (keys.meta,), keys.incarnation, "" if after is None else after)


async def read_head(channel: Channel, keys: ModelKeys) -> Head:
    meta, last = await _HEAD(channel, (keys.meta, keys.commits))
    return Head(meta, LogId.parse(last))


async def create_model(channel: Channel, model: str, meta: Mapping[str, str | bytes | int]) -> Creation:
    """Creates a model with these fields of ``meta``, unless its name is taken."""
    fields = (part for field in meta.items() for part in field)
    return _CREATION[await _CREATE(channel, (meta_key(model),), alias_key(model), *fields)]


async def create_filled_model(
    channel: Channel, keys: ModelKeys, filled: str, slots: int, meta: Mapping[str, str | bytes | int]
) -> Creation:
    """Creates a model whose state, of that many slots, is in the key `filled`. May be sent twice."""
    fields = (part for name, value in meta.items() if name != "incarnation" for part in (name, value))
    claim = alias_key(keys.model)
    status, *_ = await _CREATE_FILLED(
        channel, (keys.meta, filled), slots, claim, "incarnation", keys.incarnation, *fields
    )
    return _CREATION_FILLED[status]


async def delete_model(channel: Channel, keys: ModelKeys) -> bool:
    """Deletes one incarnation; False if it is not there."""
    return bool(
        await _DELETE(
            channel,
            (
                *(keys.meta, keys.log, keys.commits, keys.evaluation, keys.lease, keys.slices),
                *(keys.feedback, *keys.impressions, *keys.history, keys.marks, keys.marks_seen),
                *(keys.followers, keys.promotions, keys.names),
            ),
            *(keys.incarnation, keys.state_prefix, keys.due_prefix, keys.events_prefix),
            *(deleted_key(keys.model), DELETION_REMEMBERED_SECONDS),
        )
    )


class Switch(Enum):
    """The outcome of a switch. Only SWITCHED, now or by an earlier attempt, changes anything."""

    SWITCHED = b"SWITCHED"
    MOVED = b"MOVED"
    """The model is not what the filling started from."""
    INCOMPLETE = b"INCOMPLETE"
    """The filled state does not hold all its slots any more."""
    TRIMMED = b"TRIMMED"
    """The log does not continue where the replay ended."""


class SwitchReply(NamedTuple):
    """`first_entry`: where the log goes on, empty at its end, if TRIMMED."""

    status: Switch
    first_entry: str = ""


class LogPoint(NamedTuple):
    """A position in the log: an entry's id, and the number of examples through it."""

    id: LogId | str
    number: int


async def new_generation(channel: Channel, keys: ModelKeys, token: bytes = b"") -> int:
    """Numbers a generation that is to be filled, never the same twice; 0 if the model is gone, or is not at
    `token` where that is given.
    """
    return int(await _NUMBER(channel, (keys.meta,), keys.incarnation, token))


async def fill_state(
    channel: Channel, filled: str, expires_seconds: int, changed: npt.NDArray[np.void], dropped: bytes = b""
) -> int:
    """Puts slots (changed_type) into a key that no process reads yet, and removes others (uint32) from it;
    returns how many it holds.
    """
    return int(await _FILL(channel, (filled,), expires_seconds, bytes_of(changed), dropped))


async def switch_generation(
    channel: Channel,
    keys: ModelKeys,
    *,
    generation: int,
    token: bytes,
    new_generation: int,
    new_token: bytes,
    t: int,
    discount: str,
    slots: int,
    keep_evaluation: bool,
) -> Switch:
    """Makes the filled generation the state, if the model is still at `generation` and `token`."""
    status, *_ = await _SWITCH(
        channel,
        (
            *(keys.meta, keys.state(generation), keys.state(new_generation)),
            *(keys.commits, keys.evaluation),
        ),
        *(keys.incarnation, generation, token, new_token, new_generation, t, slots, int(not keep_evaluation)),
        discount,
    )
    return Switch(status)


async def switch_to_restored(
    channel: Channel,
    keys: ModelKeys,
    *,
    generation: int,
    new_generation: int,
    new_token: bytes,
    t: int,
    discount: str,
    slots: int,
    config: str,
    snapshot: str,
    base: LogPoint | None,
    learned: LogPoint | None,
    rolled_back: bool,
    fingerprint: str,
    learned_digest: str = "",
    promotion: str = "",
) -> SwitchReply:
    """Makes the filled generation the state, if the model is still at `generation`, whatever it has learned.

    `base`: where the log is to be learned on top of the snapshot, `learned`: through where that was done;
    None: what the model has learned now. `rolled_back`: the model returns to the snapshot by itself.
    `learned_digest`: of a challenger, of the entry in its champion's log. `promotion`: a note of the one to
    which it belongs; empty if to none.
    """
    status, *rest = await _RESTORE(
        channel,
        (
            keys.meta,
            keys.state(generation),
            keys.state(new_generation),
            keys.commits,
            keys.log,
            keys.promotions,
        ),
        *(keys.incarnation, generation, new_token, new_generation, t, slots, config, snapshot),
        *(part for point in (base, learned) for part in (_arguments(point))),
        int(rolled_back),
        discount,
        *(learned_digest, fingerprint, promotion),
    )
    outcome = Switch(status)
    return SwitchReply(outcome, rest[0].decode() if outcome is Switch.TRIMMED else "")


def _arguments(point: LogPoint | None) -> tuple[str, str | int]:
    return ("", "") if point is None else (str(point.id), point.number)


class Since(NamedTuple):
    """The current token, the commits after a position, and the evaluation: a consistent snapshot."""

    token: bytes
    commits: list[tuple[LogId, list[bytes]]]
    evaluation: dict[bytes, bytes]


async def read_since(channel: Channel, keys: ModelKeys, position: LogId) -> Since | None:
    """Reads what came after a commit; None if the model was deleted."""
    found = await _SINCE(channel, (keys.meta, keys.commits, keys.evaluation), keys.incarnation, str(position))
    if not found:
        return None
    token, commits, evaluation = found
    return Since(token, [(LogId.parse(entry), fields) for entry, fields in commits], mapping_of(evaluation))
