"""The kernel, pydantic and the published schema agree on the names and the bounds of requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from model_core.hashing.contract import HashContract, Limits
from model_core.json import fields
from service.app import create_app
from service.parsing import schemas
from service.parsing.event_time import FIRST_SECOND
from service.parsing.schemas import limits_of
from service.settings import Settings
from tests.support.request_ways import PredictWay, UpdateWay, Way

OTHER: dict[str, Any] = {
    "max_features": 7,
    "max_name_bytes": 9,
    "max_value": 20.0,
    "max_weight": 4.0,
    "max_instances": 3,
    "max_examples": 5,
}
VALUES: dict[str, Any] = {
    "features": {"a": "b"},
    "label": 1,
    "weight": 2,
    "sample_rate": 0.5,
    "event_id": "e",
    "event_time": 1714564800,
    "id": "i",
}
ROWS = {
    "example": (UpdateWay, fields.EXAMPLE, ("examples",)),
    "instance": (PredictWay, fields.INSTANCE, ("instances",)),
}


def published(**settings: Any) -> dict[str, Any]:
    document = create_app(Settings(**settings), run_learner=False).api.openapi()
    found: dict[str, Any] = document["components"]["schemas"]
    return found


def fast(way: Way, body: dict[str, Any]) -> bool:
    return way.fast(json.dumps(body).encode()) is not None


@pytest.mark.parametrize(
    ("parsed", "kinds"),
    [
        (schemas.Instance, {"Instance": fields.INSTANCE}),
        (
            schemas.PredictFields,
            {"PredictOneRequest": fields.ONE_INSTANCE, "PredictManyRequest": fields.INSTANCES},
        ),
        (schemas.ExplainRequest, {"ExplainRequest": fields.EXPLANATION}),
        (schemas.ItemFields, {"Example": fields.EXAMPLE, "PredictionLabel": fields.LABEL}),
        (
            schemas.UpdateFields,
            {
                "Example": fields.EXAMPLE,
                "PredictionLabel": fields.LABEL,
                "UpdateManyRequest": fields.EXAMPLES,
            },
        ),
        (schemas.ImpressionsRequest, {"ImpressionsRequest": fields.IMPRESSIONS}),
    ],
)
def test_pydantic_and_the_schema_have_the_declared_fields(
    parsed: type, kinds: dict[str, fields.Fields]
) -> None:
    declared = {name for kind in kinds.values() for name in kind.names}
    assert TypeAdapter(parsed).json_schema()["properties"].keys() == declared
    document = published()
    for name, kind in kinds.items():
        assert document[name]["properties"].keys() == set(kind.names), name
        assert document[name]["required"] == [one for one in kind.names if one in kind.required], name
        assert document[name]["additionalProperties"] is False, name


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("PredictRequest", ["PredictOneRequest", "PredictManyRequest"]),
        ("UpdateRequest", ["Example", "PredictionLabel", "UpdateManyRequest"]),
    ],
)
def test_a_body_of_several_kinds_is_one_of_their_schemas(name: str, kinds: list[str]) -> None:
    assert published()[name]["anyOf"] == [{"$ref": f"#/components/schemas/{kind}"} for kind in kinds]


@pytest.mark.parametrize("row", ROWS)
def test_the_kernel_reads_the_declared_fields_and_no_others(row: str) -> None:
    make, kind, (many,) = ROWS[row]
    way = make(HashContract(), Limits(), 10)
    whole = {name: VALUES[name] for name in kind.names}
    assert fast(way, whole)
    assert fast(way, {many: [whole]})
    for name in kind.required:
        assert not fast(way, {other: value for other, value in whole.items() if other != name}), name
    for name in VALUES.keys() - set(kind.names):
        assert not fast(way, whole | {name: VALUES[name]}), name


def test_a_changed_limit_changes_the_published_schema() -> None:
    before, after = published(), published(**OTHER)
    assert before != after
    as_object, as_pairs = after["Features"]["anyOf"]
    assert (as_object["maxProperties"], as_pairs["maxItems"]) == (7, 7)
    name, value = as_pairs["items"]["prefixItems"]
    assert name == as_object["propertyNames"] | {"type": "string"}
    assert name["maxLength"] == 9
    assert value == as_object["additionalProperties"] == {"$ref": "#/components/schemas/FeatureValue"}
    assert after["FeatureValue"]["anyOf"][2] == {"type": "number"}, "buckets have no bound"
    factor = after["ScaledFeature"]["properties"]["times"]
    assert (factor["minimum"], factor["maximum"]) == (-20.0, 20.0)
    weight, rate = (after["Example"]["properties"][name]["anyOf"][0] for name in ("weight", "sample_rate"))
    assert (weight["minimum"], weight["maximum"]) == (0, 4.0)
    assert (rate["minimum"], rate["maximum"]) == (0.25, 1)
    assert after["PredictManyRequest"]["properties"]["instances"]["maxItems"] == 3
    assert after["UpdateManyRequest"]["properties"]["examples"]["maxItems"] == 5
    assert after["ImpressionsRequest"]["properties"]["ids"]["maxItems"] == 5
    assert "x-limits" not in json.dumps(after)


def test_the_defaults_of_the_core_are_those_of_the_settings() -> None:
    limits, published_limits = Limits(), limits_of(Settings())
    assert published_limits == {
        "max_features": limits.features_per_example,
        "max_name_bytes": limits.name_bytes,
        "min_value": -limits.value_magnitude,
        "max_value": limits.value_magnitude,
        "max_weight": limits.weight,
        "min_sample_rate": 1 / limits.weight,
        "max_instances": 1000,
        "max_examples": 10_000,
    }


@pytest.mark.parametrize(
    ("make", "name"), [(PredictWay, "id"), (UpdateWay, "event_id")], ids=["instance", "example"]
)
def test_the_kernel_and_pydantic_agree_on_the_length_of_an_id(make: type[Way], name: str) -> None:
    way, row = make(HashContract(), Limits(), 10), {"features": {}, "label": 1}
    if name == "id":
        del row["label"]
    longest = "x" * fields.MAX_ID_LENGTH
    assert way.check(json.dumps(row | {name: longest}).encode())
    for wrong in ("", longest + "x"):
        body = json.dumps(row | {name: wrong}).encode()
        assert way.fast(body) is way.slow(body) is None
    identifier = TypeAdapter(schemas.Identifier).json_schema()
    assert (identifier["minLength"], identifier["maxLength"]) == (1, fields.MAX_ID_LENGTH)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ({"weight": 4}, {"weight": 4.001}),
        ({"sample_rate": 0.25}, {"sample_rate": 0.2499}),
        ({"features": {"a": 20}}, {"features": {"a": 20.001}}),
        ({"features": {"a" * 9: 1}}, {"features": {"a" * 10: 1}}),
        (
            {"features": {f"f{i}": "x" for i in range(6)}},
            {"features": {f"f{i}": "x" for i in range(8)}},
        ),
        ({"event_time": FIRST_SECOND}, {"event_time": FIRST_SECOND - 1}),
    ],
)
def test_the_kernel_and_the_checks_agree_on_bounds(inside: dict[str, Any], outside: dict[str, Any]) -> None:
    way = UpdateWay(HashContract(bias=False, numeric="raw"), Limits(7, 9, 20.0, 4.0), 5)
    example: dict[str, Any] = {"features": {}, "label": 1}
    assert way.check(json.dumps(example | inside).encode())
    body = json.dumps(example | outside).encode()
    assert way.fast(body) is way.slow(body) is None


@pytest.mark.parametrize(
    ("number", "is_ordinary"),
    [("20.001", True), ("-1e7", True), ("1e300", False), ("9007199254740993", False)],
)
def test_numbers_that_become_buckets_need_only_be_finite(number: str, is_ordinary: bool) -> None:
    way = UpdateWay(HashContract(), Limits(7, 9, 20.0, 4.0), 5)
    body = f'{{"features": {{"a": {number}}}, "label": 1}}'.encode()
    assert way.check(body) == is_ordinary
    assert way.slow(body) is not None
    assert way.slow(body) == way.slow(body.replace(number.encode(), repr(float(number)).encode()))
    for unknown in (b"1e999", b"NaN", b"9" * 400):
        wrong = body.replace(number.encode(), unknown)
        assert way.fast(wrong) is way.slow(wrong) is None
