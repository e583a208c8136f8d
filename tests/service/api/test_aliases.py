"""Aliases of models, and models made of others."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.service.api.conftest import ApiFactory
from tests.support.problem_replies import invalid, problem
from tests.support.servers import ServerProcess

EXAMPLE = {"features": {"ad": "a1", "site": "s1"}, "label": 1}


@pytest.fixture
def alias(api: httpx.Client, model: str) -> Iterator[str]:
    name = model.rpartition("/")[2]
    api.put(f"/aliases/ads-{name}", json={"model": name}).raise_for_status()
    yield f"ads-{name}"
    api.delete(f"/aliases/ads-{name}")


def test_an_alias_predicts_and_updates_by_its_model(api: httpx.Client, model: str, alias: str) -> None:
    assert api.post(f"/models/{alias}/update", json=EXAMPLE).json()["status"] == "learned"
    predicted = api.post(f"/models/{alias}/predict", json={"features": EXAMPLE["features"]}).json()
    assert predicted == api.post(f"{model}/predict", json={"features": EXAMPLE["features"]}).json()
    assert predicted["model"] == model.rpartition("/")[2]
    assert api.get(f"/aliases/{alias}").json() == {"alias": alias, "model": predicted["model"]}
    assert api.get("/aliases").json()["aliases"][alias] == predicted["model"]


def test_a_clone_warns_that_it_does_not_know_the_event_ids_of_its_source(
    api: httpx.Client, model: str, alias: str
) -> None:
    name = model.rpartition("/")[2]
    update = EXAMPLE | {"event_id": "e1"}
    assert api.post(f"/models/{alias}/update", json=update).json()["status"] == "learned"
    reply = api.post(f"{model}/clone", json={"name": f"clone-{name}"})
    (warning,) = reply.raise_for_status().json()["warnings"]
    assert "does not know the event ids" in warning
    assert repr(name) in warning
    api.put(f"/aliases/{alias}", json={"model": f"clone-{name}"}).raise_for_status()
    assert api.post(f"/models/{alias}/update", json=update).json()["status"] == "learned"
    assert api.post(f"{model}/update", json=update).json()["status"] == "duplicate"
    api.delete(f"/models/clone-{name}").raise_for_status()


def test_an_alias_is_switched_while_requests_go_on_and_drops_none(
    api: httpx.Client, model: str, alias: str
) -> None:
    name = model.rpartition("/")[2]
    clone = f"clone-{name}"
    api.post(f"{model}/clone", json={"name": clone}).raise_for_status()
    answered: list[tuple[int, str]] = []
    begun, stop = threading.Event(), threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=api.base_url, timeout=30) as client:
            while not stop.is_set():
                reply = client.post(f"/models/{alias}/predict", json={"features": {}})
                answered.append((reply.status_code, reply.json().get("model", "")))
                begun.set()

    asking = threading.Thread(target=ask)
    asking.start()
    assert begun.wait(30)
    for target in [clone, name] * 20:
        api.put(f"/aliases/{alias}", json={"model": target}).raise_for_status()
        assert api.post(f"/models/{alias}/predict", json={"features": {}}).json()["model"] == target
    stop.set()
    asking.join()
    assert {status for status, _ in answered} == {200}
    assert {target for _, target in answered} <= {name, clone}
    api.delete(f"/models/{clone}").raise_for_status()


@pytest.mark.slow
def test_other_processes_hear_of_an_alias(fresh_valkey: ServerProcess, start_api: ApiFactory) -> None:
    one, other = start_api(fresh_valkey), start_api(fresh_valkey, run_learner=False)
    one.client.put("/models/second", json={}).raise_for_status()
    one.client.put("/aliases/live", json={"model": "default"}).raise_for_status()
    assert other.client.post("/models/live/predict", json={"features": {}}).json()["model"] == "default"
    one.client.put("/aliases/live", json={"model": "second"}).raise_for_status()
    while other.client.post("/models/live/predict", json={"features": {}}).json()["model"] != "second":
        pass
    one.client.delete("/aliases/live").raise_for_status()
    while other.client.post("/models/live/predict", json={"features": {}}).status_code != 404:
        pass


def test_a_name_is_a_model_or_an_alias(api: httpx.Client, model: str, alias: str) -> None:
    problem(api.put(f"/models/{alias}", json={}), 409, "alias_conflict")
    path = model.replace("models", "aliases")
    problem(api.put(path, json={"model": "default"}), 409, "alias_conflict")
    problem(api.post(f"{model}/clone", json={"name": alias}), 409, "alias_conflict")


def test_what_reads_takes_an_alias(api: httpx.Client, model: str, alias: str) -> None:
    api.post(f"{model}/update", json=EXAMPLE).raise_for_status()
    taken = api.post(f"{model}/snapshots?tag=good").json()
    assert api.get(f"/models/{alias}").json() == api.get(model).json()
    told = api.get(f"/models/{alias}/evaluation").json()
    assert (told["model"], told["t"]) == (taken["model"], 1)
    assert api.get(f"/models/{alias}/snapshots").json() == {"snapshots": [taken], "damaged": []}
    assert api.get(f"/models/{alias}/snapshots/good").json() == taken
    explained = api.post(f"/models/{alias}/explain", json={"features": EXAMPLE["features"]}).json()
    assert explained["model"] == taken["model"]


@pytest.mark.slow
def test_a_process_that_has_not_heard_of_an_alias_asks(
    fresh_valkey: ServerProcess, start_api: ApiFactory
) -> None:
    one, other = start_api(fresh_valkey), start_api(fresh_valkey, run_learner=False)
    taken = one.client.post("/models/default/snapshots").json()
    for number in range(3):
        one.client.put(f"/aliases/live{number}", json={"model": "default"}).raise_for_status()
        told = other.client.get(f"/models/live{number}/snapshots").json()
        assert [snapshot["id"] for snapshot in told["snapshots"]] == [taken["id"]]
        one.client.put(f"/aliases/again{number}", json={"model": "default"}).raise_for_status()
        assert other.client.get(f"/models/again{number}/evaluation").json()["model"] == "default"


def test_what_changes_or_makes_a_model_wants_its_own_name(api: httpx.Client, model: str, alias: str) -> None:
    name = model.rpartition("/")[2]
    api.post(f"{model}/snapshots?tag=good").raise_for_status()
    restore = {"snapshot": "good", "replay_log": False}
    calls = [
        api.delete(f"/models/{alias}"),
        api.put(f"/models/{alias}", json={}),
        api.post(f"/models/{alias}/clone", json={"name": f"copy-{name}"}),
        api.post(f"{model}/clone", json={"name": alias}),
        api.post(f"/models/{alias}/snapshots"),
        api.post(f"/models/{alias}/restore", json=restore),
        api.put("/aliases/some", json={"model": alias}),
    ]
    details = {problem(reply, 409, "alias_conflict")["detail"] for reply in calls}
    assert len(details) == 1
    assert f"alias of model {name!r}" in details.pop()
    assert api.get(model).status_code == 200
    assert len(api.get(f"{model}/snapshots").json()["snapshots"]) == 1


def test_missing_models_and_snapshots_are_reported(api: httpx.Client) -> None:
    problem(api.get("/aliases/nobody"), 404, "unknown_alias")
    problem(api.delete("/aliases/nobody"), 404, "unknown_alias")
    problem(api.put("/aliases/some", json={"model": "nobody"}), 404, "unknown_model")
    invalid(api.put("/aliases/some", json={"model": 3}), "model", "wrong_type")
    text = invalid(api.put("/aliases/some", json={"model": "so me"}), "model", "invalid_value")
    assert text.startswith("must match pattern")
    text = invalid(api.put("/aliases/some", json={"model": "default", "x": 1}), "x", "unknown_field")
    assert text == "unknown field"
    problem(api.put("/aliases/so me", json={"model": "default"}), 422, "invalid_model_name")


def test_a_clone_begins_with_what_was_learned_and_goes_its_own_way(api: httpx.Client, model: str) -> None:
    name = f"copy-{model.rpartition('/')[2]}"
    api.post(f"{model}/update", json=EXAMPLE).raise_for_status()
    made = api.post(f"{model}/clone", json={"name": name, "hyper": {"alpha": 0.5}})
    assert made.status_code == 422, "alpha stands in `rate`"
    made = api.post(f"{model}/clone", json={"name": name})
    assert made.status_code == 201
    source = api.get(model).json()
    same = ("t", "features_seen", "nonzero", "hyper", "hashing")
    assert [made.json()[field] for field in same] == [source[field] for field in same]
    probe = {"features": EXAMPLE["features"]}
    old = api.post(f"{model}/predict", json=probe).json()["probability"]
    assert api.post(f"/models/{name}/predict", json=probe).json()["probability"] == old
    assert api.post(f"/models/{name}/update", json=EXAMPLE).json()["probability"] == old
    assert api.post(f"{model}/predict", json=probe).json()["probability"] == old
    assert api.get(f"/models/{name}").json()["t"] == 2
    again = api.post(f"{model}/clone", json={"name": name})
    assert (again.status_code, api.post("/models/nobody/clone", json={"name": "x"}).status_code) == (409, 404)
    api.delete(f"/models/{name}").raise_for_status()


def test_a_clone_may_have_other_hyperparameters_of_its_family(api: httpx.Client, model: str) -> None:
    name = f"other-{model.rpartition('/')[2]}"
    rate = {"kind": "adaptive", "alpha": 0.3, "beta": 2.0}
    made = api.post(f"{model}/clone", json={"name": name, "hyper": {"l1": 3.0, "rate": rate}})
    assert made.json()["hyper"]["l1"] == 3.0
    again = api.post(f"/models/{name}/clone", json={"name": f"{name}-2", "hyper": {"l1": 1.0}})
    assert again.json()["hyper"] == made.json()["hyper"] | {"l1": 1.0}, "what is left out stays"
    api.delete(f"/models/{name}-2").raise_for_status()
    refused = api.post(f"{model}/clone", json={"name": f"{name}-2", "hyper": {"family": "rda"}})
    problem(refused, 409, "snapshot_mismatch")
    api.delete(f"/models/{name}").raise_for_status()


def test_a_clone_may_wait_for_labels_in_another_way(api: httpx.Client, model: str) -> None:
    name = f"patient-{model.rpartition('/')[2]}"
    feedback = api.get(model).json()["feedback"]
    more = {"log": True, "max_bytes": 1 << 30}
    made = api.post(f"{model}/clone", json={"name": name, "feedback": more})
    assert made.json()["feedback"] == feedback | more
    longer = api.post(
        f"/models/{name}/clone", json={"name": f"{name}-2", "feedback": {"window_seconds": 7200}}
    )
    assert longer.json()["feedback"] == feedback | more | {"window_seconds": 7200.0}
    assert api.get(model).json()["feedback"] == feedback
    for made_here in (name, f"{name}-2"):
        api.delete(f"/models/{made_here}").raise_for_status()


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"feedback": {"window_seconds": 0}}, "feedback.window_seconds"),
        ({"feedback": {"window": 60}}, "feedback.window"),
        ({"feedback": 60}, "feedback"),
        ({"hyper": {"l1": -1}}, "hyper.l1"),
        ({"hashing": {"bits": 20}}, "hashing"),
    ],
)
def test_a_clone_of_which_nothing_comes_says_where_it_is_wrong(
    api: httpx.Client, model: str, changes: dict[str, object], path: str
) -> None:
    name = f"wrong-{model.rpartition('/')[2]}"
    refused = api.post(f"{model}/clone", json={"name": name, **changes})
    [error] = problem(refused, 422, "unprocessable")["errors"]
    assert error["path"] == path
    assert api.get(f"/models/{name}").status_code == 404
