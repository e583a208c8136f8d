"""Steady simulated traffic to two models for as long as it runs: `python -m lab.simulation.demo`.

It fills the dashboards of docker-compose.yml. It creates its models if they are missing, continues with them
otherwise, and deletes nothing. While all of its traffic is answered, it touches the file that the health
check of its container looks at.
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.simulation.policies import BITS
from lab.simulation.traffic import Habits, Traffic
from lab.simulation.world import World
from service.cli.http_client import ServiceClient
from service.errors import CommandFailure

ROUND_SECONDS = 3600.0
"""After which the record of what was sent and answered starts again, so that it stays small."""
LOOK_SECONDS = 1.0
SLICES = ["device", "site", "position"]


@dataclass(frozen=True)
class Show:
    """One model, and the world of its impressions. `rate`: impressions a second."""

    model: str
    rate: float
    click_rate: float
    seed: int
    hyper: dict[str, Any]

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
)


class Demo(threading.Thread):
    """The traffic of one show. `failure`: what ended it, if anything."""

    def __init__(self, url: str, show: Show) -> None:
        super().__init__(name=show.model, daemon=True)
        self._url = url
        self._show = show
        self._earlier = 0
        self._traffic: Traffic | None = None
        self.failure: CommandFailure | None = None

    @property
    def sent(self) -> int:
        """Impressions that were predicted."""
        traffic = self._traffic
        return self._earlier + (0 if traffic is None else len(traffic.record.seconds))

    def run(self) -> None:
        show = self._show
        habits = Habits(delay_seconds=2.5, lost=0.01, repeated=0.05, early=0.01, retried=0.02)
        try:
            create(self._url, show)
            world = World(show.seed, show.click_rate, candidates=5)
            while True:
                run = f"demo-{show.seed}-{time.time_ns():x}"
                traffic = self._traffic = Traffic([self._url], show.model, world, habits, run)
                traffic.send(show.rate, ROUND_SECONDS, shock_after=math.inf)
                self._earlier, self._traffic = self.sent, None
        except CommandFailure as failure:
            self.failure = failure


def create(url: str, show: Show) -> None:
    """Create the model if it is missing. Raises CommandFailure, also if it has another configuration."""
    with closing(ServiceClient(url)) as client:
        client.call("PUT", f"/models/{show.model}", show.config())


def report_alive(demos: Sequence[Demo], file: Path) -> None:
    """Touch the file as long as each demo sends. Raises CommandFailure once one has failed."""
    before = [0] * len(demos)
    while True:
        sent = [demo.sent for demo in demos]
        if all(now > then for now, then in zip(sent, before, strict=True)):
            file.touch()
        before = sent
        for demo in demos:
            if demo.failure is not None:
                raise demo.failure
        time.sleep(LOOK_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Steady simulated traffic to two models.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--alive", type=Path, default=Path("/tmp/alive"), help="touched while it works")
    options = parser.parse_args()
    demos = [Demo(options.url, show) for show in SHOWS]
    for demo in demos:
        demo.start()
    try:
        report_alive(demos, options.alive)
    except CommandFailure as failure:
        sys.stderr.write(f"{failure}\n")
    except KeyboardInterrupt:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
