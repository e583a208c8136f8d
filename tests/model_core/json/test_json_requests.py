"""For any request, ordinary or damaged, the kernel agrees with the careful reader."""

import json
import random
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.hashing.contract import HashContract, Limits
from model_core.json.requests import RequestParser
from service.parsing.event_time import FIRST_SECOND
from tests.support.request_ways import PredictWay, UpdateWay, Way

SMALL = Limits(features_per_example=6, name_bytes=8, value_magnitude=100.0, weight=50.0)
MAX_ROWS = 4
CONTRACTS = [
    HashContract(),
    HashContract(numeric="raw", seed=2**32 - 1),
    HashContract(numeric="log", missing="indicator"),
    HashContract(numeric={"scale": -0.37}),
]


def ways(limits: Limits, max_rows: int) -> list[Way]:
    return [kind(c, limits, max_rows) for c in CONTRACTS for kind in (PredictWay, UpdateWay)]


# Kept from one test to the next, as in a service: what a request leaves behind must not touch another.
ROOMY = ways(Limits(), 1000)
TIGHT = ways(SMALL, MAX_ROWS)


class Number(str):
    """A number as it stands in the JSON."""


def written(value: Any, blank: Callable[[], str]) -> str:
    """JSON with the white space that `blank` gives."""
    if isinstance(value, Number):
        return blank() + value + blank()
    if isinstance(value, dict):
        pairs = (
            blank() + json.dumps(k, ensure_ascii=False) + blank() + ":" + written(v, blank)
            for k, v in value.items()
        )
        return blank() + "{" + (",".join(pairs) or blank()) + "}" + blank()
    if isinstance(value, list):
        return blank() + "[" + (",".join(written(v, blank) for v in value) or blank()) + "]" + blank()
    return blank() + json.dumps(value, ensure_ascii=False) + blank()


TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters='"\\', min_codepoint=32), max_size=9
)
NAMES = st.sampled_from("abcdefghij") | st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\='), min_size=1, max_size=20
)
ORDINARY_NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(1e-3, 1e6).map(repr),
    st.floats(-1e6, -1e-3).map(repr),
    st.sampled_from(["-0", "-0.0", "0.0", "0e5", "1", "1.0", "10e-1", "1e5", "1E+5", "2.50", "-1", "1e-3"]),
).map(Number)
VALUES = st.one_of(TEXTS, ORDINARY_NUMBERS, st.booleans(), st.none(), st.lists(TEXTS, max_size=4))
FEATURES = st.dictionaries(NAMES, VALUES, max_size=8)
IDS = st.none() | TEXTS.filter(bool)
LAST_TIME = 1_790_000_000  # before now
TIMES = st.one_of(
    st.none(),
    st.integers(FIRST_SECOND, LAST_TIME).map(str).map(Number),
    st.floats(FIRST_SECOND, LAST_TIME).map(repr).map(Number),
    st.builds(
        "{}T{}{}".format,
        st.dates(date(2000, 1, 3), date(2026, 1, 1)),
        st.times(),
        st.sampled_from(["Z", "+00:00", "-23:59", "+05:30"]),
    ),
)


def some_fields(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """In any order."""
    fields = st.fixed_dictionaries(required, optional=optional)
    return fields.flatmap(lambda f: st.permutations(list(f.items()))).map(dict)


EXAMPLES = some_fields(
    {
        "features": FEATURES,
        "label": st.booleans() | st.sampled_from(["0", "1", "1.0", "-0", "0.25", "1e-3"]).map(Number),
    },
    {
        "weight": st.none()
        | st.floats(1e-3, 1e6).map(repr).map(Number)
        | st.sampled_from(["0", "1", "-0.0"]).map(Number),
        "sample_rate": st.none() | st.floats(1e-3, 1).map(repr).map(Number),
        "event_id": IDS,
        "event_time": TIMES,
    },
)
INSTANCES = some_fields({"features": FEATURES}, {"id": IDS})


@st.composite
def _with_context(draw: Any) -> dict[str, Any]:
    context = draw(FEATURES)
    instances = draw(st.lists(INSTANCES, max_size=4))
    for instance in instances:
        instance["features"] = {k: v for k, v in instance["features"].items() if k not in context}
    fields = draw(st.permutations([("context", context), ("instances", instances)]))
    return dict(fields)


REQUESTS = {
    UpdateWay: EXAMPLES | st.fixed_dictionaries({"examples": st.lists(EXAMPLES, max_size=4)}),
    PredictWay: INSTANCES
    | st.fixed_dictionaries({"instances": st.lists(INSTANCES, max_size=4)})
    | _with_context(),
}
BLANKS = st.lists(st.sampled_from(["", "", "", " ", "\n", "\t\r\n  "]), min_size=1, max_size=7)


@st.composite
def bodies(draw: Any, way: Way) -> bytes:
    blanks = draw(BLANKS)
    rng = draw(st.randoms(use_true_random=False))
    return written(draw(REQUESTS[type(way)]), lambda: rng.choice(blanks)).encode()


@given(st.data(), st.sampled_from(ROOMY))
def test_both_readers_agree_on_ordinary_requests(data: st.DataObject, way: Way) -> None:
    body = data.draw(bodies(way))
    slow = way.slow(body)
    assert slow is not None
    assert way.fast(body) == slow


@given(st.data(), st.sampled_from(TIGHT))
def test_both_readers_agree_on_tight_limits(data: st.DataObject, way: Way) -> None:
    way.check(data.draw(bodies(way)))


@given(st.data(), st.sampled_from(ROOMY + TIGHT), st.integers(1, 3))
def test_both_readers_agree_on_damaged_requests(data: st.DataObject, way: Way, times: int) -> None:
    body = data.draw(bodies(way))
    rng = data.draw(st.randoms(use_true_random=False))
    for _ in range(times):
        body = damaged(body, rng)
    way.check(body)


def damaged(body: bytes, rng: random.Random) -> bytes:
    """One change: bytes gone, new, copied from elsewhere or altered."""
    i, j = (rng.randrange(len(body) + 1) for _ in range(2))
    piece = rng.choice([*PIECES, bytes([rng.randrange(256)])])
    return rng.choice(
        [
            body[:i] + body[i + 1 :],
            body[:i],
            body[:i] + piece + body[i:],
            body[:i] + piece + body[i + len(piece) :],
            body[:i] + body[j : j + 12] + body[i:],
            body[:i] + bytes([body[i] ^ 1 << rng.randrange(8)]) + body[i + 1 :] if i < len(body) else body,
        ]
    )


PIECES = [
    *(bytes([byte]) for byte in b'{}[],:"\\ \t\n\0-+.0123456789eEn='),
    *(
        b"null",
        b"true",
        b"false",
        b"NaN",
        b"Infinity",
        b"1e999",
        b"1e-999",
        b"123456789012345678",
        b"[]",
        b"{}",
    ),
    *(b"\\u0041", b"\\n", b"\xc2\x80", b"\xc2\xa0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x7f"),
    *(
        b'"a":1,',
        b'"label":1,',
        b'"id":"x",',
        b'"weight":2,',
        b'"context":{},',
        b'"instances":[],',
        b'"examples":[],',
    ),
]

SEEDS = [
    b'{"features": {"a": 1, "b": "x", "c": null, "d": ["y", "z"], "e": true}, "label": 1, "weight": 2.5}',
    b'{"features": {},"sample_rate": 0.5,"event_id": "e","event_time": "2024-02-29T23:59:59.1Z", "label": 0}',
    b'{"examples":[{"features":{"a":-0.5},"label":false,"event_time":1700000001.5},{"label":0,"features":{"a":"\xc3\xa9"}}]}',
    b'{"features": {"a": 1, "b": "x"}, "id": "p"}',
    b'{"context":{"a":1,"b":"x"},"instances":[{"features":{"c":2}},{"id":"q","features":{"d":"y"}}]}',
    b'{"instances":[{"features":{"c":2}},{"features":{}}],"context":{"b":[]}}',
]


@pytest.mark.parametrize("way", ROOMY + TIGHT, ids=lambda way: type(way).__name__)
def test_both_readers_agree_on_many_damaged_requests(way: Way) -> None:
    rng = random.Random(7)
    taken = 0
    for _ in range(400):
        body = rng.choice(SEEDS)
        for _ in range(rng.randrange(3)):
            body = damaged(body, rng)
        taken += way.check(body)
    assert taken > 20


def test_a_twin_parses_in_a_thread_and_knows_names_that_are_met_later() -> None:
    parser = RequestParser(HashContract())
    twin = parser.twin()
    parser.met("a", False)
    parser.met("b", True)
    rows = [b'{"label": %d, "features": {"a": "%d", "b": %d}}' % (k % 2, k, k % 7) for k in range(5000)]
    large = b'{"examples": [%b]}' % b",".join(rows)
    with ThreadPoolExecutor(1) as threads:
        parsing = threads.submit(twin.update, large)
        small = [parser.update(row) for row in rows]
        parsed = parsing.result()
    assert parsed is not None
    assert parsed.batch.to_records() == [record for one in small if one for record in one.batch.to_records()]


def test_the_room_of_a_large_body_is_given_back_whether_it_is_read_or_not() -> None:
    parser = RequestParser(HashContract())
    parser.met("a", False)
    row = b'{"label": 1, "features": {"a": [%b]}}' % b",".join([b'"x"'] * 1000)
    body = b'{"examples": [%b]}' % b",".join([row] * 1000)
    tracemalloc.start()
    for sent, is_read in ((body, True), (body[:-2] + b"x]}", False)):
        before, _ = tracemalloc.get_traced_memory()
        parsed = parser.update(sent)
        assert (parsed is not None) is is_read
        del parsed
        assert tracemalloc.get_traced_memory()[0] - before < 1 << 20
    tracemalloc.stop()
