import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.errors import InvalidInput
from model_core.hashing.contract import HashContract

NAMES = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="="), min_size=1, max_size=20
)
TRANSFORMS = st.one_of(
    st.sampled_from(["bucket", "log", "raw"]),
    st.fixed_dictionaries({"scale": st.floats(-1e6, 1e6)}),
)


@st.composite
def contract_objects(draw: st.DrawFn) -> dict[str, Any]:
    types = draw(st.dictionaries(NAMES, st.sampled_from(["category", "number"]), max_size=4))
    numbers = [name for name, kind in types.items() if kind == "number"]
    transforms = {name: draw(TRANSFORMS) for name in numbers}
    crosses = draw(st.lists(st.lists(NAMES, min_size=2, max_size=3, unique=True), max_size=3))
    return {
        "seed": draw(st.integers(0, 2**32 - 1)),
        "bits": draw(st.integers(10, 28)),
        "types": types,
        "numeric": draw(TRANSFORMS),
        "transforms": transforms,
        "crosses": list({"^".join(cross): cross for cross in crosses}.values()),
        "bias": draw(st.booleans()),
        "missing": draw(st.sampled_from(["ignore", "indicator"])),
        "strict": draw(st.booleans()),
        "prior_probability": draw(st.sampled_from([None, "from_log"]) | st.floats(1e-9, 0.999)),
    }


@given(contract_objects())
def test_a_contract_survives_json(obj: dict[str, Any]) -> None:
    contract = HashContract.from_json(obj)
    again = HashContract.from_json(json.loads(json.dumps(contract.to_json())))
    assert again == contract
    assert again.to_json() == contract.to_json()
    assert again.fingerprint == contract.fingerprint


def test_an_empty_object_is_the_default_contract() -> None:
    assert HashContract.from_json({}) == HashContract()
    assert HashContract().size == 2**22


def test_the_fingerprint_of_the_default_contract_never_changes() -> None:
    assert HashContract().fingerprint == "5b275110939b0e2b"


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"bits": 21},
        {"types": {"a": "category"}},
        {"numeric": "raw"},
        {"numeric": {"scale": 2}},
        {"transforms": {"a": "log"}},
        {"crosses": [["a", "b"]]},
        {"bias": False},
        {"missing": "indicator"},
    ],
)
def test_whatever_decides_hashes_changes_the_fingerprint(change: dict[str, Any]) -> None:
    fingerprint = HashContract.from_json(change).fingerprint
    assert fingerprint != HashContract().fingerprint
    assert len(fingerprint) == 16
    assert int(fingerprint, 16) >= 0


def test_strictness_and_prior_leave_the_fingerprint_alone() -> None:
    assert HashContract(strict=True, prior_probability=0.002).fingerprint == HashContract().fingerprint


def test_the_fingerprint_ignores_order_and_number_format() -> None:
    one = HashContract.from_json({"types": {"a": "number", "b": "category"}, "numeric": {"scale": 1}})
    other = HashContract.from_json({"types": {"b": "category", "a": "number"}, "numeric": {"scale": 1.0}})
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize(
    ("obj", "path", "says"),
    [
        ([], (), "object"),
        (None, (), "object"),
        ({"bit": 3}, ("bit",), "unknown"),
        ({"seed": -1}, ("seed",), "4294967295"),
        ({"seed": 2**32}, ("seed",), "4294967295"),
        ({"seed": True}, ("seed",), "integer"),
        ({"seed": 1.0}, ("seed",), "integer"),
        ({"bits": 9}, ("bits",), "10 to 28"),
        ({"bits": 29}, ("bits",), "10 to 28"),
        ({"bits": "22"}, ("bits",), "10 to 28"),
        ({"bias": 1}, ("bias",), "true or false"),
        ({"strict": "yes"}, ("strict",), "true or false"),
        ({"missing": None}, ("missing",), "indicator"),
        ({"missing": ["ignore"]}, ("missing",), "indicator"),
        ({"types": []}, ("types",), "object"),
        ({"types": {"a": "text"}}, ("types", "a"), "category"),
        ({"types": {"a": ["category"]}}, ("types", "a"), "category"),
        ({"types": {"": "number"}}, ("types", ""), "name"),
        ({"types": {"a=b": "number"}}, ("types", "a=b"), "'='"),
        ({"numeric": "square"}, ("numeric",), "bucket"),
        ({"numeric": None}, ("numeric",), "bucket"),
        ({"numeric": {"scale": 1, "shift": 2}}, ("numeric",), "bucket"),
        ({"numeric": {"scale": "1"}}, ("numeric", "scale"), "number"),
        ({"numeric": {"scale": True}}, ("numeric", "scale"), "number"),
        ({"numeric": {"scale": math.nan}}, ("numeric", "scale"), "1e+06"),
        ({"numeric": {"scale": math.inf}}, ("numeric", "scale"), "1e+06"),
        ({"numeric": {"scale": 10**400}}, ("numeric", "scale"), "1e+06"),
        ({"transforms": "raw"}, ("transforms",), "object"),
        ({"transforms": {"a": "cube"}}, ("transforms", "a"), "bucket"),
        ({"transforms": {"a\n": "raw"}}, ("transforms", "a\n"), "control"),
        ({"types": {"a": "category"}, "transforms": {"a": "raw"}}, ("transforms", "a"), "category"),
        ({"crosses": "ab"}, ("crosses",), "list"),
        ({"crosses": ["ab"]}, ("crosses", 0), "list"),
        ({"crosses": [["a"]]}, ("crosses", 0), "two"),
        ({"crosses": [[]]}, ("crosses", 0), "two"),
        ({"crosses": [["a", "b"], ["a", "a"]]}, ("crosses", 1), "once"),
        ({"crosses": [["a", 1]]}, ("crosses", 0, 1), "string"),
        ({"crosses": [["a", ["b"]]]}, ("crosses", 0, 1), "string"),
        ({"crosses": [["a", "b"], ["a", "b"]]}, ("crosses", 1), "already"),
        ({"crosses": [["a^b", "c"], ["a", "b^c"]]}, ("crosses", 1), "already"),
        ({"prior_probability": 0.0}, ("prior_probability",), "above 0"),
        ({"prior_probability": 1.0}, ("prior_probability",), "below 1"),
        ({"prior_probability": math.nan}, ("prior_probability",), "number"),
        ({"prior_probability": "0.5"}, ("prior_probability",), "number"),
        ({"prior_probability": ["from_log"]}, ("prior_probability",), '"from_log"'),
    ],
)
def test_a_wrong_contract_is_refused_where_it_is_wrong(
    obj: object, path: tuple[str | int, ...], says: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        HashContract.from_json(obj)
    assert caught.value.path == path
    assert says in caught.value.detail


@given(st.one_of(st.floats(1e-12, 0.999999), st.just(1e-300 * 1.0001)))
def test_the_prior_offset_is_the_logit_and_zero_without_a_prior(p: float) -> None:
    offset = HashContract(prior_probability=p).prior_offset
    assert math.isclose(offset, math.log(p) - math.log1p(-p), rel_tol=1e-12, abs_tol=1e-12)
    assert HashContract(prior_probability=None).prior_offset == 0.0
    assert HashContract().prior_offset == 0.0
