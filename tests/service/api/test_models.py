"""/models: creating, describing, listing and deleting them."""

from __future__ import annotations

import math

import httpx
import pytest

from tests.support.problem_replies import invalid, problem

SPECIFICATION = {
    "hyper": {"l1": 0, "rate": {"kind": "adaptive", "alpha": 0.2, "beta": 1}},
    "hashing": {"bits": 14, "crosses": [["ad", "site"]]},
}


@pytest.fixture
def name(api: httpx.Client, request: pytest.FixtureRequest):
    name = f"m-{abs(hash(request.node.nodeid)):x}"
    yield name
    api.delete(f"/models/{name}")


def test_a_model_is_created_once(api: httpx.Client, name: str) -> None:
    first = api.put(f"/models/{name}", json=SPECIFICATION)
    assert first.status_code == 201
    again = api.put(f"/models/{name}", json=SPECIFICATION)
    assert again.status_code == 200
    assert first.json() == again.json()
    assert name in api.get("/models").json()["models"]


def test_a_different_specification_of_an_existing_model_is_a_conflict(api: httpx.Client, name: str) -> None:
    api.put(f"/models/{name}", json=SPECIFICATION).raise_for_status()
    other = SPECIFICATION | {"hashing": {"bits": 15, "crosses": [["ad", "site"]]}}
    document = problem(api.put(f"/models/{name}", json=other), 409, "model_conflict")
    assert "bits" in document["detail"]
    assert api.get(f"/models/{name}").json()["hashing"]["bits"] == 14


def test_a_description_has_configuration_and_progress(api: httpx.Client, name: str) -> None:
    api.put(f"/models/{name}", json=SPECIFICATION).raise_for_status()
    empty = api.get(f"/models/{name}").json()
    assert empty["name"] == name
    assert empty["hyper"]["l1"] == 0
    assert empty["hyper"]["rate"] == {"kind": "adaptive", "alpha": 0.2, "beta": 1}
    assert empty["hashing"]["crosses"] == [["ad", "site"]]
    assert [empty[key] for key in ("t", "features_seen", "nonzero", "density")] == [0, 0, 0, 0]
    api.post(f"/models/{name}/update", json={"features": {"ad": "a", "site": "s"}, "label": 1})
    learned = api.get(f"/models/{name}").json()
    assert [learned[key] for key in ("t", "features_seen", "nonzero", "density")] == [1, 3, 3, 1]
    assert learned["revision"] != empty["revision"]


def test_a_prior_probability_is_what_a_new_model_predicts(api: httpx.Client, name: str) -> None:
    api.put(f"/models/{name}", json={"hashing": {"bits": 10, "prior_probability": 0.002}}).raise_for_status()
    probability = api.post(f"/models/{name}/predict", json={"features": {}}).json()["probability"]
    assert math.isclose(probability, 0.002)


def test_all_is_left_to_defaults_by_an_empty_specification(api: httpx.Client, name: str) -> None:
    described = api.put(f"/models/{name}", json={}).json()
    default = api.get("/models/default").json()
    assert described["hyper"] == default["hyper"]
    assert described["hashing"] == default["hashing"]


def test_the_successor_of_a_deleted_model_starts_empty(api: httpx.Client, name: str) -> None:
    api.put(f"/models/{name}", json=SPECIFICATION).raise_for_status()
    old = api.post(f"/models/{name}/update", json={"features": {"ad": "a"}, "label": 1}).json()
    deleted = api.delete(f"/models/{name}")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert name not in api.get("/models").json()["models"]
    for reply in (api.get(f"/models/{name}"), api.delete(f"/models/{name}")):
        assert problem(reply, 404, "unknown_model")["model"] == name
    problem(api.post(f"/models/{name}/predict", json={"features": {}}), 404, "unknown_model")
    new = api.put(f"/models/{name}", json=SPECIFICATION).json()
    assert (new["t"], new["features_seen"]) == (0, 0)
    assert new["revision"].split("-")[0] != old["revision"].split("-")[0]


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-D", "x" * 64])
def test_these_are_names(api: httpx.Client, name: str) -> None:
    api.put(f"/models/{name}", json={"hashing": {"bits": 10}}).raise_for_status()
    assert api.delete(f"/models/{name}").status_code == 204


@pytest.mark.parametrize(
    ("specification", "where"),
    [
        ({"hyper": {"family": "sgd"}}, "hyper.family"),
        ({"hyper": {"l1": -1}}, "hyper.l1"),
        ({"hyper": {"l3": 1}}, "hyper.l3"),
        ({"hyper": {"family": "comid"}}, "hyper"),  # not with the schedule `once`
        ({"hyper": {"rate": {"kind": "adaptive", "alpha": "1", "beta": 1}}}, "hyper.rate.alpha"),
        ({"hyper": 3}, "hyper"),
        ({"hashing": {"bits": 40}}, "hashing.bits"),
        ({"hashing": {"bits": "22"}}, "hashing.bits"),
        ({"hashing": {"crosses": [["a"]]}}, "hashing.crosses[0]"),
        ({"hashing": {"bit": 22}}, "hashing.bit"),
        ({"hashing": []}, "hashing"),
        ({"hashes": {}}, "hashes"),
        ({"evaluation": {"slices": "device"}}, "evaluation.slices"),
        ({"evaluation": {"slices": ["a", "b=c"]}}, "evaluation.slices[1]"),
        ({"evaluation": {"slices": ["a", "a"]}}, "evaluation.slices[1]"),
        ({"evaluation": {"most": 0}}, "evaluation.most"),
        ({"evaluation": {"slice": []}}, "evaluation.slice"),
        ({"evaluation": None}, "evaluation"),
    ],
)
def test_a_bad_specification_is_refused_where_it_is_bad(
    api: httpx.Client, specification: dict[str, object], where: str
) -> None:
    document = problem(api.put("/models/never", json=specification), 422, "unprocessable")
    assert [error["path"] for error in document["errors"]] == [where]
    problem(api.get("/models/never"), 404, "unknown_model")


@pytest.mark.parametrize("text", ["NaN", "1e999", "-Infinity"])
def test_hyperparameters_are_finite(api: httpx.Client, text: str) -> None:
    body = f'{{"hyper": {{"l1": {text}}}}}'
    reply = api.put("/models/never", content=body, headers={"content-type": "application/json"})
    invalid(reply, "hyper.l1", "invalid_value")
