"""Arbitrary requests never make the server fail, and every reply is JSON."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_from_bytes

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

QUICK = settings(
    max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

numbers = st.one_of(st.integers(), st.floats(), st.integers(-(10**400), 10**400))
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=20,
)
features = st.dictionaries(st.text(max_size=10), anything, max_size=6)
rarely_right = st.one_of(st.just(1), st.sampled_from([0, -1, True, 0.5, "1"]), anything)


def sometimes(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


instance = sometimes(features=features | anything, id=st.text(max_size=10) | anything, x=anything) | anything
example = sometimes(
    features=features | anything,
    label=rarely_right,
    weight=numbers | anything,
    sample_rate=numbers | anything,
    event_id=anything,
    event_time=st.datetimes().map(lambda t: f"{t.isoformat()}Z") | anything,
)
bodies = st.one_of(
    sometimes(features=features, id=anything),
    sometimes(context=features | anything, instances=st.lists(instance, max_size=4) | anything),
    example,
    sometimes(examples=st.lists(example | anything, max_size=4) | anything, label=rarely_right),
    sometimes(hyper=anything, hashing=anything),
    anything,
)
PATHS = ["/predict?x", "/update", "/update?wait=false", "/models/default/predict", "/models/default/update"]


def post(api: httpx.Client, path: str, content: bytes) -> None:
    method = "PUT" if path == "/models/default" else "POST"
    reply = api.request(method, path, content=content, headers={"content-type": "application/json"})
    assert reply.status_code < 500, reply.text
    json.loads(reply.text, parse_constant=pytest.fail)


@pytest.mark.slow
@QUICK
@given(path=st.sampled_from([*PATHS, "/models/default"]), body=bodies)
def test_no_json_makes_the_server_fail(api: httpx.Client, path: str, body: Any) -> None:
    post(api, path, json.dumps(body).encode("utf-8", "surrogatepass"))


@QUICK
@given(path=st.sampled_from(PATHS), body=st.binary(max_size=200))
def test_no_bytes_make_the_server_fail(api: httpx.Client, path: str, body: bytes) -> None:
    post(api, path, body)


@QUICK
@given(segment=st.binary(max_size=30), query=st.binary(max_size=20))
def test_no_path_makes_the_server_fail(api: httpx.Client, segment: bytes, query: bytes) -> None:
    path = f"/models/{quote_from_bytes(segment)}?wait={quote_from_bytes(query)}"
    post(api, path, b'{"features": {}}')


@QUICK
@given(query=st.binary(max_size=20))
def test_no_query_makes_the_server_fail(api: httpx.Client, query: bytes) -> None:
    post(api, f"/update?{quote_from_bytes(query, safe='&=+;')}", b'{"features": {}, "label": 0}')


@pytest.mark.parametrize(
    "body",
    [
        b'{"examples": [' + b"1," * 100_000 + b"1]}",
        b"{" + b",".join(b'"%x": 1' % i for i in range(80_000)) + b"}",
        b'{"features": {"a": ' + b"[" * 180 + b"]" * 180 + b'}, "label": 1}',
        b'{"features": {"a": [' + b'"x",' * 100_000 + b'"x"]}, "label": 1}',
        b'{"features": {' + b",".join(b'"%x": null' % i for i in range(60_000)) + b'}, "label": 1}',
    ],
    ids=["a list of wrong items", "unknown fields", "deep nesting", "a long list", "many features"],
)
def test_a_body_full_of_errors_gets_a_short_answer(api: httpx.Client, body: bytes) -> None:
    for path in ("/predict", "/update"):
        reply = api.post(path, content=body, headers={"content-type": "application/json"})
        assert reply.status_code == 422
        assert len(reply.content) < 100_000
        assert len(reply.json()["errors"]) <= 100
