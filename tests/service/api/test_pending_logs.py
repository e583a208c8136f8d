"""Predictions that nobody waits to see kept, while Redis does not answer."""

from __future__ import annotations

import httpx
import pytest

from tests.service.api.conftest import ApiFactory
from tests.support.servers import ServerProcess

UNLOGGED = 'ftrl_feedback_unlogged_total{model="soon"'
FEATURES = {f"f{number}": "v" for number in range(39)}


def counted(api: httpx.Client, name: str) -> float:
    lines = api.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.slow
def test_beyond_the_limit_predictions_are_counted_and_not_logged(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    slow = {"redis_timeout_seconds": 20, "lease_seconds": 60}
    api = start_api(fresh_valkey, pending_log_bytes=10_000, **slow).client
    api.put("/models/soon", json={"feedback": {"log": True, "wait": False}}).raise_for_status()

    def predict() -> bool:
        reply = api.post("/models/soon/predict", json={"features": FEATURES}).json()
        return bool(reply["logged"])

    assert predict()
    while counted(api, 'ftrl_feedback_waiting{model="soon",stage="unshown"}') < 1:
        pass
    fresh_valkey.pause()
    hoped_for = [predict() for _ in range(100)]
    assert 1 < sum(hoped_for) < 60, "a prediction of 39 features takes about 260 bytes"
    assert hoped_for == sorted(hoped_for, reverse=True), "no room is found while nothing is kept"
    unlogged = counted(api, UNLOGGED)
    assert unlogged == hoped_for.count(False)
    assert counted(api, UNLOGGED + ',reason="pending"') == unlogged
    fresh_valkey.resume()
    while counted(api, 'ftrl_feedback_waiting{model="soon",stage="unshown"}') < 1 + sum(hoped_for):
        pass
    assert predict(), "there is room again"
    assert counted(api, UNLOGGED) == unlogged
