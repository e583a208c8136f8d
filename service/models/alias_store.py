"""Stored aliases. A name belongs to a model or to an alias, never to both.

The targets of aliases are one hash, a model has keys of its own, and in a cluster no script sees both. So an
alias also claims its name with a key beside those that a model of that name would have: one script claims the
name unless the model exists, and one creates a model unless the name is claimed.

A claim may outlive its alias briefly, never the other way round. Every change of the hash has a number, and
requires that the number is the one that was read before. A process that sets an alias claims its name after
that reading, with a token of its own; a process that deletes one releases only the token that it read before
deleting. A claim that a killed process has left is released, like one of a deleted alias, by the next process
that creates a model of that name.
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
    """The model of each alias, and the models that it meant before, each with the time in Unix seconds when
    the last prediction that it logged is no longer pending. `changes`: the number of the last change.
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
    """Raises AliasConflict if the name is that of an alias, and what Channel.call raises."""
    _refuse_alias(name, await read_aliases(channel))


async def switch_alias(
    channel: Channel, alias: str, model: str | None, changes: str, wait_seconds: float = 0.0
) -> bool:
    """Makes the alias mean the model, or deletes it; False if aliases have changed since `changes`.
    `wait_seconds`: how long predictions logged by its previous model may be pending.

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
    """Releases the claim of an alias that does not exist. Raises AliasConflict if it exists, and what
    Channel.call raises.
    """
    done = False
    while not done:
        meanings = await read_aliases(channel)  # read once for both: it may become an alias afterwards
        _refuse_alias(name, meanings)
        done = await switch_alias(channel, name, None, meanings.changes)


def _refuse_alias(name: str, meanings: Meanings) -> None:
    model = meanings.targets.get(name)
    if model is not None:
        raise AliasConflict(
            f"{name!r} is an alias of model {model!r}, and nothing was done: name the model, or DELETE"
            f" /aliases/{name} first."
        )
