"""/update and /models/{name}/update, by their contract."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest

from tests.support.waiting import wait_until

CLICK = {"features": {"ad": "a17", "site": "news"}, "label": 1}


def test_an_example_is_learned_before_the_reply(api: httpx.Client, model: str) -> None:
    reply = api.post(f"{model}/update", json=CLICK)
    assert reply.status_code == 200
    result = reply.json()
    assert result["status"] == "learned"
    assert result["probability"] == 0.5
    assert result["loss"] == pytest.approx(math.log(2))
    assert result["event_id"]
    after = api.post(f"{model}/predict", json={"features": CLICK["features"]}).json()
    assert after["probability"] > 0.5
    assert after["revision"] == result["revision"]


def test_the_probability_of_an_update_is_of_before_it(api: httpx.Client, model: str) -> None:
    first, second = (api.post(f"{model}/update", json=CLICK).json() for _ in range(2))
    assert first["probability"] == 0.5
    assert second["probability"] > 0.5


def test_results_of_many_examples_are_in_order(api: httpx.Client, model: str) -> None:
    examples = [{"features": {"ad": "a"}, "label": i % 2, "event_id": f"e{i}"} for i in range(4)]
    reply = api.post(f"{model}/update", json={"examples": examples})
    assert reply.status_code == 200
    results = reply.json()["results"]
    assert [result["event_id"] for result in results] == ["e0", "e1", "e2", "e3"]
    assert {result["status"] for result in results} == {"learned"}
    assert results[0]["probability"] == 0.5


def test_no_examples_are_fine(api: httpx.Client) -> None:
    assert api.post("/update", json={"examples": []}).json() == {"results": []}


def test_many_at_once_learn_what_they_would_one_by_one(api: httpx.Client) -> None:
    examples = [{"features": {"ad": f"a{i % 3}", "n": i}, "label": int(i % 4 == 0)} for i in range(30)]
    for name in ("together", "single"):
        api.put(f"/models/{name}", json={"hashing": {"bits": 12}}).raise_for_status()
    together = api.post("/models/together/update", json={"examples": examples}).json()["results"]
    single = [api.post("/models/single/update", json=example).json() for example in examples]
    assert [r["probability"] for r in together] == [r["probability"] for r in single]


@pytest.mark.parametrize("label", [True, False, 0, 1, 0.0, 1.0])
def test_labels_may_be_numbers_or_booleans(api: httpx.Client, model: str, label: object) -> None:
    result = api.post(f"{model}/update", json=CLICK | {"label": label}).json()
    assert result["status"] == "learned"
    after = api.post(f"{model}/predict", json={"features": CLICK["features"]}).json()["probability"]
    assert (after > 0.5) == bool(label)


def test_a_label_between_is_learned_as_a_part_of_a_click(api: httpx.Client, model: str) -> None:
    examples = [CLICK | {"label": 0.25, "weight": 2}, CLICK | {"label": 0.25}] * 60
    results = api.post(f"{model}/update", json={"examples": examples}).json()["results"]
    assert results[0]["loss"] == pytest.approx(math.log(2))
    p, loss = results[-1]["probability"], results[-1]["loss"]
    assert loss == pytest.approx(-0.25 * math.log(p) - 0.75 * math.log1p(-p))
    assert p == pytest.approx(0.25, abs=0.05)

    def windows() -> dict[str, Any] | None:
        found = api.get(f"{model}/evaluation").json()["sources"]["progressive"]["windows"]["all"]
        return found if found["examples"] == 120 else None

    figures = wait_until(windows)
    assert figures["clicks"] == figures["unweighted"]["clicks"] == 30
    described = api.get(f"{model}/log", params={"from": "0"}).json()
    assert sum(line["clicks"] for line in described["lines"]) == 30


def test_weight_and_inverse_sample_rate_multiply(api: httpx.Client) -> None:
    def after(name: str, **options: float) -> float:
        api.put(f"/models/{name}", json={"hashing": {"bits": 12}}).raise_for_status()
        api.post(f"/models/{name}/update", json=CLICK | options).raise_for_status()
        reply = api.post(f"/models/{name}/predict", json={"features": CLICK["features"]})
        return float(reply.json()["probability"])

    assert after("w1", weight=8) == after("w2", weight=2, sample_rate=0.25) == after("w3", sample_rate=0.125)
    assert after("w4") != after("w1", weight=8)


def test_a_repeated_event_id_is_learned_once(api: httpx.Client, model: str) -> None:
    body = CLICK | {"event_id": "impression-7"}
    first, again = api.post(f"{model}/update", json=body), api.post(f"{model}/update", json=body)
    assert first.json()["status"] == "learned"
    assert again.status_code == 200
    assert again.json()["status"] == "duplicate"
    assert again.json()["probability"] == first.json()["probability"]
    assert again.json()["event_id"] == "impression-7"
    assert api.get(model).json()["t"] == 1


def test_an_event_id_repeated_within_one_request_is_learned_once(api: httpx.Client, model: str) -> None:
    body = {"examples": [CLICK | {"event_id": "e"}, CLICK | {"event_id": "e"}, CLICK | {"event_id": "f"}]}
    results = api.post(f"{model}/update", json=body).json()["results"]
    assert [result["status"] for result in results] == ["learned", "duplicate", "learned"]
    assert api.get(model).json()["t"] == 2


def test_the_id_that_the_server_made_can_be_sent_again(api: httpx.Client, model: str) -> None:
    made = api.post(f"{model}/update", json=CLICK).json()["event_id"]
    assert api.post(f"{model}/update", json=CLICK | {"event_id": made}).json()["status"] == "duplicate"
    assert api.get(model).json()["t"] == 1


@pytest.mark.parametrize("event_id", ["ü" * 256, "\x00", 'quote "', "🦊"])
def test_event_ids_may_be_any_text(api: httpx.Client, model: str, event_id: str) -> None:
    body = CLICK | {"event_id": event_id}
    assert api.post(f"{model}/update", json=body).json()["event_id"] == event_id
    assert api.post(f"{model}/update", json=body).json()["status"] == "duplicate"


def test_not_waiting_answers_202_and_learns_later(api: httpx.Client, model: str) -> None:
    reply = api.post(f"{model}/update?wait=false", json=CLICK | {"event_id": "later"})
    assert (reply.status_code, reply.json()["status"]) == (202, "appended")
    result = api.post(f"{model}/update", json=CLICK | {"event_id": "later"}).json()
    assert result["status"] == "duplicate"
    assert api.get(model).json()["t"] == 1


@pytest.mark.parametrize("flag", ["true", "1", "True"])
def test_waiting_can_be_asked_for(api: httpx.Client, model: str, flag: str) -> None:
    assert api.post(f"{model}/update?wait={flag}&other=1", json=CLICK).status_code == 200


@pytest.mark.parametrize(
    "event_time", ["2024-05-01T12:00:00Z", "2024-05-01t12:00:00.123+02:00", 1714564800, 946684800.5]
)
def test_event_times_are_texts_or_seconds(api: httpx.Client, model: str, event_time: object) -> None:
    assert api.post(f"{model}/update", json=CLICK | {"event_time": event_time}).status_code == 200


def test_options_of_null_are_as_if_left_out(api: httpx.Client, model: str) -> None:
    nothing = dict.fromkeys(("weight", "sample_rate", "event_id", "event_time"))
    assert api.post(f"{model}/update", json=CLICK | nothing).status_code == 200


def test_without_a_learner_an_update_is_appended_and_says_so(valkey, start_api) -> None:
    api = start_api(valkey, run_learner=False, update_timeout_seconds=0.3)
    reply = api.client.post("/update", json=CLICK)
    assert reply.status_code == 202
    assert reply.json() | {"event_id": ""} == {
        "status": "appended",
        "probability": None,
        "loss": None,
        "revision": None,
        "event_id": "",
    }
