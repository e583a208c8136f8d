"""Claims names for aliases, and changes what aliases mean."""

from __future__ import annotations

from service.storage.channel import Channel, Script
from service.storage.records import ALIASES, alias_key, meta_key
from service.storage.scripts.lease import release

_CLAIM = Script("claim_alias")
_SET = Script("set_alias")
_REMEMBER_FORMER = Script("remember_former")


async def claim_alias(channel: Channel, name: str, token: str) -> bool:
    """Claims a name for an alias; False if there is a model of that name."""
    return bool(await _CLAIM(channel, (meta_key(name), alias_key(name)), token))


async def release_claim(channel: Channel, name: str, token: bytes) -> bool:
    """Gives up a claim; False if it is another's."""
    return await release(channel, alias_key(name), token)


async def set_alias(
    channel: Channel, alias: str, model: str | None, changes: str, wait_seconds: float
) -> bool:
    """Makes an alias mean a model, or deletes it; False if aliases have changed since change `changes`.

    `wait_seconds`: how long predictions of the model that it meant may await their labels.
    """
    return bool(await _SET(channel, (ALIASES,), alias, model or "", changes, wait_seconds))


async def remember_former(channel: Channel, model: str, wait_seconds: float) -> None:
    """Extends for how long aliases remember that they meant this model."""
    await _REMEMBER_FORMER(channel, (ALIASES,), model, wait_seconds)
