"""Challengers over HTTP: created, described, predicted with, deleted; refused what their champion takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.problem_replies import problem
from tests.support.waiting import wait_until

EXAMPLE = {"features": {"ad": "a1", "site": "s1"}, "label": 1}


@pytest.fixture
def challenger(api: httpx.Client, model: str) -> Iterator[str]:
    path = f"{model}-b"
    api.put(path, json={"follows": name_of(model), "hashing": {"bits": 14}}).raise_for_status()
    yield path
    api.delete(path)


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def learned(api: httpx.Client, path: str, t: int) -> dict[str, Any]:
    """The description of a model that has played so many rounds."""

    def has_learned() -> dict[str, Any] | None:
        found: dict[str, Any] = api.get(path).raise_for_status().json()
        return found if found["t"] == t else None

    return wait_until(has_learned, f"{path} has learned {t} examples")


def test_a_challenger_learns_what_is_sent_to_its_champion(
    api: httpx.Client, model: str, challenger: str
) -> None:
    features = {"features": EXAMPLE["features"]}
    before = api.post(f"{challenger}/predict", json=features).json()["probability"]
    for _ in range(3):
        assert api.post(f"{model}/update", json=EXAMPLE).json()["status"] == "learned"
    described = learned(api, challenger, 3)
    assert described["follows"] == {
        "model": name_of(model),
        "start": "now",
        "status": "following",
        "behind_examples": 0,
        "promote": None,
    }
    assert (described["hyper"], described["hashing"]["bits"]) == (api.get(model).json()["hyper"], 14)
    assert api.get(model).json()["challengers"] == [name_of(challenger)]

    def predicts_more() -> bool:
        return bool(api.post(f"{challenger}/predict", json=features).json()["probability"] > before)

    wait_until(predicts_more)


def test_the_same_put_changes_nothing_and_another_is_refused(
    api: httpx.Client, model: str, challenger: str
) -> None:
    body = {"follows": name_of(model), "hashing": {"bits": 14}}
    assert api.put(challenger, json=body).status_code == 200
    problem(api.put(challenger, json=body | {"hyper": {"l2": 3}}), 409, "model_conflict")
    problem(api.put(challenger, json={"follows": "default"}), 409, "model_conflict")
    problem(api.put(model, json={"follows": "default"}), 409, "model_conflict")


def test_what_belongs_to_the_champion_is_refused(api: httpx.Client, model: str, challenger: str) -> None:
    updated = problem(api.post(f"{challenger}/update", json=EXAMPLE), 409, "model_follows")
    assert (updated["champion"], updated["model"]) == (name_of(model), name_of(challenger))
    problem(api.post(f"{challenger}/update", json={"id": "p1", "label": 1}), 409, "model_follows")
    problem(api.post(f"{challenger}/impressions", json={"ids": ["p1"]}), 409, "model_follows")
    logged = {"features": EXAMPLE["features"], "log": True}
    problem(api.post(f"{challenger}/predict", json=logged), 409, "model_follows")
    problem(api.patch(challenger, json={"feedback": {"window_seconds": 60}}), 409, "model_follows")


@pytest.mark.parametrize(
    ("field", "value"), [("seed", 1), ("numeric", "raw"), ("crosses", [["a", "b"]]), ("missing", "indicator")]
)
def test_a_contract_that_hashes_otherwise_cannot_follow(
    api: httpx.Client, model: str, field: str, value: object
) -> None:
    body = {"follows": name_of(model), "hashing": {field: value}}
    refused = problem(api.put(f"{model}-b", json=body), 409, "challenger_refused")
    assert refused["field"] == f"hashing.{field}"
    problem(api.get(f"{model}-b"), 404, "unknown_model")
    assert api.get(model).json()["challengers"] == []


def test_who_cannot_be_a_champion(api: httpx.Client, model: str, challenger: str) -> None:
    body = {"follows": name_of(challenger)}
    refused = problem(api.put(f"{model}-c", json=body), 409, "challenger_refused")
    assert name_of(model) in refused["detail"]
    problem(api.put(f"{model}-c", json={"follows": f"{name_of(model)}-c"}), 404, "unknown_model")
    problem(api.put(f"{model}-c", json={"follows": "nobody"}), 404, "unknown_model")
    problem(api.put(f"{model}-c", json={"start": "now"}), 409, "challenger_refused")
    asked = {"follows": name_of(model), "feedback": {"log": True}}
    problem(api.put(f"{model}-c", json=asked), 409, "challenger_refused")


def test_an_alias_may_name_the_champion(api: httpx.Client, model: str) -> None:
    alias = f"alias-{name_of(model)}"
    api.put(f"/aliases/{alias}", json={"model": name_of(model)}).raise_for_status()
    described = api.put(f"{model}-b", json={"follows": alias}).raise_for_status().json()
    assert (described["follows"]["model"], described["follows"]["start"]) == (name_of(model), "state")
    api.delete(f"{model}-b").raise_for_status()
    assert api.get(model).json()["challengers"] == []
    api.delete(f"/aliases/{alias}").raise_for_status()


def test_a_challenger_outlives_its_champion(api: httpx.Client, model: str, challenger: str) -> None:
    api.post(f"{model}/update", json=EXAMPLE).raise_for_status()
    learned(api, challenger, 1)
    api.delete(model).raise_for_status()
    described = api.get(challenger).json()
    assert (described["follows"]["status"], described["follows"]["behind_examples"]) == (
        "champion_deleted",
        None,
    )
    assert api.post(f"{challenger}/predict", json={"features": {}}).status_code == 200


def test_a_challenger_is_compared_with_its_champion(api: httpx.Client, model: str, challenger: str) -> None:
    begun = api.get(f"{model}/challengers").raise_for_status().json()
    (only,) = begun["challengers"]
    assert (begun["model"], only["name"]) == (name_of(model), name_of(challenger))
    assert only["differs"] == {"hashing.bits": {"champion": 12, "challenger": 14}}
    assert (only["comparison"]["pairs"], only["comparison"]["difference"]) == (0, None)
    api.post(f"{model}/update", json=EXAMPLE | {"label": 0}).raise_for_status()
    learned(api, challenger, 1)
    examples = [EXAMPLE | {"label": label} for label in (0, 1, 0, 0)]
    api.post(f"{model}/update", json={"examples": examples}).raise_for_status()
    learned(api, challenger, 5)
    (found,) = api.get(f"{model}/challengers").json()["challengers"]
    compared = found["comparison"]
    assert compared["pairs"] in (4, 5), "its learner may begin only after the first"
    assert (compared["unpaired"], compared["clicks"], compared["clipped"]) == (0, 1, 0)
    assert compared["difference"] == compared["course"][-1]["difference"] == 0.0
    assert compared["interval"][0] < 0.0 < compared["interval"][1]
    assert (compared["verdict"], compared["verdict_time"], compared["calibration"]) == (
        "undecided",
        None,
        "undecided",
    )
    assert compared["champion"] == compared["challenger"]
    assert api.get(f"{challenger}/challengers").json()["challengers"] == []
    problem(api.get(f"{model}-none/challengers"), 404, "unknown_model")
