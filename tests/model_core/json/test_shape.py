"""The shape of a body: its names and values are counted, and its list is cut into groups of whole items."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.errors import InvalidInput
from model_core.json.shape import check_values, shape_of

MANY = 1 << 20
TEXTS = st.text('"\\[]{},: ab\n', max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
BODIES = st.dictionaries(st.sampled_from(["a", "items ", "x"]), VALUES, max_size=3)
DAMAGE = [b"", b'"', b"\\", b"[", b"]", b"{", b"}", b",", b":", b"0", b" "]
ITEMS = st.lists(VALUES, max_size=12)


def count(value: Any) -> int:
    """Names and values, lists and objects included."""
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


def read(text: bytes) -> Any:
    """Raises ValueError, also for a name that occurs twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name occurs twice")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=once)


def put_together(body: bytes, max_items: int = MANY, max_values: int = MANY) -> Any:
    """The body as it is read in parts. Raises InvalidInput, ValueError."""
    frame, groups = shape_of(body, "items", max_items, max_values)
    whole = read(frame)
    items = []
    for start, stop, number in groups:
        group = read(b"[%b]" % body[start:stop])
        assert len(group) == number > 0
        items += group
    if groups:
        assert whole["items"] == []
        whole["items"] = items
    return whole


@given(BODIES, ITEMS, st.integers(1, 2000), st.sampled_from([None, 1]), st.booleans())
def test_the_parts_of_a_body_are_the_body(
    others: dict[str, Any], items: list[Any], times: int, indent: int | None, ascii_only: bool
) -> None:
    whole = {"x": 1, **others, "items": items * times, "z": [others]}
    body = json.dumps(whole, indent=indent, ensure_ascii=ascii_only).encode()
    assert put_together(body) == whole


@given(BODIES, ITEMS)
def test_names_and_values_are_counted_in_each_item_and_outside(
    others: dict[str, Any], items: list[Any]
) -> None:
    body = json.dumps({**others, "items": items}).encode()
    most = max([count({**others, "items": []}) - 1, *map(count, items)])
    assert put_together(body, len(items), most) == {**others, "items": items}
    with pytest.raises(InvalidInput) as refused:
        shape_of(body, "items", len(items), most - 1)
    assert refused.value.code == "too_many"
    check_values(body, count({**others, "items": items}))
    with pytest.raises(InvalidInput, match="names and values"):
        check_values(body, count({**others, "items": items}) - 1)


@given(BODIES, ITEMS, st.data())
def test_a_damaged_body_is_refused_whole_and_in_parts(
    others: dict[str, Any], items: list[Any], data: st.DataObject
) -> None:
    body = bytearray(json.dumps({**others, "items": items * data.draw(st.sampled_from([1, 1000]))}).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(DAMAGE))
    try:
        whole = read(bytes(body))
    except ValueError:
        with pytest.raises((ValueError, InvalidInput)):
            put_together(bytes(body))
    else:
        assert put_together(bytes(body)) == whole


@pytest.mark.parametrize(
    ("body", "where", "code"),
    [
        ('{"items": [1, [[], [], [], []]]}', ("items", 1), "too_many"),
        ('{"items": [1, 2], "x": [[], [[]]]}', (), "too_many"),
        ('{"x": [1, 2, 3, 4', (), "too_many"),
        ('{"items": [1, 2, 3, 4]}', ("items",), "too_many"),
        ('{"items": [1], "items": [2]}', ("items",), "duplicate_name"),
        ('{"items": [1, 2', (), "invalid_json"),
        ('{"items": [1,, 2]}', (), "invalid_json"),
        ('{"items": [1,]}', (), "invalid_json"),
        ('{"items": ["a]}', (), "invalid_json"),
        ('{"items": []}}', (), "invalid_json"),
        ('{"a": "\\', (), "invalid_json"),
    ],
)
def test_a_refusal_has_its_place_and_code(body: str, where: tuple[str | int, ...], code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        shape_of(body.encode(), "items", 3, 4 if "x" not in body else 5)
    assert (refused.value.path, refused.value.code) == (where, code)


def test_a_list_elsewhere_is_not_the_list() -> None:
    for body in (b'{"x": {"items": [1, 2]}}', b'{"x": "items", "y": [1]}', b"[1]"):
        assert shape_of(body, "items", 0, 9) == (body, [])


def test_groups_are_small() -> None:
    items = [{"name": "x" * 50, "n": k} for k in range(10_000)]
    body = json.dumps({"items": items}).encode()
    groups = shape_of(body, "items", len(items), 9).groups
    assert sum(number for _, _, number in groups) == len(items)
    assert max(stop - start for start, stop, _ in groups) < 1 << 17
    assert max(number for _, _, number in groups) <= 512 // 5 + 1
    long = json.dumps({"items": ["x" * 10_000] * 100}).encode()
    assert max(number for _, _, number in shape_of(long, "items", 100, 9).groups) == 7
    assert shape_of(long, "items", 100, 9).frame == b'{"items": []}'
