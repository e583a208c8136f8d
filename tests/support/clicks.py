"""Impressions with clicks drawn from known rates: a stream on which a model can be right."""

from __future__ import annotations

import math
import random
from typing import Any

SITES, ADS, HOURS = 40, 60, 24
DEVICES = ("phone", "tablet", "desktop")


class Clicks:
    """The same stream for the same seed; about 12 % of the impressions are clicked."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._effects = {
            name: self._random.gauss(0.0, 0.8)
            for name in (
                *(f"s{i}" for i in range(SITES)),
                *(f"a{i}" for i in range(ADS)),
                *(f"h{i}" for i in range(HOURS)),
                *DEVICES,
            )
        }

    def example(self) -> dict[str, Any]:
        """The body of an example for `/update`."""
        pick = self._random.randrange
        values = {
            "site": f"s{int(SITES * self._random.random() ** 2)}",
            "ad": f"a{pick(ADS)}",
            "hour": f"h{pick(HOURS)}",
            "device": self._random.choice(DEVICES),
        }
        margin = -2.6 + sum(self._effects[value] for value in values.values())
        clicked = self._random.random() < 1.0 / (1.0 + math.exp(-margin))
        return {"features": values, "label": int(clicked)}

    def examples(self, count: int) -> list[dict[str, Any]]:
        return [self.example() for _ in range(count)]
