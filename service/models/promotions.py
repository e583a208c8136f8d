"""The promotions of challengers, as their champion's slot in Redis holds them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from service.models.replica import Replica
from service.storage.channel import Channel
from service.storage.records import ModelKeys

MAX_LISTED = 100


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """One promotion of a challenger. `number`: 1 for the first of its champion.

    `incarnation`, `generation`: of the challenger's state that was promoted; it has this generation until it
    has the former champion's state. `snapshot`: of the promoted state, `before`: of the former champion's,
    both in the champion's store; "" if there is none. `t`: rounds of the promoted state. `reason`: a
    sentence. `milliseconds`: when, since 1970.
    """

    number: int
    challenger: str
    incarnation: str
    generation: int
    snapshot: str
    before: str
    t: int
    reason: str
    milliseconds: int

    @classmethod
    def parse(cls, stored: bytes) -> Promotion | None:
        """Return None for an empty value: no challenger was ever promoted."""
        return cls(**json.loads(stored)) if stored else None

    def packed(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a reply; `time` in seconds since 1970."""
        shown = ("number", "challenger", "snapshot", "before", "t", "reason")
        return {name: getattr(self, name) for name in shown} | {"time": self.milliseconds / 1000}


async def read_promotions(channel: Channel, champion: ModelKeys) -> list[Promotion]:
    """Return the newest first, at most MAX_LISTED. Raises what Channel.call raises."""
    found = await channel.call("XREVRANGE", champion.promotions, "+", "-", "COUNT", MAX_LISTED)
    return [promotion for _, (_, stored) in found if (promotion := Promotion.parse(stored))]


async def newest_promotion(channel: Channel, champion: ModelKeys) -> Promotion | None:
    """Return the last promotion of a challenger of this model. Raises what Channel.call raises."""
    return Promotion.parse(await channel.call("HGET", champion.meta, "promoted") or b"")


async def open_promotion(channel: Channel, challenger: Replica) -> Promotion | None:
    """Return the promotion after which this challenger does not have the former champion's state yet, if any.

    Raises what Channel.call raises.
    """
    last = await newest_promotion(channel, challenger.log_keys)
    promoted = last and (last.challenger, last.incarnation, last.generation)
    return (
        last
        if promoted == (challenger.keys.model, challenger.keys.incarnation, challenger.generation)
        else None
    )
