"""Replaces a model's state with one that was filled beside it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from service.storage.channel import Channel, Script
from service.storage.records import LogId, ModelKeys

_NUMBER = Script("new_generation")
_FILL = Script("fill_state", after=("set_slots",))
_SWITCH = Script("switch_generation")
_RESTORE = Script("restore", after=("log_ids",))


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


async def fill_state(channel: Channel, filled: str, expires_seconds: int, changed: bytes) -> int:
    """Puts slots (records of CHANGED) into a key that no process reads yet; returns how many it holds."""
    return int(await _FILL(channel, (filled,), expires_seconds, changed))


async def switch_generation(
    channel: Channel,
    keys: ModelKeys,
    *,
    generation: int,
    token: bytes,
    new_generation: int,
    new_token: bytes,
    t: int,
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
    slots: int,
    config: str,
    snapshot: str,
    base: LogPoint | None,
    learned: LogPoint | None,
    rolled_back: bool,
) -> SwitchReply:
    """Makes the filled generation the state, if the model is still at `generation`, whatever it has learned.

    `base`: where the log is to be learned on top of the snapshot, `learned`: through where that was done;
    None: what the model has learned now. `rolled_back`: the model returns to the snapshot by itself.
    """
    status, *rest = await _RESTORE(
        channel,
        (keys.meta, keys.state(generation), keys.state(new_generation), keys.commits, keys.log),
        *(keys.incarnation, generation, new_token, new_generation, t, slots, config, snapshot),
        *(part for point in (base, learned) for part in (_arguments(point))),
        int(rolled_back),
    )
    outcome = Switch(status)
    return SwitchReply(outcome, rest[0].decode() if outcome is Switch.TRIMMED else "")


def _arguments(point: LogPoint | None) -> tuple[str, str | int]:
    return ("", "") if point is None else (str(point.id), point.number)
