"""Steady simulated traffic to three models for as long as it runs: `python -m lab.simulation`.

It fills the dashboards of docker-compose.yml. It creates its models if they are missing, continues with them
otherwise, and deletes nothing. The world of the third drifts, and a challenger that forgets learns beside it:
after some minutes it is better by more than chance, and takes its place automatically. While all of its
traffic is answered, it touches the file that the health check of its container looks at.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.simulation.policies import BITS
from lab.simulation.traffic import Habits, Traffic
from lab.simulation.world import DriftingWorld, World
from service.cli.remote import service_at
from service.errors import CommandFailure

ROUND_SECONDS = 3600.0
"""After which the record of what was sent and answered starts again, so that it stays small."""
LOOK_SECONDS = 1.0
PROMOTE_AFTER = 200
SLICES = ["device", "site", "position"]


@dataclass(frozen=True)
class Show:
    """One model, and the world of its impressions. `rate`: impressions a second. `length`: of a world that
    drifts, impressions. `challenger`: how the model's challenger differs in `hyper`; empty if it has none.
    """

    model: str
    rate: float
    click_rate: float
    seed: int
    hyper: dict[str, Any]
    length: int | None = None
    challenger: dict[str, Any] = field(default_factory=dict)

    def world(self) -> World:
        if self.length is None:
            return World(self.seed, self.click_rate, candidates=5)
        return DriftingWorld(self.seed, self.click_rate, candidates=2, length=self.length)

    def config(self) -> dict[str, Any]:
        times = {"window_seconds": 10, "unshown_seconds": 10, "late_seconds": 100}
        return {
            "hyper": self.hyper,
            "hashing": {"bits": BITS, "prior_probability": self.click_rate},
            "evaluation": {"slices": SLICES},
            "feedback": times | {"learn_at": "window_close", "late": "drop"},
        }


SHOWS = (
    Show("display-ads", rate=12, click_rate=0.05, seed=1, hyper={"family": "ftrl", "l1": 0.1}),
    Show("shop-offers", rate=6, click_rate=0.2, seed=2, hyper={"family": "rda", "l1": 0.1}),
    Show(
        "news",
        rate=30,
        click_rate=0.3,
        seed=3,
        hyper={"family": "ftrl", "l1": 0.1},
        length=4000,
        challenger={"forgetting": {"half_life_examples": 1000}},
    ),
)


class Demo:
    """The traffic of one show."""

    def __init__(self, url: str, show: Show) -> None:
        self._url = url
        self._show = show
        self._earlier = 0
        self._traffic: Traffic | None = None

    @property
    def sent(self) -> int:
        """Impressions that were predicted."""
        traffic = self._traffic
        return self._earlier + (0 if traffic is None else len(traffic.record.seconds))

    def run(self) -> None:
        """Send until the process ends. Raises CommandFailure."""
        show = self._show
        habits = Habits(delay_seconds=2.5, lost=0.01, repeated=0.05, early=0.01, retried=0.02)
        create(self._url, show)
        world = show.world()
        while True:
            run = f"demo-{show.seed}-{time.time_ns():x}"
            traffic = self._traffic = Traffic([self._url], show.model, world, habits, run)
            traffic.send(show.rate, ROUND_SECONDS, shock_after=math.inf)
            self._earlier, self._traffic = self.sent, None


def create(url: str, show: Show) -> None:
    """Create the model and its challenger if they are missing. Raises CommandFailure, also if the model has
    another configuration, unless a promotion gave it that.
    """
    with service_at(url) as client:
        challenger = f"/models/{show.model}-challenger"
        if show.challenger and "t" in client.call("GET", challenger, accepts=(404,)):
            return
        client.call("PUT", f"/models/{show.model}", show.config())
        if show.challenger:
            promote = {"when": "better", "for_examples": PROMOTE_AFTER}
            body = {"follows": show.model, "hyper": show.challenger, "promote": promote}
            client.call("PUT", challenger, body)


def run_all(url: str, alive: Path) -> None:
    """Run all demos, and touch the file as long as each of them sends. Raises what ends one of them."""
    demos = [Demo(url, show) for show in SHOWS]
    threads = ThreadPoolExecutor(len(demos))
    running = [threads.submit(demo.run) for demo in demos]
    before = [0] * len(demos)
    while not any(demo.done() for demo in running):
        sent = [demo.sent for demo in demos]
        if all(now > then for now, then in zip(sent, before, strict=True)):
            alive.touch()
        before = sent
        time.sleep(LOOK_SECONDS)
    for demo in running:
        if demo.done():
            demo.result()


def main() -> None:
    parser = argparse.ArgumentParser(description="Steady simulated traffic to three models.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--alive", type=Path, default=Path("/tmp/alive"), help="touched while it works")
    options = parser.parse_args()
    try:
        run_all(options.url, options.alive)
    except CommandFailure as failure:
        sys.stderr.write(f"{failure}\n")
        sys.stderr.flush()
        os._exit(1)  # the threads of the other demo would be waited for
    except KeyboardInterrupt:
        os._exit(0)
