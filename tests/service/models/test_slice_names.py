"""Values of sliced features: finding them in requests, and packing them for the log."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract
from model_core.hashing.encoder import FeatureEncoder
from model_core.hashing.feature_text import bucket_text
from service.models.config.sections import EvaluationConfig
from service.models.evaluation.slice_report import slices_in_pieces
from service.models.evaluation.slices import (
    MAX_TEXT_BYTES,
    MAX_VALUES_PER_FEATURE,
    SliceFinder,
    SliceName,
    pack_names,
    unpack_names,
)
from service.models.evaluation.state import Evaluations

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
    for sent in (["phone"] * 1000, ["phone", "tablet"]):  # long lists are not remembered, their values are
        for _ in range(2):
            found = known.found_in(body({"device": sent}))
            assert [name.value for name in found.values()] == sorted({*sent} - {"phone"})


@pytest.mark.parametrize("name", ["device", 'odd "name"\\', "größe", "a/b", "😀 x"])
def test_a_name_is_found_however_it_is_spelled(name: str) -> None:
    units = name.encode("utf-16-be").hex()
    escaped = "".join(f"\\u{units[k : k + 4]}" for k in range(0, len(units), 4))
    for spelled in (escaped, escaped.upper().replace("U", "u"), json.dumps(name)[1:-1].replace("/", "\\/")):
        for text in ('{"features":{"%s" : "x\\n"}}', '{"features": [["b", "\\\\"], ["%s","x\\n"]]}'):
            assert json.loads(f'"{spelled}"') == name
            found = finder(slices=("other", name)).found_in((text % spelled).encode())
            assert list(found.values()) == [SliceName(1, "x\n")]
    other = json.dumps({"features": {f"{name}x": "x", "\\": "x"}}).encode()
    assert finder(slices=(name,)).found_in(other) == {}


def test_more_values_than_can_have_slices_are_not_looked_for() -> None:
    sent = {f"{k}": {"device": [f"v{k}_{j}" for j in range(1000)], "größe": f"g{k}"} for k in range(10)}
    found = list(finder().found_in(json.dumps(sent).encode()).values())
    assert [name.value for name in found if name.feature == 2] == [f"g{k}" for k in range(10)]
    devices = [name.value for name in found if name.feature == 0]
    assert (
        devices[:MAX_VALUES_PER_FEATURE]
        == [f"v{k}_{j}" for k in range(10) for j in range(1000)][:MAX_VALUES_PER_FEATURE]
    )
    assert len(devices) < MAX_VALUES_PER_FEATURE + 1000


def test_without_sliced_features_nothing_is_looked_for() -> None:
    assert finder(slices=()).found_in(b"not even JSON") == {}


def test_long_values_are_cut_between_characters_and_marked() -> None:
    packed = pack_names({1: SliceName(2, "x" * 1000)})
    text = ("x" * (MAX_TEXT_BYTES - 3) + "…").encode()
    assert packed == b"\1\0\0\0" + bytes([MAX_TEXT_BYTES + 1, 2]) + text
    [name] = as_stored({1: SliceName(2, "ü" * 100)}).values()
    assert name == SliceName(2, "ü" * 30 + "…")
    whole = SliceName(2, "x" * (MAX_TEXT_BYTES - 1))
    assert as_stored({1: whole}) == {1: whole}
    assert (name.may_be_cut, whole.may_be_cut) == (True, False)


def test_values_whose_texts_begin_alike_have_lines_of_their_own() -> None:
    texts = ["x" * 70 + "1", "x" * 70 + "2", "other", '"other"', "#00000001", "short"]
    examples = report_of_values(as_stored({h: SliceName(0, text) for h, text in enumerate(texts, 1)}))
    cut = "x" * 61 + "…"
    assert examples.pop("other") == 7
    assert examples == {
        f"{cut}#00000001": 1,
        f"{cut}#00000002": 2,
        '"other"': 3,
        '"other"#00000004': 4,
        "#00000001": 5,
        "short": 6,
    }


def test_texts_that_were_stored_without_a_mark_have_lines_of_their_own() -> None:
    old = b"\0" + b"x" * 64
    names = unpack_names([(struct.pack("<I", h), old) for h in (1, 2)])
    examples = report_of_values(names)
    assert examples == {"other": 3, f"{'x' * 64}#00000001": 1, f"{'x' * 64}#00000002": 2}


def as_stored(names: dict[int, SliceName]) -> dict[int, SliceName]:
    """The names as the service reads them again from the hash that the script fills."""
    packed, fields = pack_names(names), []
    while packed:
        stop = 5 + packed[4]
        fields.append((packed[:4], packed[5:stop]))
        packed = packed[stop:]
    return unpack_names(fields)


def report_of_values(names: dict[int, SliceName]) -> dict[str, int]:
    """The examples of each line, after one of the first value, two of the second, and so on."""
    evaluations = Evaluations(EvaluationConfig(slices=("device",)))
    evaluations.know(names)
    hashes = [[h] for h in names for _ in range(h)] + [[99]] * (len(names) + 1)
    batch = ExampleBatch.from_encoded([(h, None) for h in hashes])
    evaluations.add(np.zeros(len(batch)), batch, 1_700_000_000_000)
    *_, report = slices_in_pieces(evaluations, 1, lambda *_: None)
    assert report is not None
    lines = json.loads(report.whole)["device"]
    assert report.names == {("device", line) for line in lines}
    return {line: windows["all"]["examples"] for line, windows in lines.items()}
