"""/models/{name}/snapshots."""

from __future__ import annotations

import httpx
from redis import Redis

from service.storage.records import meta_key
from tests.service.api.conftest import ApiFactory, LiveApi
from tests.support.problem_replies import invalid, problem
from tests.support.servers import ServerProcess


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


def test_missing_models_and_snapshots_are_reported(api: httpx.Client, model: str) -> None:
    assert api.get(f"{model}/snapshots").json() == {"snapshots": [], "damaged": []}
    problem(api.get(f"{model}/snapshots/good"), 404, "unknown_snapshot")
    problem(api.get("/models/nobody/snapshots"), 404, "unknown_model")
    problem(api.post("/models/nobody/snapshots"), 404, "unknown_model")


def test_a_model_that_another_process_has_just_deleted_is_unknown(live_api: LiveApi, model: str) -> None:
    with Redis.from_url(str(live_api.settings.redis_url)) as redis:
        redis.delete(meta_key(model.removeprefix("/models/")))
    problem(live_api.client.post(f"{model}/snapshots"), 404, "unknown_model")


def test_a_full_server_is_reported(fresh_valkey: ServerProcess, start_api: ApiFactory) -> None:
    api = start_api(fresh_valkey).client
    api.put("/models/small", json={"hashing": {"bits": 12}}).raise_for_status()
    with fresh_valkey.client() as client:
        client.config_set("maxmemory", 1)
    for refused in (
        api.put("/models/another", json={"hashing": {"bits": 12}}),
        api.post("/models/small/snapshots"),
        api.put("/aliases/nickname", json={"model": "small"}),
    ):
        document = problem(refused, 507, "server_full")
        assert "raise the server's maxmemory" in document["detail"]


def test_a_bad_tag_is_refused(api: httpx.Client, model: str) -> None:
    invalid(api.post(f"{model}/snapshots?tag=Not%20Good"), "tag", "invalid_value")


def test_snapshots_outlive_their_model(api: httpx.Client, model: str) -> None:
    taken = api.post(f"{model}/snapshots").json()
    api.delete(model).raise_for_status()
    assert [one["id"] for one in api.get(f"{model}/snapshots").json()["snapshots"]] == [taken["id"]]


def test_a_snapshot_is_restored(api: httpx.Client, model: str) -> None:
    example = {"features": {"ad": "a1"}, "label": 1}
    taken = api.post(f"{model}/snapshots").json()
    before = api.post(f"{model}/update", json=example).json()
    restored = api.post(f"{model}/restore", json={"snapshot": taken["id"], "replay_log": False})
    assert restored.status_code == 200
    assert (restored.json()["t"], restored.json()["snapshot"]) == (0, taken["id"])
    again = api.post(f"{model}/update", json=example).json()
    assert again["probability"] == before["probability"] == 0.5
    assert [one["reason"] for one in api.get(f"{model}/snapshots").json()["snapshots"]] == [
        "request",
        "before restore",
    ]
    back = api.post(f"{model}/restore", json={"snapshot": taken["id"], "replay_log": True})
    assert (back.json()["t"], back.json()["replayed"]) == (2, 2)


def test_after_a_restore_the_process_predicts_from_it(api: httpx.Client, model: str) -> None:
    def restored(snapshot: str) -> tuple[float, str]:
        """The prediction right after the reply, and the snapshot of the replaced state."""
        reply = api.post(f"{model}/restore", json={"snapshot": snapshot, "replay_log": False}).json()
        probability = api.post(f"{model}/predict", json={"features": {"ad": "a1"}}).json()["probability"]
        assert api.get(model).json()["revision"] == reply["revision"]
        return probability, reply["before"]

    untrained = api.post(f"{model}/snapshots").json()["id"]
    click = {"features": {"ad": "a1", "words": [f"w{k}" for k in range(500)]}, "label": 1}
    api.post(f"{model}/update", json={"examples": [click] * 100}).raise_for_status()
    for _ in range(5):
        probability, trained = restored(untrained)
        assert probability == 0.5
        probability, untrained = restored(trained)
        assert probability > 0.5


def test_a_restore_is_refused_for_what_is_wrong_with_it(api: httpx.Client, model: str) -> None:
    api.post(f"{model}/snapshots").raise_for_status()

    def restore(**body: object) -> httpx.Response:
        return api.post(f"{model}/restore", json=body)

    invalid(restore(snapshot="newest"), "replay_log", "required")
    invalid(restore(snapshot="newest", replay_log=False, hyper={}), "hyper", "invalid_value")
    invalid(restore(snapshot="newest", replay_log=True, hyper={"l1": -1}), "hyper.l1", "invalid_value")
    invalid(restore(snapshot="", replay_log=False), "snapshot", "wrong_length")
    invalid(restore(snapshot="a" * 257, replay_log=False), "snapshot", "wrong_length")
    other_family = restore(snapshot="newest", replay_log=True, hyper={"family": "rda"})
    problem(other_family, 409, "snapshot_mismatch")
    problem(restore(snapshot="good", replay_log=True), 404, "unknown_snapshot")
