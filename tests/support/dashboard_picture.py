"""Writes docs/dashboard.png: the built-in page of a service that learns, in Debian's Chromium.

`make picture` runs it; it takes two minutes, most of which are the past that the page shows.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

from tests.support.browser import chromium, visit
from tests.support.clicks import Clicks
from tests.support.commands import ServingProcess
from tests.support.shared_data import REPOSITORY

PICTURE = REPOSITORY / "docs" / "dashboard.png"
VIEWPORT = {"width": 1200, "height": 1545}
BEFORE_EXAMPLES = 60_000
BEFORE_SECONDS = 7200.0
SECONDS = 100.0


def feed(service: ServingProcess, clicks: Clicks, seconds: float) -> None:
    """Traffic that comes and goes in waves."""
    started = time.monotonic()
    while (now := time.monotonic() - started) < seconds:
        examples = clicks.examples(round(60 + 25 * math.sin(now / 8) + 10 * math.sin(now / 3)))
        for example in examples[:25]:
            service.post("/models/ads/predict", {"features": example["features"]})
        service.post("/models/ads/update", {"examples": examples})
        time.sleep(0.1)


def main() -> None:
    clicks = Clicks()
    with tempfile.TemporaryDirectory() as directory, chromium() as browser:
        service = ServingProcess("serve", directory=Path(directory))
        try:
            url = service.wait_until_ready()
            service.put("/models/ads", {"evaluation": {"slices": ["device", "site"]}})
            then = {"event_time": time.time() - BEFORE_SECONDS}
            for _ in range(BEFORE_EXAMPLES // 2000):
                examples = [example | then for example in clicks.examples(2000)]
                service.post("/models/ads/update", {"examples": examples})
            with visit(browser, viewport=VIEWPORT, color_scheme="light") as tab:
                tab.page.goto(f"{url}/?model=ads")
                feed(service, clicks, SECONDS / 2)
                service.post("/models/ads/snapshots", {})
                feed(service, clicks, SECONDS / 2)
                tab.wait_for_text("#connection", "Live")
                tab.page.screenshot(path=PICTURE)
        finally:
            service.stop()
            service.remove()


if __name__ == "__main__":
    main()
