"""What a client can get wrong, row by row, and how it is told."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.problem_replies import problem

GOOD: dict[str, Any] = {"features": {"ad": "a17"}, "label": 1}


def post(api: httpx.Client, path: str, text: str) -> httpx.Response:
    return api.post(path, content=text.encode(), headers={"content-type": "application/json"})


@pytest.mark.parametrize("path", ["/predict", "/update"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"features": {}',
        "{'features': {}}",
        '{"features": {}} x',
        "[" * 1000,
        '{"features": {"a": "\\ud800"}}',
    ],
)
def test_broken_json_is_refused(api: httpx.Client, path: str, text: str) -> None:
    problem(post(api, path, text), 422, "", "Invalid JSON")


def test_json_that_is_not_utf_8_is_refused(api: httpx.Client) -> None:
    reply = api.post("/predict", content=b'{"\xff": 1}', headers={"content-type": "application/json"})
    problem(reply, 422, "", "Invalid JSON")


@pytest.mark.parametrize("path", ["/predict", "/update"])
@pytest.mark.parametrize("text", ["[]", "null", "3", '"text"', "true"])
def test_a_body_that_is_no_object_is_refused(api: httpx.Client, path: str, text: str) -> None:
    problem(post(api, path, text), 422, "", "must be an object")


@pytest.mark.parametrize(
    ("path", "body", "where", "what"),
    [
        ("/predict", {"features": []}, "features", "an object"),
        ("/predict", {"features": None}, "features", "an object"),
        ("/predict", {"features": {"a": {"b": 1}}}, "features.a", "must be a string"),
        ("/predict", {"features": {"a": ["x", 1]}}, "features.a[1]", "only strings"),
        ("/predict", {"features": {}, "id": 7}, "id", "a string"),
        ("/predict", {"instances": {}}, "instances", "a list"),
        ("/predict", {"instances": [3]}, "instances[0]", "an object"),
        ("/predict", {"instances": [{"features": {}}, {}]}, "instances[1].features", "required"),
        ("/predict", {"instances": [], "context": 3}, "context", "an object"),
        ("/update", GOOD | {"weight": "2"}, "weight", "a number"),
        ("/update", GOOD | {"weight": True}, "weight", "a number"),
        ("/update", GOOD | {"sample_rate": "0.5"}, "sample_rate", "a number"),
        ("/update", GOOD | {"event_id": 7}, "event_id", "a string"),
        ("/update", GOOD | {"event_time": True}, "event_time", "RFC 3339"),
        ("/update", {"examples": [GOOD, GOOD | {"features": 3}]}, "examples[1].features", "an object"),
        ("/update", {"examples": [GOOD, GOOD | {"weight": "2"}]}, "examples[1].weight", "a number"),
    ],
)
def test_wrong_types_are_refused_where_they_stand(
    api: httpx.Client, path: str, body: dict[str, Any], where: str, what: str
) -> None:
    problem(api.post(path, json=body), 422, where, what)


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/predict", {"features": {}, "feature": 1}, "feature"),
        ("/predict", {"features": {}, "logged": True}, "logged"),
        ("/predict", {"features": {}, "instances": []}, "features"),
        ("/predict", {"instances": [{"features": {}, "x": 1}]}, "instances[0].x"),
        ("/update", GOOD | {"lable": 1}, "lable"),
        ("/update", {"id": "r-1", "label": 1, "event_id": "e"}, "event_id"),
        ("/impressions", {"ids": [], "shown": True}, "shown"),
        ("/update", {"examples": [GOOD], "label": 1}, "label"),
        ("/update", {"examples": [GOOD, GOOD | {"x": 1}]}, "examples[1].x"),
    ],
)
def test_unknown_fields_are_refused_where_they_stand(
    api: httpx.Client, path: str, body: dict[str, Any], where: str
) -> None:
    problem(api.post(path, json=body), 422, where, "unknown field")


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/predict", {}, ""),
        ("/predict", {"context": {}}, "instances"),
        ("/update", {}, "features"),
        ("/update", {"features": {}}, "label"),
        ("/update", {"label": 1}, "features"),
        ("/update", {"features": {}, "label": None}, "label"),
        ("/update", {"examples": [GOOD, {"features": {}}]}, "examples[1].label"),
    ],
)
def test_missing_fields_are_named(api: httpx.Client, path: str, body: dict[str, Any], where: str) -> None:
    problem(api.post(path, json=body), 422, where)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e7", "-1000001", "9" * 400]
)
def test_a_feature_value_that_is_no_number_or_too_large_is_refused(api: httpx.Client, number: str) -> None:
    features = f'"features": {{"age": {number}}}'
    problem(post(api, "/predict", f"{{{features}}}"), 422, "features.age")
    problem(post(api, "/predict", f'{{"instances": [{{{features}}}]}}'), 422, "instances[0].features.age")
    problem(post(api, "/update", f'{{{features}, "label": 1}}'), 422, "features.age")


def test_the_bound_of_a_value_is_named(api: httpx.Client) -> None:
    problem(api.post("/predict", json={"features": {"age": 1000001}}), 422, "features.age", "1e+06")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-0.5", "-1", "1000001", "1e300"])
def test_a_weight_out_of_bounds_is_refused(api: httpx.Client, number: str) -> None:
    problem(post(api, "/update", f'{{"features": {{}}, "label": 1, "weight": {number}}}'), 422, "weight")


@pytest.mark.parametrize("number", ["NaN", "0", "-0.5", "1.01", "2", "1e-7", "5e-324", "Infinity"])
def test_a_sample_rate_out_of_bounds_is_refused(api: httpx.Client, number: str) -> None:
    text = f'{{"features": {{}}, "label": 1, "sample_rate": {number}}}'
    problem(post(api, "/update", text), 422, "sample_rate")


def test_the_bounds_of_weights_are_named(api: httpx.Client) -> None:
    problem(api.post("/update", json=GOOD | {"weight": -1}), 422, "weight", "between 0 and 1e+06")
    problem(api.post("/update", json=GOOD | {"sample_rate": 0}), 422, "sample_rate", "above 0 and at most 1")
    problem(api.post("/update", json=GOOD | {"sample_rate": 1e-7}), 422, "sample_rate", "1e+06")


@pytest.mark.parametrize("number", ['"NaN"', '"0.5"', '"Infinity"'])
def test_numbers_are_not_taken_from_text(api: httpx.Client, number: str) -> None:
    text = f'{{"features": {{}}, "label": 1, "weight": {number}}}'
    problem(post(api, "/update", text), 422, "weight", "must be a number")


@pytest.mark.parametrize("label", ["2", "0.5", '"1"', '"true"', "null", "[]", "NaN", "-0.5", "1e999"])
def test_labels_other_than_0_and_1_are_refused(api: httpx.Client, label: str) -> None:
    problem(
        post(api, "/update", f'{{"features": {{}}, "label": {label}}}'), 422, "label", "0, 1, true or false"
    )


def test_a_label_of_minus_1_is_told_to_be_0(api: httpx.Client) -> None:
    problem(api.post("/update", json=GOOD | {"label": -1}), 422, "label", "use 0")
    problem(
        api.post("/update", json={"examples": [GOOD, GOOD | {"label": -1}]}),
        422,
        "examples[1].label",
        "use 0",
    )


@pytest.mark.parametrize("name", ["", "a=b", "a\nb", "x" * 257, "é" * 129])
def test_feature_names_out_of_bounds_are_refused(api: httpx.Client, name: str) -> None:
    document = problem(api.post("/predict", json={"features": {name: 1}}), 422)
    assert document["errors"][0]["path"].startswith("features")


def test_too_many_features_are_refused_and_the_limit_is_named(api: httpx.Client) -> None:
    features = {f"f{i}": 1 for i in range(1025)}
    problem(api.post("/predict", json={"features": features}), 422, "features", "1024")
    split = {
        "context": dict(list(features.items())[:600]),
        "instances": [{"features": dict(list(features.items())[600:])}],
    }
    problem(api.post("/predict", json=split), 422, "instances[0].features", "1024")


def test_a_feature_both_in_context_and_instance_is_refused(api: httpx.Client) -> None:
    body: dict[str, Any] = {
        "context": {"ad": "x"},
        "instances": [{"features": {}}, {"features": {"ad": "y"}}],
    }
    problem(api.post("/predict", json=body), 422, "instances[1].features.ad", "context")


def test_too_many_instances_are_refused_and_the_limit_is_named(api: httpx.Client) -> None:
    body: dict[str, Any] = {"instances": [{"features": {}}] * 1001}
    problem(api.post("/predict", json=body), 422, "instances", "1000")


def test_too_many_examples_are_refused_and_the_limit_is_named(api: httpx.Client) -> None:
    problem(api.post("/update", json={"examples": [GOOD] * 10_001}), 422, "examples", "10000")


@pytest.mark.parametrize("identifier", ["", "x" * 257])
def test_ids_are_bounded(api: httpx.Client, identifier: str) -> None:
    problem(api.post("/predict", json={"features": {}, "id": identifier}), 422, "id")
    problem(api.post("/update", json=GOOD | {"event_id": identifier}), 422, "event_id")


@pytest.mark.parametrize(
    "event_time",
    [
        "yesterday",
        "2024-05-01",
        "2024-05-01T12:00:00",
        "2024-13-01T12:00:00Z",
        "2024-02-30T12:00:00Z",
        "2024-05-01T25:00:00Z",
        "2024-05-01T12:00:00+99:00",
        "2024-W18-3T12:00:00Z",
        "1714564800",
        "1969-12-31T23:59:59Z",
        "٢٠٢٤-٠٥-٠١T12:00:00Z",
        -1,
        1e15,
        [],
    ],
)
def test_event_times_that_are_none_are_refused(api: httpx.Client, event_time: object) -> None:
    problem(api.post("/update", json=GOOD | {"event_time": event_time}), 422, "event_time")


def test_an_event_time_of_nan_is_refused(api: httpx.Client) -> None:
    problem(post(api, "/update", '{"features": {}, "label": 1, "event_time": NaN}'), 422, "event_time")


def test_one_bad_example_keeps_the_whole_request_from_being_learned(api: httpx.Client, model: str) -> None:
    problem(api.post(f"{model}/update", json={"examples": [GOOD] * 300 + [GOOD | {"label": 7}]}), 422)
    assert api.get(model).json()["t"] == 0


def test_every_bad_example_is_reported_up_to_a_hundred(api: httpx.Client) -> None:
    bad = [GOOD | {"label": 7}, GOOD, GOOD | {"weight": -1}]
    document = problem(api.post("/update", json={"examples": bad}), 422)
    assert [error["path"] for error in document["errors"]] == ["examples[0].label", "examples[2].weight"]
    assert "1 more" in document["detail"]
    document = problem(api.post("/update", json={"examples": [GOOD | {"label": 7}] * 5000}), 422)
    assert len(document["errors"]) == 100


@pytest.mark.parametrize("verb", ["predict", "update"])
def test_an_unknown_model_is_not_found(api: httpx.Client, verb: str) -> None:
    document = problem(api.post(f"/models/nobody/{verb}", json=GOOD), 404)
    assert "nobody" in document["detail"]


@pytest.mark.parametrize(
    "name", ["-x", ".x", "_x", "x" * 65, "ünïcode", "a b", "a%00b", "名前", "a:b", "{x}"]
)
def test_a_bad_model_name_is_refused_on_every_path(api: httpx.Client, name: str) -> None:
    for method, path, body in (
        ("POST", f"/models/{name}/predict", GOOD),
        ("POST", f"/models/{name}/update", GOOD),
        ("PUT", f"/models/{name}", {}),
        ("GET", f"/models/{name}", None),
        ("DELETE", f"/models/{name}", None),
    ):
        document = problem(api.request(method, path, json=body), 422)
        assert document["title"] == "Invalid model name"


@pytest.mark.parametrize("flag", ["maybe", "", "2"])
def test_a_bad_wait_is_refused(api: httpx.Client, flag: str) -> None:
    problem(api.post(f"/update?wait={flag}", json=GOOD), 422, "wait", "true or false")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_other_content_types_are_refused_with_the_right_one_named(
    api: httpx.Client, content_type: str
) -> None:
    reply = api.post("/predict", content=json.dumps(GOOD), headers={"content-type": content_type})
    assert "application/json" in problem(reply, 415)["detail"]


def test_a_body_without_a_content_type_is_refused(api: httpx.Client) -> None:
    problem(api.post("/predict", content=b"{}"), 415)


def test_long_names_do_not_come_back_whole(api: httpx.Client) -> None:
    reply = api.post("/predict", json={"features": {"x" * 100_000: 1}})
    problem(reply, 422)
    assert len(reply.content) < 2000
    assert len(api.post("/predict", json={"y" * 100_000: 1}).content) < 2000
