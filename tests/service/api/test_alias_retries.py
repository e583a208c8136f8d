"""Predictions that are sent again, under the same id, through an alias which means another model by now."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from service.storage.keys import ALIASES, ModelKeys, meta_key
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


@pytest.mark.parametrize("exposure", ["explicit", "on_predict"])
def test_it_is_the_one_that_was_kept_first_and_its_click_is_learned_there(
    live: httpx.Client, exposure: str
) -> None:
    switched = Switched(live, exposure=exposure)
    if switched.explicit:
        assert switched.show() == "shown"
    switched.mean("new")
    assert switched.predict(id="k")["logged"] is True
    assert switched.click("new") == "404", "it is kept once"
    assert switched.show() == "duplicate"
    assert [switched.click(), switched.click()] == ["learned", "duplicate"]
    assert switched.learned() == {"old": 1, "new": 0}


def test_with_other_features_it_is_a_conflict_and_what_comes_beside_it_is_kept(live: httpx.Client) -> None:
    switched = Switched(live)
    switched.mean("new")
    items = [{"features": {"user": "u2"}, "id": one} for one in ("another", "k")] + [{"features": {}}]
    conflict = switched.post("predict", {"instances": items})
    assert (conflict.status_code, conflict.json()["ids"]) == (409, ["k"])
    shown = switched.post("impressions", {"ids": ["another", "k"]}, "new").json()["results"]
    assert [one["status"] for one in shown] == ["shown", "unknown"]


def test_it_is_the_same_also_where_the_models_hash_differently(live: httpx.Client) -> None:
    switched = Switched(live, {"hashing": {"bits": 12, "seed": 7, "crosses": [["user", "ad"]]}})
    switched.mean("new")
    assert switched.predict(id="k")["logged"] is True
    assert switched.post("predict", {"features": {"ad": "a8"}, "id": "k"}).status_code == 409
    assert switched.show("new") == "unknown"


def test_features_that_the_former_model_cannot_read_are_of_another_prediction(live: httpx.Client) -> None:
    switched = Switched(live)
    switched.create("strict", {"hashing": {"bits": 12, "strict": True}, "feedback": FEEDBACK})
    switched.mean("strict")
    switched.mean("new")
    assert switched.predict(id="fresh", features={"price": 7})["logged"] is True
    shown = switched.post("impressions", {"ids": ["fresh"]}, "new").json()["results"]
    assert shown == [{"id": "fresh", "status": "shown"}]


@pytest.mark.parametrize("field", ["live/old", "/since/live"])
def test_it_is_another_one_where_the_first_cannot_have_come_through_the_alias_or_wait_no_longer(
    live: httpx.Client, fresh_valkey: ServerProcess, field: str
) -> None:
    """Kept by the former model under its own name, after the switch; or so long ago that it is forgotten."""
    switched = Switched(live)
    switched.mean("new")
    assert switched.show("new") == "unknown"
    an_hour_ago = int(time.time()) - 3600
    with fresh_valkey.client() as client:
        client.hset(ALIASES, field, an_hour_ago * (1 if field == "live/old" else 1_000_000))

    def is_known() -> bool:
        """Once the process has read the field again."""
        known = switched.show("new") != "unknown"
        assert known or switched.predict(id="k")["logged"] is True
        return known

    wait_until(is_known)
    assert switched.show() == "duplicate"


def test_where_nobody_waits_for_it_it_is_looked_for_all_the_same(live: httpx.Client) -> None:
    switched = Switched(live, {"feedback": FEEDBACK | {"wait": False}})
    switched.mean("new")
    assert switched.predict(id="k")["logged"] is True
    assert switched.predict(id="marker")["logged"] is True
    while switched.post("impressions", {"ids": ["marker"]}, "new").json()["results"][0]["status"] != "shown":
        pass
    assert switched.show("new") == "unknown"
    assert switched.show() == "shown"
    assert switched.click() == "learned"
    assert switched.learned() == {"old": 1, "new": 0}


def test_a_click_joins_where_its_impression_is_though_both_models_kept_a_prediction(
    live: httpx.Client,
) -> None:
    """As where the first one was still on its way when it was looked for."""
    switched = Switched(live)
    assert switched.show() == "shown"
    switched.mean("new")
    switched.predict("new", id="k")
    assert [switched.click(), switched.click()] == ["learned", "duplicate"]
    assert switched.learned() == {"old": 1, "new": 0}


def test_a_click_that_got_only_so_far_as_where_no_impression_is_is_sent_on_when_it_is_repeated(
    live: httpx.Client,
) -> None:
    switched = Switched(live)
    assert switched.show() == "shown"
    switched.mean("new")
    switched.predict("new", id="k")
    assert switched.click("new") == "waiting"
    assert switched.click() == "learned"
    assert switched.learned() == {"old": 1, "new": 0}


def test_long_after_the_switch_it_is_another_one_whatever_else_has_been_changed_since(
    fresh_valkey: ServerProcess, live: httpx.Client
) -> None:
    """As where one id goes to the former model by its name and to the other through the alias."""
    switched = Switched(live, exposure="on_predict")
    switched.mean("new")
    with fresh_valkey.client() as redis:
        redis.hset(ALIASES, "/since/live", int((time.time() - 60) * 1e6))
    switched.create("third", {"feedback": FEEDBACK})
    live.put("/aliases/unrelated", json={"model": "third"}).raise_for_status()
    live.patch("/models/third", json={"feedback": {"max_bytes": 1 << 20}}).raise_for_status()
    for model in ("old", "live"):
        assert switched.predict(model, id="another")["logged"] is True
    labelled = switched.post("update", {"id": "another", "label": 1}, "new")
    assert labelled.json()["status"] == "learned"


def test_a_label_that_the_model_knows_is_taken_whatever_has_become_of_the_former_one(
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


def test_it_is_found_without_loading_the_former_model(
    fresh_valkey: ServerProcess, live: httpx.Client, start_api: ApiFactory
) -> None:
    switched = Switched(live)
    switched.mean("new")
    make_unloadable(fresh_valkey, "old")
    other = start_api(fresh_valkey, run_learner=False, **PATIENT).client
    body = {"features": FEATURES, "id": "k"}
    assert other.post("/models/live/predict", json=body).json()["logged"] is True
    assert other.post("/models/live/predict", json=body | {"features": {"ad": "a8"}}).status_code == 409
    assert switched.show("new") == "unknown", "it is kept once"
    live.delete("/models/old").raise_for_status()
    live.put("/models/old", json={"feedback": FEEDBACK}).raise_for_status()

    def is_known() -> bool:
        """The new model of that name has logged none."""
        known = switched.show("new") != "unknown"
        assert known or other.post("/models/live/predict", json=body).json()["logged"] is True
        return known

    wait_until(is_known)
    assert other.post("/models/old/predict", json=body).json()["logged"] is True


def test_a_process_that_cannot_load_the_new_model_yet_finds_what_another_has_kept_there(
    fresh_valkey: ServerProcess, live: httpx.Client, start_api: ApiFactory
) -> None:
    switched = Switched(live)
    other = start_api(fresh_valkey, run_learner=False, **PATIENT).client
    assert other.post("/models/live/predict", json={"features": FEATURES}).json()["model"] == "old"
    make_unloadable(fresh_valkey, "new")
    switched.mean("new")
    switched.predict(id="fresh")
    while other.post("/models/live/impressions", json={"ids": ["nobody"]}).status_code != 503:
        pass  # until it has heard of the switch
    again = other.post("/models/live/predict", json={"features": FEATURES, "id": "fresh"}).json()
    assert (again["model"], again["logged"]) == ("old", True)
    shown = switched.post("impressions", {"ids": ["fresh"]}, "old").json()["results"]
    assert shown == [{"id": "fresh", "status": "unknown"}]
