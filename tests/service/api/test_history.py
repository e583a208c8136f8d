"""/models/{name}/history: how good predictions were, and what happened to the model."""

from __future__ import annotations

import httpx
import pytest

from tests.support.problem_replies import problem
from tests.support.waiting import wait_until


@pytest.mark.slow  # moments are five seconds apart
def test_what_happens_to_a_model_is_marked(api: httpx.Client) -> None:
    name = "with-a-past"
    api.put(f"/models/{name}", json={"hashing": {"bits": 10}}).raise_for_status()
    examples = [{"features": {"ad": f"a{k % 5}"}, "label": k % 2} for k in range(200)]
    api.post(f"/models/{name}/update", json={"examples": examples}).raise_for_status()
    snapshot = api.post(f"/models/{name}/snapshots", json={}).raise_for_status().json()["id"]
    api.put("/aliases/past", json={"model": name}).raise_for_status()

    def marks() -> dict[str, str]:
        reply = api.get("/models/past/history").raise_for_status().json()
        return {mark["kind"]: mark["detail"] for mark in reply["marks"]}

    wait_until(lambda: {"start", "snapshot"} <= marks().keys(), "marks of the start and the snapshot")
    api.post(f"/models/{name}/restore", json={"snapshot": snapshot, "replay_log": False}).raise_for_status()
    api.patch(f"/models/{name}", json={"feedback": {"window_seconds": 60}}).raise_for_status()
    wait_until(lambda: {"restore", "settings"} <= marks().keys(), "marks of the restore and the settings")
    found = marks()
    assert (found["snapshot"], found["restore"]) == (snapshot, snapshot)
    assert found["alias"] == f"past now means {name}"
    assert '"window_seconds":60' in found["settings"].replace(" ", "")
    past = api.get(f"/models/{name}/history", params={"span": "1h"}).json()
    assert past["time"] == sorted(past["time"])
    assert past["windows"]["1h"]["base_rate"][-1] == 0.5
    assert past["backlog"][-1] == 0
    assert len(api.get(f"/models/{name}/history", params={"span": "30d"}).json()["time"]) == 1
    api.delete("/aliases/past").raise_for_status()
    api.delete(f"/models/{name}").raise_for_status()
    api.put(f"/models/{name}", json={"hashing": {"bits": 10}}).raise_for_status()
    again = api.get(f"/models/{name}/history").json()
    assert not {"snapshot", "restore", "alias"} & {mark["kind"] for mark in again["marks"]}
    api.delete(f"/models/{name}").raise_for_status()


def test_an_unknown_span_and_an_unknown_model_are_refused(api: httpx.Client) -> None:
    problem(api.get("/models/default/history", params={"span": "1y"}), 422, "unprocessable")
    problem(api.get("/models/never/history"), 404, "unknown_model")
