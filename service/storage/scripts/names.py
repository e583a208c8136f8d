"""Notes and reads the names of a model's most seen features."""

from __future__ import annotations

from collections.abc import Mapping

from service.storage.channel import Channel, Script
from service.storage.records import ModelKeys

_NOTE = Script("note_names")


async def note_names(channel: Channel, keys: ModelKeys, seen: Mapping[str, float], max_names: int) -> bool:
    """Adds to the numbers of these names; False if the model is gone."""
    arguments = [part for name, number in seen.items() for part in (number, name)]
    return bool(await _NOTE(channel, (keys.meta, keys.names), keys.incarnation, max_names, *arguments))


async def read_names(channel: Channel, keys: ModelKeys) -> dict[str, float]:
    """The names with their numbers, the most seen first."""
    flat: list[bytes] = await channel.call("ZREVRANGE", keys.names, 0, -1, "WITHSCORES")
    return {name.decode(): float(number) for name, number in zip(flat[::2], flat[1::2], strict=True)}
