"""Values of sliced features: finding them in requests, and packing them for the log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.hashing.contract import HashContract
from model_core.hashing.encoder import FeatureEncoder
from model_core.hashing.feature_text import bucket_text
from service.models.evaluation.slices import MAX_TEXT_BYTES, SliceFinder, SliceName, pack_names

NAMES = ("device", 'odd "name"\\', "größe")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-1000, 1000)
scaled = st.fixed_dictionaries({"value": texts | numbers, "times": numbers})
values = st.one_of(texts, st.booleans(), numbers, st.lists(texts | numbers, max_size=3), scaled)


def finder(contract: HashContract | None = None, slices: tuple[str, ...] = NAMES) -> SliceFinder:
    return SliceFinder(FeatureEncoder(contract or HashContract()), slices)


def body(features: Any, **options: Any) -> bytes:
    return json.dumps({"examples": [{"features": features, "label": 1}]}, **options).encode()


@given(
    st.dictionaries(st.sampled_from([*NAMES, "other"]), values),
    st.booleans(),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_every_category_of_a_sliced_feature_is_found(
    features: dict[str, Any], escaped: bool, indent: int | None, as_pairs: bool
) -> None:
    sent: Any = [[name, value] for name, value in features.items()] if as_pairs else features
    found = finder().found_in(body(sent, ensure_ascii=escaped, indent=indent))
    encoder = FeatureEncoder(HashContract())
    expected = {
        category: NAMES.index(name)
        for name, value in features.items()
        if name in NAMES
        for category in encoder.encode({name: value}).hashes
    }
    assert {category: name.feature for category, name in found.items()} == expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("phone", ["phone"]),
        (True, ["true"]),
        (5, [bucket_text(5)]),
        (["a", "b]"], ["a", "b]"]),
        (["a", 5], ["a", bucket_text(5)]),
        ({"value": "a}", "times": 2}, ["a}"]),
        ({"times": 2, "value": "a"}, ["a"]),
        ({"times": 2}, []),
        ("ü\n", ["ü\n"]),
    ],
)
def test_values_are_shown_as_they_were_sent(value: Any, shown: list[str]) -> None:
    found = finder().found_in(body({"device": value}))
    assert [name.value for name in found.values()] == shown


def test_a_number_that_stays_one_has_no_slices() -> None:
    assert finder(HashContract(numeric="raw")).found_in(body({"device": 1, "größe": 2.5})) == {}
    assert len(finder(HashContract(types={"device": "category"})).found_in(body({"device": 7}))) == 1


def test_logged_names_are_not_found_again() -> None:
    known = finder()
    first = known.found_in(body({"device": "phone"}))
    assert known.found_in(body({"device": "phone"})) == first
    known.mark_logged(first)
    assert known.found_in(body({"device": "phone"})) == {}
    assert len(known.found_in(body({"device": ["phone", "tablet"]}))) == 1


def test_without_sliced_features_nothing_is_looked_for() -> None:
    assert finder(slices=()).found_in(b"not even JSON") == {}


def test_long_values_are_cut_between_characters_or_shown_with_a_mark() -> None:
    packed = pack_names({1: SliceName(2, "x" * 1000)})
    assert packed == b"\1\0\0\0" + bytes([MAX_TEXT_BYTES + 1, 2]) + b"x" * MAX_TEXT_BYTES
