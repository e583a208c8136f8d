"""/predict and /models/{name}/predict, by their contract."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

ONE: dict[str, Any] = {
    "features": {"ad": "a17", "site": "news", "hour": 14, "tags": ["sport", "video"], "age": None}
}


def test_an_untrained_model_predicts_a_half(api: httpx.Client, model: str) -> None:
    reply = api.post(f"{model}/predict", json=ONE)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == {
        "probability": 0.5,
        "model": model.removeprefix("/models/"),
        "revision": reply.json()["revision"],
    }


def test_predict_without_a_name_means_the_model_default(api: httpx.Client) -> None:
    short, long = (api.post(path, json=ONE).json() for path in ("/predict", "/models/default/predict"))
    assert short == long
    assert short["model"] == "default"


def test_the_id_of_a_request_comes_back(api: httpx.Client) -> None:
    for identifier in ("r-1", 'quote " backslash \\ newline \n', "żółć 🦊"):
        assert api.post("/predict", json=ONE | {"id": identifier}).json()["id"] == identifier


def test_an_id_of_null_is_none(api: httpx.Client) -> None:
    assert "id" not in api.post("/predict", json=ONE | {"id": None}).json()


def test_no_features_at_all_are_fine(api: httpx.Client) -> None:
    assert api.post("/predict", json={"features": {}}).status_code == 200


def test_instances_are_answered_in_order_with_their_ids(api: httpx.Client) -> None:
    instances = [{"features": {"ad": f"a{i}"}, "id": f"i{i}"} for i in range(5)]
    instances[3].pop("id")
    reply = api.post("/predict", json={"instances": instances}).json()
    assert [prediction.get("id") for prediction in reply["predictions"]] == ["i0", "i1", "i2", None, "i4"]
    assert reply.keys() == {"predictions", "model", "revision"}


def test_no_instances_get_no_predictions(api: httpx.Client) -> None:
    assert api.post("/predict", json={"instances": []}).json()["predictions"] == []


def test_a_context_counts_as_if_every_instance_had_its_features(api: httpx.Client, model: str) -> None:
    context: dict[str, Any] = {"user": "u1", "hour": 3}
    own: list[dict[str, Any]] = [{"ad": "a"}, {"ad": "b", "price": 2.5}, {}]
    for features in own:
        body = {"features": context | features, "label": 1}
        assert api.post(f"{model}/update", json=body).status_code == 200
    shared = api.post(
        f"{model}/predict", json={"context": context, "instances": [{"features": f} for f in own]}
    )
    alone = [api.post(f"{model}/predict", json={"features": context | f}).json()["probability"] for f in own]
    assert [prediction["probability"] for prediction in shared.json()["predictions"]] == alone
    assert len(set(alone)) > 1


def test_one_example_is_predicted_like_a_single_instance(api: httpx.Client) -> None:
    path = "/models/raw-numbers"
    hashing = {"bits": 12, "numeric": "raw"}
    api.put(path, json={"hyper": {"l1": 0}, "hashing": hashing}).raise_for_status()
    features = {"ad": "a", "price": 2.5, "age": -3, "zero": 0}
    api.post(f"{path}/update", json={"features": features, "label": 1}).raise_for_status()
    for own in (features, {"ad": "a"}, {}):
        one = api.post(f"{path}/predict", json={"features": own}).json()["probability"]
        many = api.post(f"{path}/predict", json={"instances": [{"features": own}]}).json()
        assert one == many["predictions"][0]["probability"] != 0.5
    api.delete(path)


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "application/vnd.api+json"])
def test_any_kind_of_json_is_taken(api: httpx.Client, content_type: str) -> None:
    reply = api.post("/predict", content=b'{"features": {}}', headers={"content-type": content_type})
    assert reply.status_code == 200
