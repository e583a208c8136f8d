"""Predictions that are sent again, under the same id, through an alias which means another model by now."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.storage.records import ModelKeys, meta_key
from tests.service.api.conftest import ApiFactory
from tests.support.servers import ServerProcess
from tests.support.waiting import wait_until

# A busy machine is no outage.
PATIENT: dict[str, Any] = {"redis_timeout_seconds": 4, "update_timeout_seconds": 25}
FEATURES = {"user": "u1", "ad": "a7"}
FEEDBACK = {"log": True, "learn_at": "arrival"}


class Switched:
    """The alias meant `old`, where `first` was logged, and means `new`."""

    def __init__(self, api: httpx.Client, new: dict[str, Any] | None = None, **feedback: Any) -> None:
        self.api = api
        config: dict[str, Any] = {"hashing": {"bits": 12}, "feedback": FEEDBACK | feedback}
        self.create("old", config)
        self.create("new", config | (new or {}))
        self.mean("old")
        self.first = self.predict(id="k")
        self.explicit = config["feedback"].get("exposure") != "on_predict"

    def create(self, model: str, config: dict[str, Any]) -> None:
        self.api.put(f"/models/{model}", json=config).raise_for_status()

    def mean(self, model: str) -> None:
        self.api.put("/aliases/live", json={"model": model}).raise_for_status()

    def post(self, verb: str, body: Any, model: str = "live") -> httpx.Response:
        return self.api.post(f"/models/{model}/{verb}", json=body)

    def predict(self, model: str = "live", **fields: Any) -> Any:
        answer = self.post("predict", {"features": FEATURES} | fields, model)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def show(self, model: str = "live") -> str:
        return str(self.post("impressions", {"ids": ["k"]}, model).json()["results"][0]["status"])

    def click(self, model: str = "live") -> str:
        answer = self.post("update", {"id": "k", "label": 1}, model)
        return str(answer.json()["status"])

    def learned(self) -> dict[str, int]:
        return {name: self.api.get(f"/models/{name}").json()["t"] for name in ("old", "new")}


def make_unloadable(server: ServerProcess, model: str) -> None:
    with server.client() as redis:
        incarnation = redis.hget(meta_key(model), "incarnation").decode()
        redis.set(ModelKeys(model, incarnation).state(0), "nothing that can be loaded")


@pytest.fixture
def live(fresh_valkey: ServerProcess, start_api: ApiFactory) -> httpx.Client:
    return start_api(fresh_valkey, **PATIENT).client


@pytest.mark.parametrize("shown_before", [True, False])
def test_a_repeated_prediction_is_logged_again_and_learned_once(
    live: httpx.Client, shown_before: bool
) -> None:
    switched = Switched(live)
    if shown_before:
        assert switched.show() == "shown"
    switched.mean("new")
    again = switched.predict(id="k")
    assert (again["model"], again["logged"]) == ("new", True)
    assert switched.show() == ("duplicate" if shown_before else "shown")
    assert [switched.click(), switched.click()] == ["learned", "duplicate"]
    assert (switched.show(), switched.click()) == ("duplicate", "duplicate")
    assert switched.learned() == {"old": 1, "new": 0}


def test_a_click_before_both_impressions_is_learned_once(live: httpx.Client) -> None:
    switched = Switched(live)
    switched.mean("new")
    switched.predict(id="k")
    assert [switched.click(), switched.click()] == ["waiting", "duplicate"]
    assert switched.show() == "shown"
    assert [switched.click(), switched.show(), switched.click()] == ["duplicate"] * 3
    assert switched.learned() == {"old": 1, "new": 0}


def test_a_repeated_shown_prediction_gives_its_click_to_the_new_model(live: httpx.Client) -> None:
    switched = Switched(live, exposure="on_predict")
    switched.mean("new")
    assert switched.predict(id="k")["logged"] is True
    assert [switched.click(), switched.click()] == ["learned", "duplicate"]
    assert switched.learned() == {"old": 0, "new": 1}


def test_after_a_switch_other_features_of_an_id_are_no_conflict(
    live: httpx.Client,
) -> None:
    switched = Switched(live)
    switched.mean("new")
    assert switched.predict(id="k", features={"user": "u2"})["logged"] is True
    assert switched.post("predict", {"features": {"user": "u3"}, "id": "k"}).status_code == 409
    assert switched.show("new") == "shown"


def test_the_earliest_of_three_models_gets_impression_and_click(live: httpx.Client) -> None:
    switched = Switched(live)
    assert switched.show() == "shown"
    switched.create("old-too", {"hashing": {"bits": 12}, "feedback": FEEDBACK})
    for model in ("old-too", "new"):
        switched.mean(model)
        assert switched.predict(id="k")["model"] == model
    assert switched.show() == "duplicate"
    assert [switched.click(), switched.show(), switched.click()] == ["learned", "duplicate", "duplicate"]
    assert switched.learned() == {"old": 1, "new": 0}


def test_impressions_are_refused_while_the_former_model_is_unreadable(
    fresh_valkey: ServerProcess, live: httpx.Client, start_api: ApiFactory
) -> None:
    switched = Switched(live)
    switched.mean("new")
    switched.predict(id="k")
    make_unloadable(fresh_valkey, "old")
    other = start_api(fresh_valkey, run_learner=False, **PATIENT | {"update_timeout_seconds": 1}).client
    body = {"ids": ["k"]}
    assert other.post("/models/live/impressions", json=body).status_code == 503
    live.delete("/models/old").raise_for_status()
    wait_until(lambda: other.post("/models/live/impressions", json=body).status_code == 200)
    assert switched.show() == "duplicate"


def test_a_click_joins_the_model_that_has_its_impression(
    live: httpx.Client,
) -> None:
    switched = Switched(live)
    assert switched.show() == "shown"
    switched.mean("new")
    switched.predict("new", id="k")
    assert [switched.click(), switched.click()] == ["learned", "duplicate"]
    assert switched.learned() == {"old": 1, "new": 0}


def test_a_repeated_click_reaches_the_model_with_the_impression(
    live: httpx.Client,
) -> None:
    switched = Switched(live)
    assert switched.show() == "shown"
    switched.mean("new")
    switched.predict("new", id="k")
    assert switched.click("new") == "waiting"
    assert switched.click() == "learned"
    assert switched.learned() == {"old": 1, "new": 0}


@pytest.mark.slow
def test_a_label_of_this_model_is_accepted_if_the_former_one_is_gone(
    fresh_valkey: ServerProcess, live: httpx.Client, start_api: ApiFactory
) -> None:
    switched = Switched(live)
    switched.mean("new")
    ids = [f"id-{number}" for number in range(4)]
    for one in ids:
        switched.predict(id=one)
    unloadable = start_api(fresh_valkey, run_learner=False, **PATIENT).client
    make_unloadable(fresh_valkey, "old")
    batch = {"examples": [{"id": ids[0], "label": 1}, {"features": FEATURES, "label": 0}]}
    results = unloadable.post("/models/live/update", json=batch).json()["results"]
    assert [one["status"] for one in results] == ["waiting", "learned"]
    assert start_api(fresh_valkey, run_learner=False, **PATIENT).client.delete("/models/old").is_success
    for one in ids[1:]:
        assert switched.post("update", {"id": one, "label": 1}).json()["status"] == "waiting"
    unknown = switched.post("update", {"id": "nobody", "label": 1})
    assert (unknown.status_code, switched.show("live")) == (404, "unknown")
