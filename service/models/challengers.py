"""Challengers: models that learn the log of another one, their champion, with another configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from model_core.errors import InvalidInput
from model_core.hashing.contract import HashContract
from service.errors import ChallengerRefused
from service.models.config.model import ModelConfig
from service.storage.channel import Channel
from service.storage.records import Follower, Follows, ModelKeys, mapping_of

MAX_CHALLENGERS = 16
"""Of one champion."""
MAY_DIFFER = frozenset({"bits", "bias", "prior_probability", "strict"})
"""The fields of the hash contract that have no part in the 32-bit hashes and values in the log."""


def challenger_config(champion: ModelConfig, body: Mapping[str, Any]) -> ModelConfig:
    """The configuration of a challenger: that of its champion, with the fields in `body`, as in a PUT. The
    champion's own feedback settings and automatic rollback are not taken over.

    Raises InvalidInput with the path, ChallengerRefused for a contract under which the champion's log would
    have other hashes.
    """
    for section in ("feedback", "snapshots"):
        if section in body:
            raise InvalidInput(
                (section,), "of a challenger is that of its champion: leave it out", "unknown_field"
            )
    own = champion.to_json()
    sections = {name: body.get(name, {}) for name in ("hyper", "hashing", "evaluation")}
    for name, section in sections.items():
        if not isinstance(section, Mapping):
            raise InvalidInput((name,), "must be an object", "wrong_type")
    unknown = {name: body[name] for name in body if name not in sections}
    config = ModelConfig.from_json(
        {name: _kept(own[name], section) | section for name, section in sections.items()} | unknown
    )
    for name in (field.name for field in fields(HashContract)):
        ours, theirs = config.hashing.to_json()[name], champion.hashing.to_json()[name]
        if name not in MAY_DIFFER and ours != theirs:
            raise ChallengerRefused(
                f"hashing.{name} must be that of the champion, {theirs!r}: its log is learned. Leave it out.",
                extra={"field": f"hashing.{name}"},
            )
    if config.evaluation.slices not in ((), champion.evaluation.slices):
        raise ChallengerRefused(
            "evaluation.slices must be those of the champion, or none: its log names no other values.",
            extra={"field": "evaluation.slices"},
        )
    return config


def _kept(own: Mapping[str, Any], section: Mapping[str, Any]) -> dict[str, Any]:
    """What a challenger keeps of a section of its champion; l1 and forgetting are not those of a mixture."""
    is_mixture = isinstance(rate := section.get("rate"), Mapping) and rate.get("kind") == "mixture"
    return {name: value for name, value in own.items() if not (is_mixture and name in ("l1", "forgetting"))}


async def report_follower(channel: Channel, champion: ModelKeys, name: str, follower: Follower) -> None:
    """Note for the champion how far a challenger has learned its log. Raises what Channel.call raises."""
    await channel.call("HSET", champion.followers, name, follower.packed())


async def forget_follower(channel: Channel, champion: ModelKeys, name: str) -> None:
    """Raises what Channel.call raises."""
    await channel.call("HDEL", champion.followers, name)


async def read_followers(channel: Channel, champion: ModelKeys) -> dict[str, Follower]:
    """The challengers of a model, by name. Raises what Channel.call raises."""
    found = mapping_of(await channel.call("HGETALL", champion.followers))
    return {name.decode(): Follower.parse(stored) for name, stored in sorted(found.items())}


async def learned_by_champion(channel: Channel, follows: Follows) -> int | None:
    """The number of the first example that the champion has not learned; None if it was deleted.

    Raises what Channel.call raises.
    """
    incarnation, learned = await channel.call("HMGET", follows.keys.meta, "incarnation", "applied_number")
    if incarnation is None or incarnation.decode() != follows.incarnation:
        return None
    return int(learned)
