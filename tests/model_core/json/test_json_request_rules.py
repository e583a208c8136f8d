"""Requests that the kernel reads or leaves to the careful reader, rule by rule."""

import json
from datetime import date

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import FeatureEncoder
from model_core.json.columns import STAMP
from model_core.json.requests import RequestParser
from tests.support.request_ways import PredictWay, Read, UpdateWay

MAX_ROWS = 4
RAW = HashContract(numeric="raw")
USUAL = Limits()


def predict(body: str | bytes, contract: HashContract = RAW, limits: Limits = USUAL) -> Read | None:
    way = PredictWay(contract, limits, MAX_ROWS)
    body = body if isinstance(body, bytes) else body.encode()
    way.check(body)
    return way.fast(body)


def update(body: str | bytes, contract: HashContract = RAW, limits: Limits = USUAL) -> Read | None:
    way = UpdateWay(contract, limits, MAX_ROWS)
    body = body if isinstance(body, bytes) else body.encode()
    way.check(body)
    return way.fast(body)


def features(text: str) -> Read | None:
    return predict('{"features": {' + text + "}}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        '"a": ""',
        '"a": []',
        '"a": null',
        '"a": ["", "x", "x"]',
        '"a": true, "b": false',
        '"a": -0, "b": -0.0, "c": 1.0, "d": 1e0, "e": 0.1e1',
        '"a": 0.30000000000000004, "b": 123456.78901234567',
        '"ü\u00a0€😀": "\u0080\u007f€😀"',
        '"' + "n" * 256 + '": 1',
        '"' + "é" * 128 + '": 1',
        '"a": 1e6, "b": -1000000',
    ],
)
def test_ordinary_features_are_read(text: str) -> None:
    assert features(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        '"": 1',
        '"a=b": 1',
        '"a\u007f": 1',
        '"a\u0080": 1',
        '"a\u009f": 1',
        '"a\\u0062": 1',
        '"a\t": 1',
        '"a": "\t"',
        '"a": "\\n"',
        '"' + "n" * 257 + '": 1',
        '"' + "é" * 129 + '": 1',
        '"a": 1, "a": 2',
        '"a": null, "a": null',
        '"a": [1]',
        '"a": [null]',
        '"a": [["x"]]',
        '"a": {}',
        '"a": NaN',
        '"a": -Infinity',
        '"a": 1000001',
        '"a": -1000000.0000000001',
        '"a": 1e999',
        '"a": 01',
        '"a": -01',
        '"a": 1.',
        '"a": .5',
        '"a": +1',
        '"a": -',
        '"a": 1e',
        '"a": 1e+',
        '"a": 1 000',
        '"a": 0x10',
        '"a": 1_000',
        '"a": tru',
        '"a": True',
        '"a": nulll',
        '"a": "x',
        '"a": "x" "b": 1',
        '"a": "x",',
        ',"a": "x"',
        '"a": ["x",]',
        '"a": [,"x"]',
        '"a": ["x" "y"]',
        '"a"',
        '"a":',
        '"a" "x"',
        "a: 1",
        "'a': 1",
        '"a": 1 // note',
        '"a": 1}, "b": {',
    ],
)
def test_features_that_are_not_ordinary_are_left(text: str) -> None:
    assert features(text) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"{}",
        b"[]",
        b"null",
        b'"features"',
        b'{"features": {}} x',
        b'{"features": {}}\0',
        b'\xef\xbb\xbf{"features": {}}',
        b'{"features": {"a": "\xff"}}',
        b'{"features": {"a": "\xed\xa0\x80"}}',
        b'{"features": {"a": "\xc3"}}',
        b'{"features": {}, "features": {}}',
        b'{"features": []}',
        b'{"features": {}, "log": true}',
        b'{"features": {}, "id": ""}',
        b'{"features": {}, "id": 1}',
        b'{"features": {}, "id": "' + b"x" * 257 + b'"}',
        b'{"features": {}, "context": {}}',
        b'{"id": "x"}',
        b'{"context": {}}',
        b'{"context": {}, "features": {}}',
        b'{"context": null, "instances": []}',
        b'{"context": {}, "context": {}, "instances": []}',
        b'{"instances": [], "instances": []}',
        b'{"instances": [], "id": "x"}',
        b'{"instances": {}}',
        b'{"instances": [{}]}',
        b'{"instances": [{"features": {}, "label": 1}]}',
        b'{"context": {"a": 1}, "instances": [{"features": {"a": 1}}]}',
        b'{"instances": [{"features": {"a": 1}}], "context": {"a": 1}}',
        b'{"instances": [' + b",".join([b'{"features": {}}'] * (MAX_ROWS + 1)) + b"]}",
    ],
)
def test_predictions_of_another_shape_are_left(body: bytes) -> None:
    assert predict(body) is None


@pytest.mark.parametrize(
    "fields",
    [
        '"label": 2',
        '"label": -1',
        '"label": "1"',
        '"label": null',
        '"label": 1.5',
        '"label": -0.1',
        '"label": tru',
        '"weight": 1',
        '"label": 1, "label": 1',
        '"label": 1, "weight": -1e-9',
        '"label": 1, "weight": 1000001',
        '"label": 1, "weight": true',
        '"label": 1, "weight": "1"',
        '"label": 1, "weight": 1, "weight": 1',
        '"label": 1, "sample_rate": 0',
        '"label": 1, "sample_rate": 1.0000000000000002',
        '"label": 1, "sample_rate": 9.9e-7',
        '"label": 1, "event_id": ""',
        '"label": 1, "event_id": 7',
        '"label": 1, "event_time": -1',
        '"label": 1, "event_time": 253402300799.5',
        '"label": 1, "event_time": 253402300799',
        '"label": 1, "event_time": 946684799',
        '"label": 1, "event_time": 14102100',
        '"label": 1, "event_time": true',
        '"label": 1, "event_time": "2024-02-30T00:00:00Z"',
        '"label": 1, "event_time": "2023-02-29T00:00:00Z"',
        '"label": 1, "event_time": "2024-04-31T00:00:00Z"',
        '"label": 1, "event_time": "2024-13-01T00:00:00Z"',
        '"label": 1, "event_time": "2024-01-00T00:00:00Z"',
        '"label": 1, "event_time": "2024-01-01T24:00:00Z"',
        '"label": 1, "event_time": "2024-01-01T00:60:00Z"',
        '"label": 1, "event_time": "2024-01-01T00:00:00"',
        '"label": 1, "event_time": "2024-01-01T00:00:00.Z"',
        '"label": 1, "event_time": "2024-01-01T00:00:00+24:00"',
        '"label": 1, "event_time": "2024-01-01T00:00:00+0100"',
        '"label": 1, "event_time": "1970-01-01T00:00:00+00:01"',
        '"label": 1, "event_time": "1969-12-31T23:59:59Z"',
        '"label": 1, "id": "x"',
        '"label": 1, "examples": []',
    ],
)
def test_examples_with_other_fields_are_left(fields: str) -> None:
    assert update('{"features": {}, ' + fields + "}") is None
    assert update('{"examples": [{' + fields + ', "features": {}}]}') is None


@pytest.mark.parametrize(
    "time",
    [
        "946684800",
        "946684801.0005",
        "946684800.0015",
        "1700000000.1235",
        '"2000-01-01T00:00:00Z"',
        '"2024-02-29T12:34:56.7894Z"',
        '"2000-02-29T00:00:00.5-12:00"',
        '"2004-03-01T00:00:00.123456789Z"',
        '"2025-12-31T23:59:59.999Z"',
        '"2000-01-01T05:30:00+05:30"',
        '"1999-12-31T23:59:00-00:01"',
    ],
)
def test_times_equal_those_of_the_careful_reader(time: str) -> None:
    assert update('{"label": 1, "features": {}, "event_time": ' + time + "}") is not None


@given(st.dates(date(2000, 1, 1), date(2026, 1, 1)))
def test_every_day_is_known(day: date) -> None:
    assert update(f'{{"label": 1, "features": {{}}, "event_time": "{day}T00:00:00Z"}}') is not None


def test_a_context_precedes_each_instance_wherever_it_is() -> None:
    context, instances = (
        '"context": {"a": 2, "b": "x"}',
        '"instances": [{"features": {"c": "y"}}, {"features": {}}]',
    )
    first, last = predict(f"{{{context}, {instances}}}"), predict(f"{{{instances}, {context}}}")
    assert first is not None
    assert first == last


def test_values_begin_in_the_middle_of_a_request() -> None:
    rows = '{"features": {"b": 1}}, {"features": {"c": 2}}, {"features": {}}'
    assert predict(f'{{"context": {{"a": 1}}, "instances": [{rows}]}}') is not None


def test_lists_count_as_many_features_as_they_have_texts() -> None:
    limits = Limits(features_per_example=3)
    assert predict('{"features": {"a": ["x", "y"], "b": 1}}', limits=limits) is not None
    assert predict('{"features": {"a": ["x", "y"], "b": ["x", "y"]}}', limits=limits) is None
    assert predict('{"features": {"a": null, "b": null, "c": null, "d": null}}', limits=limits) is None
    with_context = '{"context": {"a": ["x", "y"]}, "instances": [{"features": {"b": ["x"%s]}}]}'
    assert predict(with_context % "", limits=limits) is not None
    assert predict(with_context % ', "y"', limits=limits) is None


def test_the_columns_grow_for_many_features() -> None:
    names = {f"n{i}": "x" for i in range(1000)}
    instances = [{"features": {"i": i}, "id": f"é{i}"} for i in range(1000)]
    body = json.dumps({"context": names, "instances": instances}, ensure_ascii=False).encode()
    way = PredictWay(HashContract(), USUAL, 1000)
    assert way.check(body)
    assert way.check(b'{"features": {"a": "x"}}')


@pytest.mark.parametrize(
    "contract",
    [
        HashContract(types={"a": "category"}),
        HashContract(transforms={"a": "raw"}),
        HashContract(crosses=(("a", "b"),)),
        HashContract(strict=True),
    ],
)
def test_contracts_with_rules_for_names_are_left(contract: HashContract) -> None:
    assert predict('{"features": {"c": "x"}}', contract) is None


def test_the_encoder_meets_names_of_mixed_kinds_first() -> None:
    parser = RequestParser(HashContract())
    encoder = FeatureEncoder(HashContract(), met=parser.met)
    for value in ("x", 1, "y", 2, None, ["z"], True):
        body = json.dumps({"features": {"a": value}}).encode()
        if parser.predict(body) is None:
            encoder.encode({"a": value})
    assert encoder.mixed_names == {"a"}
    assert parser.predict(b'{"features": {"a": 1}}') is not None


def test_the_encoder_meets_names_of_refused_bodies_too() -> None:
    parser = RequestParser(HashContract())
    encoder = FeatureEncoder(HashContract(), met=parser.met)
    assert parser.predict(b'{"features": {"a": "x"}, "surprise": 1}') is None  # and pydantic refuses it, too
    for value in (1, "x"):
        assert parser.predict(json.dumps({"features": {"a": value}}).encode()) is None
        encoder.encode({"a": value})
    assert encoder.mixed_names == {"a"}


def test_names_beyond_those_that_are_tracked_are_read_at_once() -> None:
    parser = RequestParser(HashContract())
    encoder = FeatureEncoder(HashContract(), met=parser.met)
    for start in range(0, 40_000, 1000):
        encoder.encode({f"n{i}": 1 for i in range(start, start + 1000)})
    new = [parser.predict(b'{"features": {"m%d": 1}}' % i) for i in range(300)]
    assert sum(parsed is not None for parsed in new) > 200


def test_names_with_the_same_hash_are_left() -> None:
    by_hash: dict[int, str] = {}
    for i in range(1_000_000):
        other = by_hash.setdefault(mmh3.hash(f"n{i}"), f"n{i}")
        if other != f"n{i}":
            both = f'{{"features": {{"n{i}": 1, "{other}": 1}}}}'
            assert predict(both, HashContract(seed=0)) is None
            assert predict(both, HashContract(seed=1)) is not None
            return
    pytest.fail("no two names with one hash")


def test_stamps_restart_before_they_run_out() -> None:
    way = PredictWay(HashContract(), USUAL, MAX_ROWS)
    body = b'{"instances": [{"features": {"a": 1}}, {"features": {"a": 2}}]}'
    assert way.check(body)
    way.parser._columns.state[STAMP] = (1 << 30) - 1
    for _ in range(4):
        assert way.check(body)
    assert way.parser._columns.state[STAMP] < 100


def test_results_do_not_change_with_the_next_request() -> None:
    parser = RequestParser(RAW)
    parser.met("a", True)
    bodies = [b'{"features": {"a": %d}, "label": %d, "weight": %d}' % (i, i % 2, i) for i in range(2, 6)]
    parsed = [parser.update(body) for body in bodies]
    for i, one in enumerate(parsed, 2):
        assert one is not None
        assert (one.batch.values.tolist(), one.batch.labels.tolist()) == ([i], [i % 2])
        assert one.batch.weights.tolist() == [i]
