"""The evaluation of a model as the learner last committed it, cut down to what the page shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from service.storage.channel import Channel
from service.storage.records import ModelKeys

Windows = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Evaluation:
    """sources: figures by source and window, by weight. slices_t: which slices there are beside it.
    judgement: what is right and wrong about them.
    """

    as_of: str | None = None
    slices_t: int | None = None
    sources: Mapping[str, Windows] = field(default_factory=dict)
    measures: Mapping[str, Any] = field(default_factory=dict)
    judgement: Mapping[str, Any] | None = None

    @property
    def headline(self) -> Windows:
        """Of the probabilities that were served where these are evaluated, else of the progressive ones."""
        return self.sources.get("served") or self.sources.get("progressive") or {}

    def ended_seconds(self, now: float) -> float | None:
        """How long before `now`, in seconds since the epoch, the windows ended."""
        return None if self.as_of is None else now - datetime.fromisoformat(self.as_of).timestamp()

    def json(self) -> dict[str, Any]:
        return {"as_of": self.as_of, "sources": self.sources, "measures": self.measures or None}


async def read_field(channel: Channel, keys: ModelKeys, name: bytes) -> bytes | None:
    """Raises what Channel.call raises."""
    stored: bytes | None = await channel.call("HGET", keys.evaluation, name)
    return stored


def evaluation_of(stored: bytes | None) -> Evaluation:
    if stored is None:
        return Evaluation()
    whole = json.loads(stored)
    return Evaluation(
        as_of=whole.get("as_of"),
        sources={
            source: {window: _of_weight(figures) for window, figures in of_source["windows"].items()}
            for source, of_source in whole.get("sources", {}).items()
            if of_source is not None
        },
        slices_t=whole.get("slices_t"),
        measures=whole.get("measures") or {},
        judgement=whole.get("judgement"),
    )


def _of_weight(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if name != "unweighted"}
