"""Creates, reads and deletes a model's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from service.storage.channel import Channel, Script
from service.storage.records import LogId, ModelKeys, alias_key, meta_key

_HEAD = Script("head")
_CREATE = Script("create_model")
_CREATE_FILLED = Script("create_filled")
_DELETE = Script("delete_model")


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
                *(keys.feedback, *keys.impressions),
            ),
            *(keys.incarnation, keys.state_prefix, keys.due_prefix),
        )
    )
