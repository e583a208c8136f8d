"""A name that occurs twice in one object is an error, and nothing is learned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from model_core.errors import InvalidInput
from model_core.hashing.contract import HashContract, Limits
from service.parsing.duplicate_names import refuse_repeated_names
from tests.support.problem_replies import invalid
from tests.support.request_ways import PredictWay, UpdateWay

REPEATED = [
    ("/predict", '{"features": {}, "features": {}}', "features"),
    ("/predict", '{"features": {"ad": "a", "ad": "a"}}', "features.ad"),
    ("/predict", '{"features": {"ad":\t"a:", "ad" : "x\\": "}}', "features.ad"),
    ("/predict", '{"features": {"ad": "a", "\\u0061d": "b"}}', "features.ad"),
    ("/predict", '{"features": {}, "log": true, "log": false}', "log"),
    ("/predict", '{"context": {"a": 1, "a": 2}, "instances": []}', "context.a"),
    ("/predict", '{"instances": [{"features": {}, "id": "a", "id": "b"}]}', "instances[0].id"),
    ("/update", '{"features": {"ad": "a"}, "label": 0, "label": 1}', "label"),
    ("/update", '{"examples": [{"features": {"n": 1, "n": 2}, "label": 0}]}', "examples[0].features.n"),
    ("/update", '{"examples": [], "examples": []}', "examples"),
    ("/impressions", '{"ids": ["a"], "ids": ["b"]}', "ids"),
    ("/explain", '{"features": {"ad": "a", "ad": "b"}}', "features.ad"),
]


@pytest.mark.parametrize(("path", "body", "where"), REPEATED)
def test_a_repeated_name_is_reported_with_its_path(
    api: httpx.Client, path: str, body: str, where: str
) -> None:
    reply = api.post(path, content=body.encode(), headers={"content-type": "application/json"})
    invalid(reply, where, "duplicate_name")


@pytest.mark.parametrize(
    ("method", "path", "body", "where"),
    [
        ("PUT", "/models/twice", '{"hyper": {"l1": 0, "l1": 1}}', "hyper.l1"),
        ("PUT", "/aliases/twice", '{"model": "default", "model": "other"}', "model"),
        ("POST", "/models/default/clone", '{"name": "one", "name": "two"}', "name"),
        (
            *("POST", "/models/default/restore"),
            '{"snapshot": "a", "replay_log": true, "replay_log": false}',
            "replay_log",
        ),
    ],
)
def test_calls_about_models_report_it_too(
    api: httpx.Client, method: str, path: str, body: str, where: str
) -> None:
    headers = {"content-type": "application/json"}
    reply = api.request(method, path, content=body.encode(), headers=headers)
    invalid(reply, where, "duplicate_name")


@pytest.mark.parametrize("body", [body for _, body, _ in REPEATED])
def test_the_kernel_does_not_read_such_a_body(body: str) -> None:
    for way in (PredictWay(HashContract(), Limits(), 10), UpdateWay(HashContract(), Limits(), 10)):
        assert way.fast(body.encode()) is None


class Object(NamedTuple):
    """As it is written: pairs, the names of which may repeat, and the space before each colon."""

    pairs: list[tuple[str, Any]]
    space: str


NAMES = st.text(alphabet='ab":\\ ', max_size=2)
LEAVES = st.integers() | st.text(alphabet='":a\\ ', max_size=4) | st.booleans() | st.none()
DOCUMENTS = st.recursive(
    LEAVES,
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.builds(Object, st.lists(st.tuples(NAMES, parts), max_size=3), st.sampled_from(["", " ", "\n\t"]))
    ),
    max_leaves=12,
)


def written(value: Any) -> str:
    if isinstance(value, Object):
        pairs = (f"{written(name)}{value.space}:{written(item)}" for name, item in value.pairs)
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return json.dumps(value)


def objects_in(value: Any) -> Iterator[Object]:
    if isinstance(value, Object):
        yield value
        value = [item for _, item in value.pairs]
    if isinstance(value, list):
        for item in value:
            yield from objects_in(item)


def names_in(value: Any) -> int:
    """How many are left once the document was read."""
    if isinstance(value, dict):
        return len(value) + sum(map(names_in, value.values()))
    return sum(map(names_in, value)) if isinstance(value, list) else 0


@given(DOCUMENTS)
def test_a_repeated_name_is_found_however_the_body_is_written(document: Any) -> None:
    body = written(document).encode()
    repeated = any(len(dict(found.pairs)) < len(found.pairs) for found in objects_in(document))
    for names in (None, names_in(from_json(body))):
        try:
            refuse_repeated_names(body, names)
        except InvalidInput:
            assert repeated
        else:
            assert not repeated
