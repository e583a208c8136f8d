"""Labels of predictions that were logged through an alias which means another model by now."""

from __future__ import annotations

import re
from typing import Any

import httpx

from service.storage.records import meta_key
from tests.service.api.conftest import ApiFactory
from tests.support.servers import ServerProcess
from tests.support.waiting import wait_until

# A busy machine is no outage.
PATIENT: dict[str, Any] = {"redis_timeout_seconds": 4, "update_timeout_seconds": 25}
FEATURES = {"user": "u1", "ad": "a7"}
CONFIG = {"hashing": {"bits": 12}, "feedback": {"log": True, "learn_at": "arrival"}}


def post(api: httpx.Client, verb: str, body: Any) -> Any:
    answer = api.post(f"/models/live/{verb}", json=body)
    assert answer.status_code in (200, 202), answer.text
    return answer.json()


def switch(api: httpx.Client, model: str) -> None:
    api.put(f"/models/{model}", json=CONFIG).raise_for_status()
    api.put("/aliases/live", json={"model": model}).raise_for_status()


def test_labels_go_to_the_model_that_logged_the_prediction(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    api = start_api(fresh_valkey, **PATIENT).client
    logged: dict[str, str] = {}
    for model in ("old", "older", "old", "new"):
        switch(api, model)
        reply = post(api, "predict", {"features": FEATURES})
        logged[reply["id"]] = reply["model"]
    ids = [*logged, "nobody"]
    shown = [one["status"] for one in post(api, "impressions", {"ids": ids})["results"]]
    assert shown == ["shown"] * 4 + ["unknown"]
    labels = [{"id": one, "label": 1} for one in ids]
    results = post(api, "update", {"examples": labels})["results"]
    assert [(one["id"], one["status"]) for one in results] == [
        (one, "unknown" if one == "nobody" else "learned") for one in ids
    ]
    assert all(one["probability"] is not None for one in results[:4])
    assert {name: api.get(f"/models/{name}").json()["t"] for name in ("old", "older", "new")} == {
        "old": 2,
        "older": 1,
        "new": 1,
    }
    single = api.post("/models/live/update", json={"id": "nobody", "label": 1})
    assert single.status_code == 404


def test_a_recreated_alias_answers_also_without_its_former_model(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    api = start_api(fresh_valkey, **PATIENT).client
    switch(api, "first")
    kept = post(api, "predict", {"features": FEATURES})["id"]
    api.delete("/aliases/live").raise_for_status()
    switch(api, "second")
    lost = post(api, "predict", {"features": FEATURES})["id"]
    switch(api, "third")
    api.delete("/models/second").raise_for_status()
    results = post(api, "impressions", {"ids": [kept, lost]})["results"]
    assert [one["status"] for one in results] == ["shown", "unknown"]
    assert api.get("/aliases").json()["aliases"] == {"live": "third"}


def test_a_stale_process_finds_predictions_logged_after_a_switch(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    one, other = start_api(fresh_valkey, **PATIENT), start_api(fresh_valkey, run_learner=False, **PATIENT)
    switch(one.client, "first")
    while other.client.post("/models/live/predict", json={"features": {}}).status_code == 404:
        pass
    for model in ("second", "first") * 5:
        switch(one.client, model)
        logged = post(one.client, "predict", {"features": FEATURES})["id"]
        shown = post(other.client, "impressions", {"ids": [logged]})["results"]
        assert shown == [{"id": logged, "status": "shown"}]


def unknown(api: httpx.Client, model: str) -> float:
    """How many ids the model counts as unknown, as its learner told last."""
    labels = re.escape(f'{{fate="unknown",model="{model}"}}')
    found = re.search(rf"ftrl_feedback_predictions_total{labels} (\S+)", api.get("/metrics").text)
    return float(found[1]) if found else 0.0


def test_an_id_that_no_model_knows_is_counted_as_unknown_once(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    api = start_api(fresh_valkey, **PATIENT).client
    switch(api, "old")
    logged = [post(api, "predict", {"features": FEATURES})["id"] for _ in range(3)]
    switch(api, "new")
    post(api, "impressions", {"ids": [*logged, "nobody"]})
    labels = [{"id": one, "label": 1} for one in (*logged, "nobody", "nobody else")]
    results = post(api, "update", {"examples": labels})["results"]
    assert [one["status"] for one in results] == ["learned"] * 3 + ["unknown"] * 2
    assert api.post("/models/live/update", json={"id": "nobody", "label": 1}).status_code == 404
    wait_until(lambda: unknown(api, "new") >= 4)
    assert (unknown(api, "new"), unknown(api, "old")) == (4, 0)


def test_after_a_switch_to_a_clone_pending_labels_go_to_the_source(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    api = start_api(fresh_valkey, **PATIENT).client
    switch(api, "source")
    post(api, "update", {"features": FEATURES, "label": 1})
    waiting = [post(api, "predict", {"features": FEATURES})["id"] for _ in range(2)]
    changes = {"window_seconds": 7200, "learn_at": "window_close"}
    api.post("/models/source/clone", json={"name": "patient", "feedback": changes}).raise_for_status()
    api.put("/aliases/live", json={"model": "patient"}).raise_for_status()
    after = post(api, "predict", {"features": FEATURES})
    assert (after["model"], after["logged"]) == ("patient", True)
    ids = [*waiting, after["id"]]
    shown = [one["status"] for one in post(api, "impressions", {"ids": ids})["results"]]
    assert shown == ["shown"] * 3
    results = post(api, "update", {"examples": [{"id": one, "label": 1} for one in ids]})["results"]
    assert [one["status"] for one in results] == ["learned", "learned", "waiting"]
    assert {name: api.get(f"/models/{name}").json()["t"] for name in ("source", "patient")} == {
        "source": 3,
        "patient": 1,
    }


def test_an_id_that_no_readable_model_knows_is_unknown(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    api = start_api(fresh_valkey, **PATIENT).client
    logged = {}
    for model in ("old", "of-another-version", "new"):
        switch(api, model)
        logged[model] = post(api, "predict", {"features": FEATURES})["id"]
    with fresh_valkey.client() as client:
        client.hset(meta_key("of-another-version"), "format", 1_000)
    api = start_api(fresh_valkey, run_learner=False, **PATIENT).client
    ids = [logged["old"], logged["of-another-version"], logged["new"], "nobody"]
    shown = [one["status"] for one in post(api, "impressions", {"ids": ids})["results"]]
    assert shown == ["shown", "unknown", "shown", "unknown"]
    labels = [{"id": one, "label": 1} for one in ids]
    results = post(api, "update", {"examples": labels})["results"]
    assert [one["status"] for one in results] == ["learned", "unknown", "learned", "unknown"]
    assert api.post("/models/live/update", json={"id": "nobody", "label": 1}).status_code == 404
