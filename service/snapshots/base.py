"""With what a model's state began, as its meta says."""

from __future__ import annotations

from typing import NamedTuple

from service.redis_client import Channel
from service.redis_keys import LOG_START, LogId


class Base(NamedTuple):
    """`snapshot`: its id; None: it began with nothing; empty: with what no snapshot holds. The log goes on
    after the entry `applied`, with example `number`.
    """

    snapshot: str | None
    applied: LogId
    number: int


async def read_base(channel: Channel, meta: str) -> Base:
    """Raises what Channel.call raises."""
    snapshot, applied, number = await channel.call("HMGET", meta, "base", "base_applied", "base_number")
    if not snapshot:
        return Base(None if snapshot is None else "", LOG_START, 0)
    return Base(snapshot.decode(), LogId.parse(applied), int(number))
