"""Every mistake that a client can make, and the error that reports it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.problem_replies import invalid, problem

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
    invalid(post(api, path, text), "", "invalid_json")


def test_json_that_is_not_utf_8_is_refused(api: httpx.Client) -> None:
    reply = api.post("/predict", content=b'{"\xff": 1}', headers={"content-type": "application/json"})
    invalid(reply, "", "invalid_json")


@pytest.mark.parametrize("path", ["/predict", "/update"])
@pytest.mark.parametrize("text", ["[]", "null", "3", '"text"', "true"])
def test_a_body_other_than_an_object_is_refused(api: httpx.Client, path: str, text: str) -> None:
    invalid(post(api, path, text), "", "wrong_type")


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/predict", {"features": "a"}, "features"),
        ("/predict", {"features": [3]}, "features[0]"),
        ("/predict", {"features": [["a"]]}, "features[0]"),
        ("/predict", {"features": [[3, "x"]]}, "features[0][0]"),
        ("/predict", {"features": None}, "features"),
        ("/predict", {"features": {"a": {"b": 1}}}, "features.a"),
        ("/predict", {"features": {"a": ["x", None]}}, "features.a[1]"),
        ("/predict", {"features": {}, "id": 7}, "id"),
        ("/predict", {"instances": {}}, "instances"),
        ("/predict", {"instances": [3]}, "instances[0]"),
        ("/predict", {"instances": [], "context": 3}, "context"),
        ("/update", GOOD | {"weight": "2"}, "weight"),
        ("/update", GOOD | {"weight": True}, "weight"),
        ("/update", GOOD | {"sample_rate": "0.5"}, "sample_rate"),
        ("/update", GOOD | {"event_id": 7}, "event_id"),
        ("/update", GOOD | {"event_time": True}, "event_time"),
        ("/update", {"examples": [GOOD, GOOD | {"features": 3}]}, "examples[1].features"),
        ("/update", {"examples": [GOOD, GOOD | {"weight": "2"}]}, "examples[1].weight"),
    ],
)
def test_a_wrong_type_is_reported_with_its_path(
    api: httpx.Client, path: str, body: dict[str, Any], where: str
) -> None:
    invalid(api.post(path, json=body), where, "wrong_type")


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
def test_an_unknown_field_is_reported_with_its_path(
    api: httpx.Client, path: str, body: dict[str, Any], where: str
) -> None:
    invalid(api.post(path, json=body), where, "unknown_field")


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/predict", {}, ""),
        ("/predict", {"context": {}}, "instances"),
        ("/predict", {"instances": [{"features": {}}, {}]}, "instances[1].features"),
        ("/update", {}, "features"),
        ("/update", {"features": {}}, "label"),
        ("/update", {"label": 1}, "features"),
        ("/update", {"examples": [GOOD, {"features": {}}]}, "examples[1].label"),
    ],
)
def test_a_missing_field_is_reported_with_its_path(
    api: httpx.Client, path: str, body: dict[str, Any], where: str
) -> None:
    invalid(api.post(path, json=body), where, "required")


@pytest.fixture
def raw(api: httpx.Client) -> str:
    """The path of a model that takes numbers as they are."""
    api.put("/models/raw", json={"hashing": {"numeric": "raw", "bits": 10}}).raise_for_status()
    return "/models/raw"


def refused_everywhere(api: httpx.Client, model: str, number: str) -> None:
    features = f'"features": {{"age": {number}}}'
    instances = f'{{"instances": [{{{features}}}]}}'
    invalid(post(api, f"{model}/predict", f"{{{features}}}"), "features.age", "out_of_range")
    invalid(post(api, f"{model}/predict", instances), "instances[0].features.age", "out_of_range")
    invalid(post(api, f"{model}/update", f'{{{features}, "label": 1}}'), "features.age", "out_of_range")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 400])
def test_a_value_that_is_not_finite_is_refused(api: httpx.Client, raw: str, number: str) -> None:
    refused_everywhere(api, "", number)
    refused_everywhere(api, raw, number)


@pytest.mark.parametrize("number", ["1e7", "-1000001"])
def test_a_value_that_is_too_large_is_refused(api: httpx.Client, raw: str, number: str) -> None:
    refused_everywhere(api, raw, number)


@pytest.mark.parametrize("number", ["1e7", "-1000001", "9007199254740993", "1e300"])
def test_a_number_that_becomes_a_bucket_has_no_bound(api: httpx.Client, number: str) -> None:
    features = f'"features": {{"age": {number}}}'
    assert post(api, "/predict", f"{{{features}}}").status_code == 200
    assert post(api, "/predict", f'{{"instances": [{{{features}}}]}}').status_code == 200
    assert post(api, "/update", f'{{{features}, "label": 1}}').status_code == 200
    assert post(api, "/explain", f"{{{features}}}").status_code == 200


def test_the_error_names_the_bound_of_a_value(api: httpx.Client, raw: str) -> None:
    reply = api.post(f"{raw}/predict", json={"features": {"age": 1000001}})
    assert "1e+06" in invalid(reply, "features.age", "out_of_range")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-0.5", "-1", "1000001", "1e300"])
def test_a_weight_out_of_bounds_is_refused(api: httpx.Client, number: str) -> None:
    text = f'{{"features": {{}}, "label": 1, "weight": {number}}}'
    invalid(post(api, "/update", text), "weight", "out_of_range")


@pytest.mark.parametrize("number", ["NaN", "0", "-0.5", "1.01", "2", "1e-7", "5e-324", "Infinity"])
def test_a_sample_rate_out_of_bounds_is_refused(api: httpx.Client, number: str) -> None:
    text = f'{{"features": {{}}, "label": 1, "sample_rate": {number}}}'
    invalid(post(api, "/update", text), "sample_rate", "out_of_range")


def test_the_error_names_the_bounds_of_weights(api: httpx.Client) -> None:
    def refusal(**field: float) -> str:
        [name] = field
        return invalid(api.post("/update", json=GOOD | field), name, "out_of_range")

    assert "between 0 and 1e+06" in refusal(weight=-1)
    assert "above 0 and at most 1" in refusal(sample_rate=0)
    assert "1e+06" in refusal(sample_rate=1e-7)


@pytest.mark.parametrize("number", ['"NaN"', '"0.5"', '"Infinity"'])
def test_a_number_in_quotes_is_refused(api: httpx.Client, number: str) -> None:
    text = f'{{"features": {{}}, "label": 1, "weight": {number}}}'
    invalid(post(api, "/update", text), "weight", "wrong_type")


@pytest.mark.parametrize("label", ["2", "1.2", '"0.5"', '"yes"', "null", "[]", "NaN", "-0.1", "1e999"])
def test_labels_that_are_not_from_0_to_1_are_refused(api: httpx.Client, label: str) -> None:
    reply = post(api, "/update", f'{{"features": {{}}, "label": {label}}}')
    assert "a number from 0 to 1, true or false" in invalid(reply, "label", "invalid_value")


def test_the_error_of_label_minus_1_suggests_0(api: httpx.Client) -> None:
    one, many = GOOD | {"label": -1}, {"examples": [GOOD, GOOD | {"label": -1}]}
    assert "use 0" in invalid(api.post("/update", json=one), "label", "invalid_value")
    assert "use 0" in invalid(api.post("/update", json=many), "examples[1].label", "invalid_value")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "wrong_length"),
        ("x" * 257, "wrong_length"),
        ("é" * 129, "wrong_length"),
        ("a=b", "invalid_value"),
        ("a\nb", "invalid_value"),
    ],
)
def test_feature_names_out_of_bounds_are_refused(api: httpx.Client, name: str, code: str) -> None:
    document = problem(api.post("/predict", json={"features": {name: 1}}), 422, "unprocessable")
    [error] = document["errors"]
    assert error["path"].startswith("features")
    assert error["code"] == code


def test_too_many_features_are_refused_with_the_limit(api: httpx.Client) -> None:
    features = {f"f{i}": 1 for i in range(1025)}
    assert "1024" in invalid(api.post("/predict", json={"features": features}), "features", "too_many")
    split = {
        "context": dict(list(features.items())[:600]),
        "instances": [{"features": dict(list(features.items())[600:])}],
    }
    assert "1024" in invalid(api.post("/predict", json=split), "instances[0].features", "too_many")


def test_a_feature_both_in_context_and_instance_is_refused(api: httpx.Client) -> None:
    body: dict[str, Any] = {
        "context": {"ad": "x"},
        "instances": [{"features": {}}, {"features": {"ad": "y"}}],
    }
    invalid(api.post("/predict", json=body), "instances[1].features.ad", "duplicate_name")


def test_too_many_instances_are_refused_with_the_limit(api: httpx.Client) -> None:
    body: dict[str, Any] = {"instances": [{"features": {}}] * 1001}
    assert "1000" in invalid(api.post("/predict", json=body), "instances", "too_many")


def test_too_many_examples_are_refused_with_the_limit(api: httpx.Client) -> None:
    reply = api.post("/update", json={"examples": [GOOD] * 10_001})
    assert "10000" in invalid(reply, "examples", "too_many")


@pytest.mark.parametrize("number", [9007199254740993, 1234567890123, 1e300])
def test_an_id_that_is_sent_as_a_number_gets_the_way_out(api: httpx.Client, raw: str, number: float) -> None:
    reply = api.post(f"{raw}/update", json={"features": {"user": number}, "label": 1})
    assert "send an id as text" in invalid(reply, "features.user", "out_of_range")
    reply = api.post(f"{raw}/update", json={"features": {"user": -1e7}, "label": 1})
    assert "an id" not in invalid(reply, "features.user", "out_of_range")


@pytest.mark.parametrize("identifier", ["", "x" * 257])
def test_ids_are_bounded(api: httpx.Client, identifier: str) -> None:
    invalid(api.post("/predict", json={"features": {}, "id": identifier}), "id", "wrong_length")
    invalid(api.post("/update", json=GOOD | {"event_id": identifier}), "event_id", "wrong_length")


@pytest.mark.parametrize(
    ("event_time", "code"),
    [
        ("yesterday", "invalid_value"),
        ("2024-05-01", "invalid_value"),
        ("2024-05-01T12:00:00", "invalid_value"),
        ("2024-13-01T12:00:00Z", "invalid_value"),
        ("2024-02-30T12:00:00Z", "invalid_value"),
        ("2024-05-01T25:00:00Z", "invalid_value"),
        ("2024-05-01T12:00:00+99:00", "invalid_value"),
        ("2024-W18-3T12:00:00Z", "invalid_value"),
        ("1714564800", "invalid_value"),
        ("٢٠٢٤-٠٥-٠١T12:00:00Z", "invalid_value"),
        ("0001-01-01T00:00:00+23:00", "out_of_range"),
        ("1999-12-31T23:59:59Z", "out_of_range"),
        ("9999-12-31T23:59:59Z", "out_of_range"),
        (-1, "out_of_range"),
        (1e15, "out_of_range"),
        ([], "wrong_type"),
    ],
)
def test_an_invalid_event_time_is_refused(api: httpx.Client, event_time: object, code: str) -> None:
    invalid(api.post("/update", json=GOOD | {"event_time": event_time}), "event_time", code)


@pytest.mark.parametrize(
    ("event_time", "likely"),
    [
        (14102100, "looks like YYMMDDHH: send '2014-10-21T00:00:00Z'"),
        (20141021, "looks like YYYYMMDD: send '2014-10-21T00:00:00Z'"),
        (141021, "looks like YYMMDD"),
        (2014102113, "looks like YYYYMMDDHH: send '2014-10-21T13:00:00Z'"),
        (201410211330, "looks like YYYYMMDDHHMM:"),
        (20141021133059, "looks like YYYYMMDDHHMMSS: send '2014-10-21T13:30:59Z'"),
        (1414102100000, "looks like milliseconds since 1970"),
        (1414102100000000, "looks like microseconds since 1970"),
        (1414102100000000000, "looks like nanoseconds since 1970"),
        (16364, "looks like days since 1970"),
        (392806, "looks like hours since 1970"),
        (23568368, "looks like minutes since 1970"),
        (0, "must not be before the year 2000"),
        (4e9, "more than a day ahead of this server's clock"),
    ],
)
def test_an_event_time_in_another_unit_is_refused_and_the_unit_named(
    api: httpx.Client, event_time: float, likely: str
) -> None:
    alone = api.post("/update", json=GOOD | {"event_time": event_time})
    assert likely in invalid(alone, "event_time", "out_of_range")
    listed = api.post("/update", json={"examples": [GOOD, GOOD | {"event_time": event_time}]})
    assert likely in invalid(listed, "examples[1].event_time", "out_of_range")


def test_an_event_time_of_nan_is_refused(api: httpx.Client) -> None:
    reply = post(api, "/update", '{"features": {}, "label": 1, "event_time": NaN}')
    invalid(reply, "event_time", "out_of_range")


def test_nothing_is_learned_if_one_example_is_bad(api: httpx.Client, model: str) -> None:
    reply = api.post(f"{model}/update", json={"examples": [GOOD] * 300 + [GOOD | {"label": 7}]})
    invalid(reply, "examples[300].label", "invalid_value")
    assert api.get(model).json()["t"] == 0


def test_every_bad_example_is_reported_up_to_a_hundred(api: httpx.Client) -> None:
    bad = [GOOD | {"label": 7}, GOOD, GOOD | {"weight": -1}]
    document = problem(api.post("/update", json={"examples": bad}), 422, "unprocessable")
    assert [(error["path"], error["code"]) for error in document["errors"]] == [
        ("examples[0].label", "invalid_value"),
        ("examples[2].weight", "out_of_range"),
    ]
    assert "1 more" in document["detail"]
    document = problem(
        api.post("/update", json={"examples": [GOOD | {"label": 7}] * 5000}), 422, "unprocessable"
    )
    assert len(document["errors"]) == 100


@pytest.mark.parametrize("verb", ["predict", "update"])
def test_an_unknown_model_is_not_found(api: httpx.Client, verb: str) -> None:
    document = problem(api.post(f"/models/nobody/{verb}", json=GOOD), 404, "unknown_model")
    assert document["model"] == "nobody"


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
        problem(api.request(method, path, json=body), 422, "invalid_model_name")


@pytest.mark.parametrize("flag", ["maybe", "", "2"])
def test_a_bad_wait_is_refused(api: httpx.Client, flag: str) -> None:
    invalid(api.post(f"/update?wait={flag}", json=GOOD), "wait", "invalid_value")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_other_content_types_are_refused(api: httpx.Client, content_type: str) -> None:
    reply = api.post("/predict", content=json.dumps(GOOD), headers={"content-type": content_type})
    assert "application/json" in problem(reply, 415, "unsupported_media_type")["detail"]


def test_a_body_without_a_content_type_is_refused(api: httpx.Client) -> None:
    problem(api.post("/predict", content=b"{}"), 415, "unsupported_media_type")


def test_errors_shorten_long_names(api: httpx.Client) -> None:
    reply = api.post("/predict", json={"features": {"x" * 100_000: 1}})
    problem(reply, 422, "unprocessable")
    assert len(reply.content) < 2000
    assert len(api.post("/predict", json={"y" * 100_000: 1}).content) < 2000
