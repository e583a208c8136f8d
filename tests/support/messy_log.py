"""A made-up log with what logs of companies have: ids, times, leaks, lists, codes, prices, missing values."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from typing import Any

NAMES = (
    *("", "request_id", "ts", "app", "ip", "position", "price", "views", "zip", "tags", "city", "attributed"),
    *("clicked", "state"),
)


def rows(count: int = 2000, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Only `app` and `views` matter; `attributed` and `state` are known after the click."""
    chance = random.Random(seed)
    moment = dt.datetime(2017, 11, 6, 14, tzinfo=dt.UTC)
    strength = [chance.choice((0.05, 0.5)) for _ in range(20)]
    for i in range(count):
        app, views = chance.randrange(20), int(chance.lognormvariate(2, 2))
        clicked = chance.random() < strength[app] * (0.4 if views < 8 else 1.0)
        moment += dt.timedelta(seconds=chance.randrange(60))
        values = (
            *(i, f"{chance.getrandbits(64):016x}", f"{moment:%Y-%m-%d %H:%M:%S}", 100_000 + 37 * app),
            *(chance.randrange(900), chance.randrange(1, 4), f"{chance.lognormvariate(1, 1):.2f}", views),
            *(f"0{chance.randrange(1000, 1200)}", "|".join(f"t{chance.randrange(20)}" for _ in range(i % 5))),
            "NULL" if chance.random() < 0.1 else f"c{chance.randrange(9)}",
            f"{moment + dt.timedelta(seconds=100):%Y-%m-%d %H:%M:%S}" if clicked else "",
            *("yes" if clicked else "no", 2 if clicked else 1),
        )
        yield dict(zip(NAMES, values, strict=True))


def as_table(separator: str = ",", *, header: bool = True, columns: tuple[str, ...] = NAMES) -> str:
    lines = [separator.join(columns)] if header else []
    lines += [separator.join(str(row[name]) for name in columns) for row in rows()]
    return "\n".join(lines) + "\n"
