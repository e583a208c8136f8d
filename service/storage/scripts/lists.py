"""Lists through which processes send each other messages."""

from __future__ import annotations

from service.storage.channel import Channel, Script

_PUSH = Script("push")


async def push(channel: Channel, key: str, value: str | bytes, expires_seconds: int) -> int:
    """Adds to a list that expires unless it is added to again; returns its length."""
    return int(await _PUSH(channel, (key,), value, expires_seconds))
