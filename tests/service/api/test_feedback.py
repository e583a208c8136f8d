"""Clicks that come later, over HTTP."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx
import pytest

from service.example_log.ids import is_sampled, new_ids, packed_id
from service.feedback.store import key_of
from service.storage.records import meta_key
from tests.support.problem_replies import invalid, problem
from tests.support.servers import ServerProcess
from tests.support.waiting import wait_until

FEATURES = {"user": "u1", "ad": "a7", "hour": 14}
LONG = {"window_seconds": 60, "unshown_seconds": 60, "grace_seconds": 60, "late_seconds": 60}
CLOSES_SOON = {"window_seconds": 5, "unshown_seconds": 5}  # after a few requests, on a busy machine too


class Model:
    def __init__(self, http: httpx.Client, path: str, **feedback: Any) -> None:
        self.http, self.path = http, path
        body = {"hashing": {"bits": 12}, "feedback": LONG | feedback}
        http.put(path, json=body).raise_for_status()

    def post(self, verb: str, body: Any) -> httpx.Response:
        return self.http.post(f"{self.path}/{verb}", json=body)

    def predict(self, **fields: Any) -> dict[str, Any]:
        answer = self.post("predict", {"features": FEATURES, **fields})
        assert answer.status_code == 200, answer.text
        reply: dict[str, Any] = answer.json()
        return reply

    def rounds(self, at_least: int) -> int:
        def t() -> int:
            return int(self.http.get(self.path).json()["t"])

        wait_until(lambda: t() >= at_least)
        return t()


@pytest.fixture
def make_model(api: httpx.Client, request: pytest.FixtureRequest) -> Iterator[Any]:
    path = f"/models/{abs(hash(request.node.nodeid)):x}"
    yield lambda **feedback: Model(api, path, **feedback)
    api.delete(path)


def test_a_prediction_is_logged_where_it_says_so_and_gets_an_id(make_model: Any) -> None:
    model = make_model()
    assert "logged" not in model.predict()
    first, second = model.predict(log=True), model.predict(log=True)
    assert first["logged"] is True
    assert first["id"] < second["id"], "ids sort by time"
    assert model.predict(log=True, id="mine")["id"] == "mine"
    body = {"instances": [{"features": FEATURES}, {"features": {}, "id": "b"}], "log": True}
    many = model.post("predict", body).json()
    assert many["logged"] is True
    assert many["predictions"][1]["id"] == "b"


def test_a_model_can_log_by_default(make_model: Any) -> None:
    model = make_model(log=True)
    assert model.predict()["logged"] is True
    assert "logged" not in model.predict(log=False)


@pytest.mark.parametrize("wait", [True, False])
def test_a_logged_prediction_has_the_probability_of_one_that_is_not(make_model: Any, wait: bool) -> None:
    model = make_model(wait=wait)
    model.post("update", {"features": FEATURES, "label": 1})
    assert model.predict(log=True)["probability"] == model.predict()["probability"]


@pytest.mark.slow
def test_a_click_joins_its_impression_and_is_learned_after_the_window(make_model: Any) -> None:
    model = make_model(**CLOSES_SOON)
    one = model.predict(log=True)["id"]
    shown = model.post("impressions", {"ids": [one, "never logged"]})
    assert shown.json() == {
        "results": [{"id": one, "status": "shown"}, {"id": "never logged", "status": "unknown"}]
    }
    click = model.post("update", {"id": one, "label": 1})
    assert click.status_code == 202
    assert click.json() == {
        "status": "waiting",
        "probability": None,
        "loss": None,
        "revision": None,
        "id": one,
    }
    assert model.rounds(1) == 1
    assert model.predict()["probability"] > 0.5
    again = model.post("update", {"id": one, "label": 1}).json()
    assert again["status"] == "duplicate"
    assert again["probability"] is not None, "what was predicted when the first was learned"


def test_a_click_can_be_learned_before_the_reply(make_model: Any) -> None:
    model = make_model(learn_at="arrival", exposure="on_predict")
    served = model.predict(log=True)
    click = model.post("update", {"id": served["id"], "label": 1})
    assert click.status_code == 200
    assert (click.json()["status"], click.json()["probability"]) == ("learned", served["probability"])


def test_a_label_between_is_taken_once(make_model: Any) -> None:
    model = make_model(learn_at="arrival", exposure="on_predict")
    one = model.predict(log=True)["id"]
    reply = model.post("update", {"id": one, "label": 0.25, "weight": 3})
    assert (reply.status_code, reply.json()["status"]) == (200, "learned")
    assert reply.json()["loss"] == pytest.approx(math.log(2))
    assert model.predict()["probability"] < 0.5
    assert model.post("update", {"id": one, "label": 0.25}).json()["status"] == "duplicate"
    problem(model.post("update", {"id": one, "label": 0.5}), 409, "label_conflict")


def test_a_label_that_cannot_be_taken_says_why(make_model: Any) -> None:
    model = make_model(exposure="on_predict")
    one = model.predict(log=True)["id"]
    model.post("update", {"id": one, "label": 1}).raise_for_status()
    assert model.post("update", {"id": one, "label": 1}).json()["status"] == "duplicate"
    conflict, unknown = (
        model.post("update", {"id": one, "label": 0}),
        model.post("update", {"id": "x", "label": 0}),
    )
    assert problem(conflict, 409, "label_conflict")["id"] == one
    assert problem(unknown, 404, "unknown_prediction")["id"] == "x"
    for body in (
        {"id": one},
        {"id": one, "label": 2},
        {"id": one, "label": 1, "features": {}},
        {"id": "", "label": 1},
    ):
        assert model.post("update", body).status_code == 422, body


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"id": "a", "label": 1, "features": {}}, "features"),
        ({"id": "a", "label": 1, "event_id": "e"}, "event_id"),
        ({"examples": [{"id": "a", "label": 1, "features": {}}]}, "examples[0].features"),
        ({"ids": ["a"], "label": 1}, "ids"),
    ],
)
def test_a_malformed_label_says_what_to_send(make_model: Any, body: dict[str, Any], path: str) -> None:
    invalid(make_model().post("update", body), path, "unknown_field")


def test_labels_and_examples_come_in_one_list(make_model: Any) -> None:
    model = make_model(learn_at="arrival", exposure="on_predict")
    one = model.predict(log=True)["id"]
    items = [
        {"features": FEATURES, "label": 0, "event_id": "e1"},
        {"id": one, "label": 1},
        {"id": "nobody", "label": 1},
        {"features": FEATURES, "label": 1, "event_id": "e2"},
        {"id": one, "label": 0},
    ]
    answer = model.post("update", {"examples": items})
    results = answer.json()["results"]
    assert [one.get("id", one.get("event_id")) for one in results] == ["e1", one, "nobody", "e2", one]
    assert [one["status"] for one in results] == ["learned", "learned", "unknown", "learned", "conflict"]


def test_examples_of_a_list_are_durable_before_its_labels_are_awaited(
    start_api: Any, fresh_valkey: ServerProcess
) -> None:
    api = start_api(fresh_valkey, run_learner=False, update_timeout_seconds=60)
    model = Model(api.client, "/models/mixed", learn_at="arrival", exposure="on_predict")
    items = [{"id": model.predict(log=True)["id"], "label": 1}, {"features": FEATURES, "label": 0}]
    with ThreadPoolExecutor(1) as pool, fresh_valkey.client() as client:
        asked = pool.submit(model.post, "update", {"examples": items})
        wait_until(lambda: client.hget(meta_key("mixed"), "appended") == b"2", "both are in the log")
        start_api(fresh_valkey)
        results = asked.result().json()["results"]
    assert [one["status"] for one in results] == ["learned", "learned"]


def test_another_prediction_under_the_same_id_is_a_conflict(make_model: Any) -> None:
    model = make_model()
    model.predict(log=True, id="a")
    assert model.predict(log=True, id="a")["logged"] is True
    other = model.post("predict", {"features": {"user": "u2"}, "id": "a", "log": True})
    assert other.status_code == 409
    assert other.json()["ids"] == ["a"]


def fates(api: httpx.Client, model: Model) -> dict[str, float]:
    """What /metrics counts of the model's predictions, and how many wait at each stage."""
    found = {}
    for line in api.get("/metrics").text.splitlines():
        if line.startswith("ftrl_feedback_") and f'model="{model.path.rpartition("/")[2]}"' in line:
            name, _, value = line.rpartition(" ")
            if kind := re.search(r'(?:fate|stage)="(\w+)"', name):
                found[kind[1]] = float(value)
    return found


@pytest.mark.slow
def test_what_came_of_predictions_is_counted_from_the_first_one_on(
    make_model: Any, api: httpx.Client
) -> None:
    model = make_model(**CLOSES_SOON)
    ids = [model.predict(log=True)["id"] for _ in range(3)]
    model.post("impressions", {"ids": ids[:2]})
    model.post("update", {"id": ids[0], "label": 1})
    due = {"never_shown": 1, "joined": 1, "negative": 1}
    wait_until(lambda: due.items() <= fates(api, model).items())
    counted = fates(api, model)
    assert (counted["logged"], counted["shown"]) == (3, 2)
    assert counted["late"] == 0, "there before the first one, or Prometheus would miss it"
    name = model.path.rpartition("/")[2]
    assert f'ftrl_feedback_label_delay_seconds_count{{model="{name}"}} 1.0' in api.get("/metrics").text


@pytest.mark.slow
def test_a_model_that_is_created_again_counts_on(make_model: Any, api: httpx.Client) -> None:
    for created in (1, 2):
        model = make_model(exposure="on_predict", window_seconds=1)
        for _ in range(created):
            model.predict(log=True)
        negatives = created * (created + 1) / 2
        wait_until(lambda: fates(api, model).get("negative", 0) >= negatives)  # noqa: B023
        counted = fates(api, model)
        assert counted["logged"] == counted["negative"] == negatives
        api.delete(model.path)


@pytest.mark.slow
def test_without_redis_predictions_are_served_and_not_logged(
    start_api: Any, fresh_valkey: ServerProcess
) -> None:
    api = start_api(fresh_valkey, redis_timeout_seconds=1, update_timeout_seconds=2)
    assert api.client.post("/predict", json={"features": FEATURES, "log": True}).json()["logged"] is True
    fresh_valkey.pause()
    answer = api.client.post("/predict", json={"features": FEATURES, "log": True})
    label = api.client.post("/update", json={"id": answer.json()["id"], "label": 1})
    fresh_valkey.resume()
    assert answer.json()["logged"] is False
    assert label.status_code == 503
    assert label.json()["ids"] == [answer.json()["id"]]


def test_made_ids_sort_by_time() -> None:
    made = [text for _ in range(500) for text in new_ids(2)]
    instants = [text[:18] for text in made]
    assert instants == sorted(instants)
    assert len(set(made)) == 1000
    assert {UUID(text).version for text in made} == {7}


@pytest.mark.parametrize("spelled", ["{:08x}-0000-7000-8000-000000000000", "00000000-0000-7000-8000-{:012x}"])
def test_ids_that_differ_anywhere_are_sampled_independently(spelled: str) -> None:
    packed = [packed_id(spelled.format(number)) for number in range(10_000)]
    assert len({key_of(one) for one in packed}) == 10_000
    assert sum(is_sampled(one, 0.1) for one in packed) == pytest.approx(1000, abs=150)  # five standard errors
