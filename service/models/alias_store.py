"""A name is that of a model or of an alias, never of both.

What aliases mean is one hash, a model is keys of its own, and in a cluster no script sees both. So an alias
also claims its name with a key beside those that a model of that name would have: one script claims it unless
the model is there, and one creates a model unless the name is claimed.

A claim outlives its alias for a moment, never the other way round. Every change of the hash has a number, and
a change is made only by who has read the number before. Whoever sets an alias claims its name after that
reading, with a token of its own; whoever deletes one takes back only a token that it has read before it
deleted. A claim that somebody who was killed has left is taken back, as an alias that is not there is
deleted, by the next who wants to create the model.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from service.errors import AliasConflict
from service.storage.channel import Channel
from service.storage.records import ALIAS_CHANGES, ALIAS_SINCE, ALIASES, alias_key
from service.storage.scripts.aliases import claim_alias, release_claim, set_alias


class Meanings(NamedTuple):
    """Of each alias the model, and those that it meant before, with when their predictions have ceased to
    wait, in Unix seconds. `changes`: the number of the last change.
    """

    targets: Mapping[str, str]
    former: Mapping[str, Mapping[str, int]]
    changes: str


async def read_aliases(channel: Channel) -> Meanings:
    """Raises what Channel.call raises."""
    flat = await channel.call("HGETALL", ALIASES)
    fields = {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
    changes = fields.pop(ALIAS_CHANGES, "")
    targets: dict[str, str] = {}
    former: dict[str, dict[str, int]] = {}
    for name, value in fields.items():
        alias, is_former, model = name.partition("/")
        if name.startswith(ALIAS_SINCE):
            continue
        if is_former:
            former.setdefault(alias, {})[model] = int(value)
        else:
            targets[alias] = value
    return Meanings(targets, former, changes)


async def check_free(channel: Channel, name: str) -> None:
    """Raises AliasConflict where the name is that of an alias, and what Channel.call raises."""
    _refuse_alias(name, await read_aliases(channel))


async def switch_alias(
    channel: Channel, alias: str, model: str | None, changes: str, wait_seconds: float = 0.0
) -> bool:
    """Makes the alias mean the model, or deletes it; False where aliases have changed since `changes`.
    `wait_seconds`: how long predictions may wait that the model so far has logged.

    Raises AliasConflict, and what Channel.call raises.
    """
    if model is not None:
        if not await claim_alias(channel, alias, secrets.token_hex(8)):
            raise AliasConflict(f"{alias!r} is a model; an alias needs a name of its own.")
        return await set_alias(channel, alias, model, changes, wait_seconds)
    held = await channel.call("GET", alias_key(alias))
    done = await set_alias(channel, alias, None, changes, wait_seconds)
    if done and held is not None:
        await release_claim(channel, alias, held)
    return done


async def take_back_claim(channel: Channel, name: str) -> None:
    """Of an alias that is not there. Raises AliasConflict where it is, and what Channel.call raises."""
    done = False
    while not done:
        meanings = await read_aliases(channel)  # one reading for both: it may become an alias after it
        _refuse_alias(name, meanings)
        done = await switch_alias(channel, name, None, meanings.changes)


def _refuse_alias(name: str, meanings: Meanings) -> None:
    model = meanings.targets.get(name)
    if model is not None:
        raise AliasConflict(
            f"{name!r} is an alias of model {model!r}, and nothing was done: name the model, or DELETE"
            f" /aliases/{name} first."
        )
