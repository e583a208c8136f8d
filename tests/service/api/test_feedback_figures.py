"""What /metrics tells of predictions that wait, to the last one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import redis

from service.storage.records import ModelKeys
from tests.service.api.conftest import LiveApi
from tests.service.api.test_feedback import FEATURES, Model
from tests.support.waiting import wait_until

FATES = "ftrl_feedback_predictions_total"
DELAY = "ftrl_feedback_label_delay_seconds"
Figures = dict[str, float]


class Watched(Model):
    def figures(self) -> Figures:
        """By name, a counter of fates by its fate."""
        found = {}
        name = self.path.rpartition("/")[2]
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith("ftrl_feedback_") and f'model="{name}"' in line:
                described, _, value = line.rpartition(" ")
                kind = re.search(r'(?:fate|stage|reason|le)="([^"]+)"', described)
                found[described.partition("{")[0] + (f" {kind[1]}" if kind else "")] = float(value)
        return found

    def figures_once(self, wanted: Callable[[Figures], bool]) -> Figures:
        def found() -> Figures | None:
            figures = self.figures()
            return figures if wanted(figures) else None

        return wait_until(found)


@pytest.fixture
def watch(api: httpx.Client, request: pytest.FixtureRequest) -> Iterator[Any]:
    path = f"/models/figures-{abs(hash(request.node.nodeid)):x}"
    yield lambda **feedback: Watched(api, path, **feedback)
    api.delete(path)


def test_sampled_out_labels_have_a_delay_too(watch: Any) -> None:
    began = time.monotonic()
    model = watch(exposure="on_predict", learn_at="arrival", negative_sample_rate=0.2)
    ids = [f"n{number}" for number in range(50)]
    instances = [{"features": FEATURES, "id": name} for name in ids]
    model.post("predict", {"instances": instances, "log": True})
    labels = {"examples": [{"id": name, "label": 0} for name in ids]}
    statuses = [one["status"] for one in model.post("update", labels).json()["results"]]
    assert 0 < statuses.count("sampled_out") < 50
    repeated = model.post("update", labels).json()["results"]
    assert {one["status"] for one in repeated} == {"duplicate"}
    found = model.figures_once(lambda found: found.get(f"{FATES} duplicate") == 50)
    assert found[f"{DELAY}_count"] == found[f"{FATES} joined"] == 50
    assert found[f"{FATES} unsampled"] == statuses.count("sampled_out")
    assert 0 <= found[f"{DELAY}_sum"] <= 50 * (time.monotonic() - began + 1), "since a whole second"
    assert found[f"{DELAY}_bucket +Inf"] == 50


@pytest.mark.slow
def test_labels_and_predictions_without_effect_are_counted_by_kind(watch: Any) -> None:
    model = watch(exposure="on_predict", window_seconds=1, late="append", log=True)
    for features in (FEATURES, FEATURES, FEATURES, {"user": "u2"}):
        model.post("predict", {"features": features, "id": "a"})
    found = model.figures_once(lambda found: found.get(f"{FATES} negative") == 1)
    assert found[f"{FATES} repeated"] == 2
    assert found[f"{FATES} conflict"] == 1
    assert f"{DELAY}_count" not in found
    for label in (1, 1, 1, 0):
        model.post("update", {"id": "a", "label": label})
    model.post("update", {"id": "nobody", "label": 1})
    found = model.figures_once(lambda found: found[f"{FATES} unknown"] == 1)
    counted = ("late", "late_joined", "duplicate", "joined")
    assert [found[f"{FATES} {fate}"] for fate in counted] == [1, 1, 2, 0]
    assert found[f"{DELAY}_count"] == 1
    assert found[f"{DELAY}_sum"] >= 1, "beyond its window"


def test_memory_and_predictions_without_room_are_reported(watch: Any, live_api: LiveApi) -> None:
    model = watch(exposure="on_predict", max_bytes=1 << 16)
    ids = [f"m{number}" for number in range(1000)]
    instances = [{"features": FEATURES, "id": name} for name in ids]
    assert model.post("predict", {"instances": instances, "log": True}).json()["logged"] is False
    found = model.figures_once(lambda found: found.get(f"{FATES} refused", 0) > 0)
    logged, refused = found[f"{FATES} logged"], found[f"{FATES} refused"]
    assert logged + refused == 1000
    assert found["ftrl_feedback_unlogged_total full"] == refused
    assert found["ftrl_feedback_waiting open"] == logged
    assert found["ftrl_feedback_limit_bytes"] == 1 << 16
    with redis.Redis.from_url(live_api.settings.redis_url or "") as client:
        (index,) = client.scan_iter(ModelKeys(model.path.rpartition("/")[2], "*").feedback)
        counted = int(client.hget(index, "#bytes") or 0)
    assert found["ftrl_feedback_bytes"] == counted
    assert 0.9 * (1 << 16) < counted <= 1 << 16


@pytest.mark.slow
def test_once_every_impression_has_its_label_none_is_old(watch: Any) -> None:
    model = watch(exposure="on_predict", learn_at="arrival")
    model.predict(log=True, id="a")
    oldest = "ftrl_feedback_oldest_seconds"
    model.figures_once(lambda found: found.get(oldest, 0) > 0 and found["ftrl_feedback_waiting open"] == 1)
    model.post("update", {"id": "a", "label": 1})
    found = model.figures_once(lambda found: found["ftrl_feedback_waiting open"] == 0)
    assert found[oldest] == 0
