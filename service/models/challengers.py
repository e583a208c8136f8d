"""Challengers: models that learn the log of another one, their champion, with another configuration."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from model_core.errors import FormatError, InvalidInput
from model_core.evaluation.comparison import PairedComparison
from model_core.hashing.contract import HashContract
from service.errors import ChallengerRefused
from service.models.config.model import ModelConfig
from service.models.evaluation.comparison import Comparison
from service.models.replica import ModelGone, read_meta
from service.storage.channel import Channel
from service.storage.records import COMPARISON, Follower, Follows, Meta, ModelKeys, mapping_of

log = logging.getLogger(__name__)

MAX_CHALLENGERS = 16
"""How many challengers one champion may have."""
MAY_DIFFER = frozenset({"bits", "bias", "prior_probability", "strict"})
"""The fields of the hash contract that have no part in the 32-bit hashes and values in the log."""


def challenger_config(champion: ModelConfig, body: Mapping[str, Any]) -> ModelConfig:
    """The configuration of a challenger: that of its champion, with the fields in `body`, as in a PUT. The
    champion's own feedback settings and automatic rollback are not taken over.

    Raises InvalidInput with the path, ChallengerRefused for what only the champion has, and for a contract
    under which its log would have other hashes.
    """
    for section in ("feedback", "snapshots"):
        if section in body:
            raise ChallengerRefused(
                f"`{section}` of a challenger is that of its champion: leave it out.",
                extra={"field": section},
            )
    own = champion.to_json()
    sections = {name: body.get(name, {}) for name in ("hyper", "hashing", "evaluation")}
    for name, section in sections.items():
        if not isinstance(section, Mapping):
            raise InvalidInput((name,), "must be an object", "wrong_type")
    unknown = {name: body[name] for name in body if name not in sections}
    config = ModelConfig.from_json(
        {name: _inherited(own[name], section) | section for name, section in sections.items()} | unknown
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


def _inherited(own: Mapping[str, Any], section: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a challenger has of a section of its champion; a mixture has no l1 or forgetting."""
    is_mixture = isinstance(rate := section.get("rate"), Mapping) and rate.get("kind") == "mixture"
    return {name: value for name, value in own.items() if not (is_mixture and name in ("l1", "forgetting"))}


@dataclass(frozen=True)
class Challenger:
    """`behind`: examples that its champion has learned and it has not. `comparison`: with its champion."""

    name: str
    meta: Meta
    behind: int
    comparison: PairedComparison

    def differences(self, champion: ModelConfig) -> dict[str, tuple[Any, Any]]:
        """The fields of its configuration that differ, by their path: the champion's value and its own."""
        ours, theirs = champion.to_json(), ModelConfig.from_json(json.loads(self.meta.config)).to_json()
        return {
            f"{section}.{name}": (one, other)
            for section in ("hyper", "hashing", "evaluation")
            for name in sorted(ours[section].keys() | theirs[section].keys())
            if (one := ours[section].get(name)) != (other := theirs[section].get(name))
        }


async def read_challengers(channel: Channel, champion: ModelKeys) -> list[Challenger]:
    """The challengers of a model, by name. Raises ModelGone, and what Channel.call raises."""
    champion_meta = await read_meta(channel, champion.model)
    found = []
    for name, follower in (await read_followers(channel, champion)).items():
        keys = ModelKeys(name, follower.incarnation)
        stored = await channel.call("HGET", keys.evaluation, COMPARISON)
        try:
            meta = await read_meta(channel, name)
        except ModelGone:  # deleted meanwhile
            continue
        if meta.incarnation == follower.incarnation:
            comparison = _comparison(name, stored, (champion_meta.generation, meta.generation))
            behind = max(0, champion_meta.applied_number - meta.applied_number)
            found.append(Challenger(name, meta, behind, comparison))
    return found


def _comparison(name: str, stored: bytes | None, generations: tuple[int, int]) -> PairedComparison:
    """The comparison of the states of these generations; a new one if two others were compared last."""
    try:
        comparison = Comparison.parse(stored) if stored else Comparison()
        return comparison.paired if comparison.compared == generations else PairedComparison()
    except FormatError as damage:  # its learner begins a new one
        log.warning("the comparison of %s cannot be read: %s", name, damage)
        return PairedComparison()


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
