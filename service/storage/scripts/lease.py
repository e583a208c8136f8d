"""Keys that belong to one holder: leases, and claims of names."""

from __future__ import annotations

from service.storage.channel import Channel, Script

_TAKE = Script("lease")
_RELEASE = Script("release_lease")


async def take(channel: Channel, key: str, holder: str, milliseconds: int) -> bool:
    """Takes a free lease or renews the holder's; False if another holds it."""
    return bool(await _TAKE(channel, (key,), holder, milliseconds))


async def release(channel: Channel, key: str, holder: str | bytes) -> bool:
    """Releases a lease or a claim; False if it is another's."""
    return bool(await _RELEASE(channel, (key,), holder))
