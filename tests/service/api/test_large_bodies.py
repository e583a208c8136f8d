"""Bodies of a great many names and values: refused before they are read, or read while others are served."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from model_core.hashing.contract import HashContract
from model_core.hashing.encoder import FeatureEncoder
from model_core.json.requests import RequestParser
from service.models.registry import OpenModel
from service.parsing import large_bodies
from service.parsing.requests import RequestReader
from service.settings.groups import LimitSettings
from tests.support.problem_replies import invalid, problem

MIB = 1 << 20
HEADERS = {"content-type": "application/json"}
UPDATES = {"/update": MIB * 16, "/impressions": MIB * 16}
CALLS = [
    ("POST", "/predict"),
    ("POST", "/update"),
    ("POST", "/explain"),
    ("POST", "/impressions"),
    ("PUT", "/models/huge"),
    ("PATCH", "/models/default"),
    ("PUT", "/aliases/huge"),
    ("POST", "/models/default/clone"),
    ("POST", "/models/default/restore"),
]


def nested_lists(size: int) -> bytes:
    return b'{"features": {"a": [' + b"[]," * ((size - 64) // 3) + b"[]]}}"


def many_names(size: int) -> bytes:
    names = ",".join(f'"{k:x}":0' for k in range(size // 12))
    return b'{"features": {%b}, "label": 1}' % names.encode()


def deep_objects(size: int) -> bytes:
    return b'{"features": ' + b'{"a":' * (size // 7) + b"1" + b"}" * (size // 7) + b"}"


@pytest.mark.parametrize("pack", [lambda body: body, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("body", [nested_lists, many_names, deep_objects])
@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_body_of_too_many_values_is_refused(
    api: httpx.Client,
    method: str,
    path: str,
    body: Callable[[int], bytes],
    pack: Callable[[bytes], bytes],
) -> None:
    sent = pack(body(UPDATES.get(path, MIB)))
    headers = HEADERS | ({"content-encoding": "gzip"} if pack is gzip.compress else {})
    detail = invalid(api.request(method, path, content=sent, headers=headers), "", "too_many")
    assert str(large_bodies.MAX_VALUES) in detail


@pytest.mark.parametrize(
    ("path", "field", "item"),
    [
        ("/predict", "instances", b'{"features": {"a": [%b]}}'),
        ("/update", "examples", b'{"features": {"a": [%b]}, "label": 1}'),
        ("/impressions", "ids", b"[%b]"),
    ],
)
def test_an_item_of_too_many_values_is_refused(api: httpx.Client, path: str, field: str, item: bytes) -> None:
    fine = item % b"1"
    sent = b'{"%b": [%b, %b]}' % (field.encode(), fine, item % (b"[]," * 100_000 + b"[]"))
    invalid(api.post(path, content=sent, headers=HEADERS), f"{field}[1]", "too_many")


def test_too_many_items_of_a_large_body_are_refused(api: httpx.Client) -> None:
    for path, body, field in (
        ("/predict", {"instances": [{"features": {"a": "x" * 100}}] * 1001}, "instances"),
        ("/update", {"examples": [{"features": {}, "label": 1}] * 10_001}, "examples"),
        ("/impressions", {"ids": ["x" * 10] * 10_001}, "ids"),
    ):
        assert "at most" in invalid(api.post(path, json=body), field, "too_many")


def examples(n: int, names: int = 20) -> list[dict[str, Any]]:
    """Each has names of its own, which the kernel does not know, and sometimes other fields."""
    return [
        {"features": {f"f{k % 50}": f"v{k}", **{f"n{k}_{j}": j for j in range(names)}}, "label": k % 2}
        | ({"weight": 0.5} if k == n // 2 else {})
        | ({"event_time": "2024-05-01T12:00:00Z"} if k == n - 1 else {})
        | ({"event_id": f"e{k}"} if k % 3 == 0 else {})
        for k in range(n)
    ]


def test_a_large_update_is_learned_like_small_ones(api: httpx.Client, model: str) -> None:
    sent = examples(1000)
    assert len(json.dumps(sent)) > 4 * large_bodies.LARGE_BYTES
    other = f"{model}-small"
    api.put(other, json={"hyper": {"l1": 0}, "hashing": {"bits": 12}}).raise_for_status()
    whole = api.post(f"{model}/update", json={"examples": sent}).json()["results"]
    small = [
        result
        for start in range(0, len(sent), 100)
        for result in api.post(f"{other}/update", json={"examples": sent[start : start + 100]}).json()[
            "results"
        ]
    ]
    assert [one["status"] for one in whole] == ["learned"] * len(sent)
    assert [one["probability"] for one in whole] == [one["probability"] for one in small]
    instances = [{"features": one["features"], "id": f"i{k}"} for k, one in enumerate(sent)]
    predicted = api.post(f"{model}/predict", json={"context": {"c": "x"}, "instances": instances}).json()
    apart = [
        api.post(f"{model}/predict", json={"context": {"c": "x"}, "instances": [one]}).json()["predictions"][
            0
        ]
        for one in instances[::100]
    ]
    assert predicted["predictions"][::100] == apart
    api.delete(other)


def test_labels_of_a_large_body_keep_their_places(api: httpx.Client, model: str) -> None:
    logged = [{"features": {"a": f"x{k}"}, "id": f"p{k}"} for k in range(500)]
    assert api.post(f"{model}/predict", json={"instances": logged, "log": True}).json()["logged"] is True
    shown = api.post(f"{model}/impressions", json={"ids": [f"p{k}" for k in range(500)]})
    assert {one["status"] for one in shown.json()["results"]} == {"shown"}
    sent = [item for k, one in enumerate(examples(500)) for item in (one, {"id": f"p{k}", "label": 0})]
    results = api.post(f"{model}/update", json={"examples": sent}).json()["results"]
    assert [one["id"] for one in results[1::2]] == [f"p{k}" for k in range(500)]
    assert {one["status"] for one in results[1::2]} == {"waiting"}
    assert {one["status"] for one in results[::2]} == {"learned"}


@pytest.mark.parametrize(
    ("wrong", "where", "code"),
    [
        ({"label": 7}, "examples[950].label", "invalid_value"),
        ({"weight": "2"}, "examples[950].weight", "wrong_type"),
        ({"features": 3}, "examples[950].features", "wrong_type"),
        ({"what": 3}, "examples[950].what", "unknown_field"),
        ({"features": {"a": {"b": 1}}}, "examples[950].features.a", "wrong_type"),
    ],
)
def test_errors_in_a_large_body_have_their_places(
    api: httpx.Client, model: str, wrong: dict[str, Any], where: str, code: str
) -> None:
    sent = examples(1000)
    sent[950] |= wrong
    invalid(api.post(f"{model}/update", json={"examples": sent}), where, code)
    assert api.get(model).json()["t"] == 0


def test_all_kinds_of_mistakes_in_a_large_body_are_found(api: httpx.Client) -> None:
    def post(text: str) -> httpx.Response:
        return api.post("/update", content=text.encode(), headers=HEADERS)

    text = json.dumps({"examples": examples(1000)})
    repeated = text.replace('"n950_1": 1', '"n950_0": 1')
    invalid(post(repeated), "examples[950].features.n950_0", "duplicate_name")
    broken = text.replace('"n950_1": 1', '"n950_1": 1x')
    named = re.match(
        r"Invalid JSON in examples\[(\d+)\] to examples\[(\d+)\]: ", invalid(post(broken), "", "invalid_json")
    )
    assert named is not None
    assert int(named[1]) <= 950 <= int(named[2])
    invalid(post(text[:-2]), "", "invalid_json")
    invalid(post(text[:-1] + ', "label": 1}'), "label", "unknown_field")
    many = examples(5000, names=1)
    for one in many:
        one["label"] = 7
    document = problem(api.post("/update", json={"examples": many}), 422, "unprocessable")
    assert len(document["errors"]) == 100
    instances = [{"features": one["features"]} for one in examples(1000)]
    instances[950]["features"] = {"c": "y"}
    sent = {"context": {"c": "x"}, "instances": instances}
    invalid(api.post("/predict", json=sent), "instances[950].features.c", "duplicate_name")


def test_a_problem_lists_at_most_a_hundred_errors(api: httpx.Client) -> None:
    sent = {f"x{k}": 1 for k in range(10_000)}
    document = problem(api.put("/aliases/x", json={"model": "m", **sent}), 422, "unprocessable")
    assert len(document["errors"]) == 100


async def most_between_turns(encoder: FeatureEncoder, reading: Awaitable[Any]) -> int:
    """The most examples that were encoded while no other task could run."""
    most, before, task = 0, encoder.encoded, asyncio.ensure_future(reading)
    while not task.done():
        await asyncio.sleep(0)
        most, before = max(most, encoder.encoded - before), encoder.encoded
    await task
    return most


async def test_other_tasks_run_while_a_large_body_is_read() -> None:
    contract = HashContract()
    encoder, reader = FeatureEncoder(contract), RequestReader(LimitSettings())
    model = cast(OpenModel, SimpleNamespace(parser=RequestParser(contract), encoder=encoder))
    sent = examples(1000)
    update = json.dumps({"examples": sent}).encode()
    predict = json.dumps({"instances": [{"features": one["features"]} for one in sent]}).encode()
    assert 0 < await most_between_turns(encoder, reader.update(model, update)) < 100
    assert 0 < await most_between_turns(encoder, reader.predict(model, predict)) < 100
    assert encoder.encoded == 2000
