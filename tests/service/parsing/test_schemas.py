"""Schemas of logs: what they accept and refuse; a live request is hashed as a row of the file."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract, Limits
from model_core.text.problems import LineError
from service.parsing.files.known_schemas import KNOWN_SCHEMAS
from service.parsing.files.reader import read_examples, read_rows
from service.parsing.files.rows import Row
from service.parsing.files.schema import BadSchema, Schema, load_schema, schema_of
from service.parsing.files.source import UnreadableFile
from tests.support.known_logs import KNOWN_LOGS
from tests.support.request_ways import UpdateWay

LIMITS = Limits()


def rows_of(data: str, schema: Schema) -> Any:
    contract = HashContract.from_json(schema.hashing)
    return list(
        read_rows(io.BytesIO(data.encode()), schema.format or "csv", contract, schema.options(LIMITS))
    )


def schema(**document: Any) -> Schema:
    return schema_of(document, "it")


@pytest.mark.parametrize("name", KNOWN_SCHEMAS)
def test_a_row_of_a_file_and_the_request_of_the_same_event_have_the_same_hashes(name: str) -> None:
    known, data = load_schema(name), KNOWN_LOGS[name]
    contract = HashContract.from_json(known.hashing)
    chunks = list(
        read_examples(io.BytesIO(data.encode()), known.format or "csv", contract, known.options(LIMITS))
    )
    assert [error for chunk in chunks for error in chunk.errors] == []
    of_file = ExampleBatch.concatenate([chunk.batch for chunk in chunks])
    rows = rows_of(data, known)
    body = json.dumps({"examples": [row._replace(event_id=None).to_request() for row in rows]}).encode()
    way = UpdateWay(contract, LIMITS, len(rows))
    assert way.fast(body) in (None, way.slow(body))
    read = way.slow(body)
    assert read is not None
    columns = (of_file.row_ptr, of_file.hashes, of_file.values, of_file.labels, of_file.weights)
    assert [column.tobytes() for column in columns] == [column[2] for column in read.columns[:5]]
    if known.time is not None:
        assert of_file.event_times.tobytes() == read.columns[5][2]
    assert np.array_equal(of_file.labels, [0, 1])


def test_a_number_in_a_request_is_the_category_that_the_file_has() -> None:
    known = load_schema("avazu")
    first = rows_of(KNOWN_LOGS["avazu"], known)[0]
    assert (first.features["C14"], first.features["hour"], first.features["weekday"]) == (
        "15706",
        "0",
        "tuesday",
    )
    way = UpdateWay(HashContract.from_json(known.hashing), LIMITS, 1)
    as_text, as_number = (
        way.slow(json.dumps({"features": {"C14": c14, "hour": hour}, "label": 0}).encode())
        for c14, hour in (("15706", "0"), (15706, 0))
    )
    assert as_text is not None
    assert as_text == as_number


def test_ids_times_and_lists_of_known_logs() -> None:
    avazu, talkingdata = (rows_of(KNOWN_LOGS[name], load_schema(name)) for name in ("avazu", "talkingdata"))
    assert (avazu[1].event_id, avazu[1].event_time_ms) == ("10000169349117863715", 1414105200000)
    assert "attributed_time" not in talkingdata[1].features
    ipinyou = rows_of(KNOWN_LOGS["ipinyou"], load_schema("ipinyou"))
    assert ipinyou[0].features["usertag"] == ["10057", "10063", "10075"]
    assert {"usertag", "payprice", "bidid", "city"}.isdisjoint(ipinyou[1].features)
    assert ipinyou[0].event_time_ms == 1370448064828  # 2013-06-05 16:01:04.828 UTC
    assert ipinyou[1].features["slotprice"] == 31


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"lable": "y"}, "it: lable: unknown field (did you mean 'label'?)"),
        ({"time": {"column": "t", "zones": "UTC"}}, "it: time.zones: unknown field (did you mean 'zone'?)"),
        ({"time": {"column": "t", "zone": "Mars"}}, "'Mars' is no time zone known here"),
        ({"time": {"column": "t", "format": "epoch"}}, "'epoch' is none of iso, s, ms, us, ns nor a pattern"),
        ({"format": "xml"}, "it: format: must be 'vw'"),
        ({"types": {"a": "float"}}, "it: types.a: must be 'category', 'number' or 'json'"),
        ({"transforms": {"a": "square"}}, 'transforms.a: must be "bucket", "log", "raw"'),
        ({"crosses": [["a"]]}, "crosses[0]: a cross needs at least two names"),
        ({"columns": ["a", "a"]}, "columns.a: is there twice"),
        ({"columns": ["label", "site"], "drop": ["sight"]}, "no column 'sight' (did you mean 'site'?)"),
        ({"columns": ["label", "a"], "crosses": [["a", "b"]]}, "`crosses` of the schema: no column 'b'"),
        ({"columns": ["a", "b"]}, "`label` of the schema: no column 'label'"),
        ({"format": "vw", "drop": ["a"]}, "drop: vw has no columns"),
        ({"labels": "zero_one", "label": {"column": "y", "positive": ["1"]}}, "labels: "),
        ({"separator": "||"}, "it: separator: "),
        ([], "it: must be"),
    ],
)
def test_a_wrong_schema_is_refused_with_its_place(document: Any, says: str) -> None:
    with pytest.raises(BadSchema) as caught:
        schema_of(document, "it")
    assert says in str(caught.value)


def test_a_schema_is_a_file_or_a_known_name(tmp_path: Path) -> None:
    path = tmp_path / "clicks.json"
    path.write_text('{"label": "y"}')
    assert load_schema(str(path)).label.column == "y"
    path = tmp_path / "broken.json"
    path.write_text("{")
    with pytest.raises(BadSchema, match=r"broken\.json: no JSON: "):
        load_schema(str(path))
    with pytest.raises(BadSchema, match=r"one of criteo, .*\(did you mean 'criteo'\?\)"):
        load_schema("critea")


@pytest.mark.parametrize("known", KNOWN_SCHEMAS)
def test_the_json_of_a_schema_is_the_same_schema(known: str) -> None:
    one = load_schema(known)
    assert schema_of(json.loads(json.dumps(one.to_json())), "it") == one


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"drop": ["sight"]}, "no column 'sight' among label, site (did you mean 'site'?)"),
        (
            {"types": {"I1-I2": "number"}},
            "no column 'I1' among label, site: give that of the file with `types`",
        ),
        ({"crosses": [["site", "hour"]]}, "no column 'hour' among"),
        ({"label": "click"}, "no column 'click' among"),
        ({"time": "label", "event_id": "id"}, "no column 'id' among"),
    ],
)
def test_a_column_that_the_file_does_not_have_is_refused_with_the_nearest(document: Any, says: str) -> None:
    with pytest.raises(UnreadableFile) as caught:
        rows_of("label,site\n1,x\n", schema(**document))
    assert says in str(caught.value)


def test_optional_columns_need_not_be_there() -> None:
    asked = schema(drop=["a"], types={"b1-b9": "number"}, optional=["a", "b1-b9"])
    assert rows_of("label,b2\n1,7\n", asked) == [Row(2, {"b2": 7}, 1)]


def test_labels_are_spelt_as_the_schema_says() -> None:
    data = "y,a\nclick,x\nview,x\nbuy,x\n,x\n"
    both = rows_of(data, schema(label={"column": "y", "positive": ["click"], "negative": ["view"]}))
    assert [row.label for row in both if isinstance(row, Row)] == [1, 0]
    assert both[2] == LineError(4, "y: the label 'buy' is none of 'click', 'view'")
    clicks = rows_of(data, schema(label={"column": "y", "positive": ["click", "buy"]}))
    assert [row.label for row in clicks] == [1, 0, 1, 0]
    others = rows_of(data, schema(label={"column": "y", "negative": [""]}))
    assert [row.label for row in others] == [1, 1, 1, 0]


def test_weights_and_sample_rates_multiply_as_in_a_request() -> None:
    asked = schema(weight="w", sample_rate="r", event_id="id")
    rows = rows_of("label,w,r,id\n1,2,0.5,e1\n0,1,0,\n0,1,1,\n", asked)
    assert rows[0] == Row(2, {}, 1, 4.0, "e1")
    assert rows[1].reason == "r: the sample rate 0 must be above 1e-06 and at most 1"
    assert rows[2] == Row(4, {}, 0)


@pytest.mark.parametrize(
    ("form", "zone", "text", "seconds"),
    [
        ("s", "UTC", "1500000000", 1500000000.0),
        ("s", "UTC", "1500000000.25", 1500000000.25),
        ("ms", "UTC", "1500000000250", 1500000000.25),
        ("us", "UTC", "1500000000250000", 1500000000.25),
        ("ns", "UTC", "1500000000250000000", 1500000000.25),
        ("iso", "UTC", "2017-07-14T02:40:00.250Z", 1500000000.25),
        ("iso", "Asia/Tokyo", "2017-07-14 11:40:00", 1500000000.0),
        ("iso", "Asia/Tokyo", "2017-07-14 02:40:00+00:00", 1500000000.0),
        ("%d/%b/%Y:%H:%M:%S %z", "UTC", "14/Jul/2017:04:40:00 +0200", 1500000000.0),
        ("%y%m%d%H", "Europe/Berlin", "17071404", 1499997600.0),
    ],
)
def test_times_are_read_in_any_form_and_zone(form: str, zone: str, text: str, seconds: float) -> None:
    rows = rows_of(f"label,t\n1,{text}\n0,\n", schema(time={"column": "t", "format": form, "zone": zone}))
    assert [row.event_time_ms for row in rows] == [round(seconds * 1000), None]


@pytest.mark.parametrize(
    ("form", "text", "says"),
    [
        ("s", "1500000000250", "t: in seconds since 1970, must not be more than a day ahead"),
        ("s", "yesterday", "t: 'yesterday' is not a number of s since 1970"),
        ("iso", "14/7/2017", "t: '14/7/2017' is not a time in ISO 8601"),
        ("%Y", "17", "t: '17' is not a time %Y"),
        ("iso", "1970-01-01", "must not be before the year 2000"),
    ],
)
def test_a_time_that_cannot_be_meant_is_an_error_of_its_line(form: str, text: str, says: str) -> None:
    (row,) = rows_of(f"label,t\n1,{text}\n", schema(time={"column": "t", "format": form}))
    assert isinstance(row, LineError)
    assert says in row.reason


def test_seasons_of_the_time_are_raw_numbers_on_circles() -> None:
    seasons = ["day_sin", "day_cos", "week_sin", "week_cos"]
    asked = schema(
        time={"column": "t", "zone": "Asia/Tokyo", "parts": seasons}, transforms={"week_cos": "log"}
    )
    found = [
        rows_of(f"label,t\n1,{time}\n", asked)[0].features
        for time in ("2024-01-01T00:00:00+09:00", "2024-01-01T06:00", "2024-01-04T12:00")
    ]
    assert [tuple(features.values()) for features in found] == [
        (0.0, 1.0, 0.0, 1.0),
        (1.0, 0.0, round(math.sin(math.pi / 14), 6), round(math.cos(math.pi / 14), 6)),
        (0.0, -1.0, round(math.sin(math.pi), 6), -1.0),
    ]
    assert asked.hashing == {
        "types": dict.fromkeys(seasons, "number"),
        "transforms": {"day_sin": "raw", "day_cos": "raw", "week_sin": "raw", "week_cos": "log"},
    }


def test_parts_of_the_time_are_features_in_its_zone() -> None:
    asked = schema(time={"column": "hour", "format": "s", "zone": "Asia/Tokyo", "parts": ["hour", "weekday"]})
    assert rows_of("label,hour\n1,1500000000\n", asked)[0].features == {"hour": "11", "weekday": "friday"}
    with pytest.raises(UnreadableFile, match="the part 'hour' of the time would be a feature beside"):
        rows_of(
            "label,t,hour\n1,1500000000,7\n", schema(time={"column": "t", "format": "s", "parts": ["hour"]})
        )
    with_missing = schema(time={"column": "t", "parts": ["hour"]}, missing="indicator")
    assert rows_of("label,t\n1,\n", with_missing)[0].features == {"hour": None}


def test_lists_are_split_and_their_items_typed() -> None:
    asked = schema(lists={"a": "|", "n": " "}, types={"n": "number"})
    rows = rows_of("label,a,n\n1,x|y||x,1 2.5\n0,,\n0,|,7\n1,x,z\n", asked)
    assert [row.features for row in rows[:3]] == [{"a": ["x", "y", "x"], "n": [1, 2.5]}, {}, {"n": [7]}]
    assert rows[3] == LineError(5, "n: 'z' is not a decimal number")


def test_a_json_column_has_numbers_where_json_would() -> None:
    rows = rows_of("label,a\n1,7.50\n1,007\n1,x\n", schema(types={"a": "json"}))
    assert [row.features["a"] for row in rows] == [7.5, "007", "x"]
    assert schema(types={"a": "json"}).hashing == {}


def test_a_table_may_have_any_separator_and_other_names_than_its_header() -> None:
    asked = schema(separator=";", header=True, columns=["label", "site"], null=["-", "n/a"])
    assert rows_of('Y;S\n1;"a;b"\n0;-\n0;n/a\n', asked) == [
        Row(2, {"site": "a;b"}, 1),
        Row(3, {}, 0),
        Row(4, {}, 0),
    ]


def test_the_hash_contract_of_a_schema_declares_what_requests_have_to_follow() -> None:
    asked = schema(
        columns=["label", "I1-I2", "site", "t"],
        types={"I1-I2": "number"},
        transforms={"I1-I2": "log"},
        crosses=[["site", "hour"]],
        time={"column": "t", "parts": ["hour"]},
        missing="indicator",
    )
    assert asked.hashing == {
        "types": {"I1": "number", "I2": "number", "hour": "category"},
        "transforms": {"I1": "log", "I2": "log"},
        "crosses": [["site", "hour"]],
        "missing": "indicator",
    }
    with pytest.raises(InvalidInput):
        HashContract.from_json({"types": {"I1-I2": "float"}})
