"""/models/{name}/snapshots."""

from __future__ import annotations

import httpx
from redis import Redis

from service.storage.keys import meta_key
from tests.service.api.conftest import ApiFactory, LiveApi
from tests.support.problem_replies import problem
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


def test_what_is_not_there_is_told(api: httpx.Client, model: str) -> None:
    assert api.get(f"{model}/snapshots").json() == {"snapshots": [], "damaged": []}
    refused = api.get(f"{model}/snapshots/good")
    assert refused.status_code == 404
    assert refused.json()["detail"].endswith("with the id or tag 'good'.")
    assert api.get("/models/nobody/snapshots").status_code == 404
    assert api.post("/models/nobody/snapshots").status_code == 404


def test_a_model_that_another_process_has_just_deleted_is_unknown(live_api: LiveApi, model: str) -> None:
    with Redis.from_url(str(live_api.settings.redis_url)) as redis:
        redis.delete(meta_key(model.removeprefix("/models/")))
    assert (
        problem(live_api.client.post(f"{model}/snapshots"), 404)["type"] == "urn:ftrl-service:unknown-model"
    )


def test_a_full_server_is_told_as_such(fresh_valkey: ServerProcess, start_api: ApiFactory) -> None:
    api = start_api(fresh_valkey).client
    api.put("/models/small", json={"hashing": {"bits": 12}}).raise_for_status()
    with fresh_valkey.client() as client:
        client.config_set("maxmemory", 1)
    for refused in (
        api.put("/models/another", json={"hashing": {"bits": 12}}),
        api.post("/models/small/snapshots"),
        api.put("/aliases/nickname", json={"model": "small"}),
    ):
        document = problem(refused, 507)
        assert document["type"] == "urn:ftrl-service:server-full"
        assert "raise the server's maxmemory" in document["detail"]


def test_a_bad_tag_is_refused(api: httpx.Client, model: str) -> None:
    refused = api.post(f"{model}/snapshots?tag=Not%20Good")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["path"] == "tag"


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


def test_a_restore_is_refused_for_what_is_wrong_with_it(api: httpx.Client, model: str) -> None:
    api.post(f"{model}/snapshots").raise_for_status()

    def refusal(status: int, **body: object) -> str:
        reply = api.post(f"{model}/restore", json=body)
        assert reply.status_code == status, reply.text
        return str(reply.json()["detail"])

    assert "replay_log" in refusal(422, snapshot="newest")
    assert "hyper: needs replay_log" in refusal(422, snapshot="newest", replay_log=False, hyper={})
    assert "hyper" in refusal(422, snapshot="newest", replay_log=True, hyper={"l1": -1})
    assert "family" in refusal(409, snapshot="newest", replay_log=True, hyper={"family": "rda"})
    assert "snapshot: must not be empty" in refusal(422, snapshot="", replay_log=False)
    assert "snapshot" in refusal(422, snapshot="a" * 257, replay_log=False)
    assert "no snapshot" in refusal(404, snapshot="good", replay_log=True)
