"""The evaluation of a model as the learner last committed it, cut down to what the page shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.redis_client import Channel
from service.redis_keys import FIGURES, ModelKeys

OF_A_SLICE = (
    *("examples", "clicks", "base_rate", "calibration_ratio", "calibration_tolerance"),
    *("auc", "log_loss"),
)

Windows = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Evaluation:
    """sources: figures by source and window, by weight. slices: by feature, value and window."""

    as_of: str | None = None
    sources: Mapping[str, Windows] = field(default_factory=dict)
    slices: Mapping[str, Mapping[str, Windows]] = field(default_factory=dict)
    measures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def headline(self) -> Windows:
        """Of the probabilities that were served where these are evaluated, else of the progressive ones."""
        return self.sources.get("served") or self.sources.get("progressive") or {}

    def json(self) -> dict[str, Any]:
        """All but the slices."""
        return {"as_of": self.as_of, "sources": self.sources, "measures": self.measures or None}


async def read_figures(channel: Channel, keys: ModelKeys) -> bytes | None:
    """Raises what Channel.call raises."""
    stored: bytes | None = await channel.call("HGET", keys.evaluation, FIGURES)
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
        slices={
            feature: {
                value: {window: _in_short(figures) for window, figures in windows.items()}
                for value, windows in values.items()
            }
            for feature, values in (whole.get("slices") or {}).items()
        },
        measures=whole.get("measures") or {},
    )


def _of_weight(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if name != "unweighted"}


def _in_short(figures: Mapping[str, Any]) -> dict[str, Any]:
    """There may be hundreds of them."""
    found = {name: figures[name] for name in OF_A_SLICE}
    return {name: float(f"{v:.5g}") if isinstance(v, float) else v for name, v in found.items()}
