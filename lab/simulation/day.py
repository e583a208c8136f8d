"""A simulated day as a log: `python -m lab.simulation.day > day.jsonl`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from lab.simulation.world import WORLDS

SECONDS_A_DAY = 86_400
DAY = datetime(2025, 12, 1, tzinfo=UTC)


def examples_of(world: str, rows: int, click_rate: float = 0.05, seed: int = 1) -> Iterator[dict[str, Any]]:
    """The impressions of a day at equal distances, one ad each, as the examples of an update."""
    drawn = WORLDS[world](seed, click_rate, 1, rows)
    for number in range(rows):
        if world == "shock" and number == rows // 2:
            drawn.shock()
        impression = drawn.next()
        yield {
            "features": impression.context | impression.candidates[0],
            "label": int(impression.chances.click < impression.probabilities[0]),
            "event_time": round(DAY.timestamp() + number * SECONDS_A_DAY / rows, 3),
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.simulation.day", description=__doc__)
    parser.add_argument("--rows", type=int, default=864_000, help="impressions of the day (864000: 10/s)")
    parser.add_argument("--world", choices=WORLDS, default="drift", help="how its tastes change (drift)")
    parser.add_argument("--click-rate", type=float, default=0.05, help="approximate click rate (0.05)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed is the same day (1)")
    given = parser.parse_args()
    for example in examples_of(given.world, given.rows, given.click_rate, given.seed):
        sys.stdout.write(json.dumps(example) + "\n")


if __name__ == "__main__":
    main()
