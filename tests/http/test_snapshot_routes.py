"""/models/{name}/snapshots."""

from __future__ import annotations

import httpx


def test_a_snapshot_is_taken_listed_and_described(api: httpx.Client, model: str) -> None:
    api.post(f"{model}/update", json={"features": {"ad": "a1"}, "label": 1}).raise_for_status()
    taken = api.post(f"{model}/snapshots?tag=good")
    assert taken.status_code == 201
    one = taken.json()
    assert (one["t"], one["tags"], one["features_seen"], one["nonzero"]) == (1, ["good"], 1, 1)
    assert one["config"]["hashing"]["bits"] == 12
    assert api.get(f"{model}/snapshots").json() == {"snapshots": [one], "damaged": []}
    for name in (one["id"], "good", "newest"):
        assert api.get(f"{model}/snapshots/{name}").json() == one


def test_what_is_not_there_is_told(api: httpx.Client, model: str) -> None:
    assert api.get(f"{model}/snapshots").json() == {"snapshots": [], "damaged": []}
    refused = api.get(f"{model}/snapshots/good")
    assert refused.status_code == 404
    assert refused.json()["detail"].endswith("with the id or the tag 'good'.")
    assert api.get("/models/nobody/snapshots").status_code == 404
    assert api.post("/models/nobody/snapshots").status_code == 404


def test_a_bad_tag_is_refused(api: httpx.Client, model: str) -> None:
    refused = api.post(f"{model}/snapshots?tag=Not%20Good")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["path"] == "tag"


def test_snapshots_outlive_their_model(api: httpx.Client, model: str) -> None:
    taken = api.post(f"{model}/snapshots").json()
    api.delete(model).raise_for_status()
    assert [one["id"] for one in api.get(f"{model}/snapshots").json()["snapshots"]] == [taken["id"]]
