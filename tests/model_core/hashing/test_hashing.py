import math
from typing import Any

import mmh3
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model_core.errors import InvalidInput
from model_core.hashing.contract import LARGEST_NUMBER, HashContract
from model_core.hashing.encoder import Encoded, FeatureEncoder, Limits
from model_core.hashing.feature_text import bucket_text, decimal_text, signed_log1p

NAMES = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="="), min_size=1, max_size=20
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.one_of(TEXTS, st.booleans(), st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6), st.none())
LIMITS = Limits()
FEATURES = st.dictionaries(NAMES, SCALARS | st.lists(TEXTS, max_size=4), max_size=12)


def h(text: str, seed: int = 0) -> int:
    return mmh3.hash(text, seed, signed=False)


def encoder(**contract: Any) -> FeatureEncoder:
    return FeatureEncoder(HashContract.from_json(contract))


def encode(features: Any, **contract: Any) -> Encoded:
    return encoder(**contract).encode(features)


def refusal(features: Any, limits: Limits = LIMITS, **contract: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        FeatureEncoder(HashContract.from_json(contract), limits).encode(features)
    return caught.value


def test_hashes_are_those_of_murmur3_and_never_change() -> None:
    features = {"C1": "68fd1e64", "site": "\u00e9\u4e16\U0001f600", "on": True, "off": False, "age": 0.3}
    encoded = encode(features, numeric="raw")
    assert encoded.hashes == [27046445, 2144428843, 2850730646, 1297814440, 717653329]
    assert encoded.values == [1.0, 1.0, 1.0, 1.0, 0.3]


def test_text_is_the_category_name_equals_text() -> None:
    assert encode({"site": "a.com", "empty": "", "x": "a=b"}) == (
        [h("site=a.com"), h("empty="), h("x=a=b")],
        None,
    )


def test_booleans_are_the_categories_true_and_false() -> None:
    assert encode({"a": True, "b": False}) == ([h("a=true"), h("b=false")], None)


def test_a_list_of_strings_is_several_categories() -> None:
    assert encode({"tag": ["x", "y", "x"], "none": []}) == ([h("tag=x"), h("tag=y"), h("tag=x")], None)


def test_null_is_nothing_or_an_indicator() -> None:
    assert encode({"a": None, "b": "x"}) == ([h("b=x")], None)
    assert encode({"a": None}, missing="indicator") == ([h("a=")], None)


def test_no_features_are_fine() -> None:
    assert encode({}) == ([], None)


def test_the_seed_enters_every_hash() -> None:
    encoded = encode({"a": "x", "b": 3, "c": True}, seed=7, numeric="raw")
    assert encoded == ([h("a=x", 7), h("b", 7), h("c=true", 7)], [1.0, 3.0, 1.0])


def test_a_raw_number_is_the_value_of_the_feature_of_its_name() -> None:
    assert encode({"age": 0.3, "n": 1, "m": -2}, numeric="raw") == (
        [h("age"), h("n"), h("m")],
        [0.3, 1.0, -2.0],
    )
    assert encode({"n": 1, "m": 1.0}, numeric="raw") == ([h("n"), h("m")], None)


def test_a_scaled_number_is_multiplied() -> None:
    assert encode({"age": 30}, numeric={"scale": 0.01}) == ([h("age")], [30 * 0.01])
    assert encode({"age": 30}, numeric={"scale": 0}) == ([h("age")], [0.0])
    refused = refusal({"age": 30}, numeric={"scale": 1e5})
    assert refused.path == ("features", "age")
    assert "1e+06" in refused.detail


def test_log_keeps_the_sign() -> None:
    encoded = encode({"a": 9, "b": -9.0, "c": 0}, numeric="log")
    assert encoded.hashes == [h("a"), h("b"), h("c")]
    assert encoded.values is not None
    assert encoded.values == pytest.approx([math.log(10), -math.log(10), 0.0], rel=1e-15)
    assert encoded.values[0] == -encoded.values[1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0, "0"),
        (-0.0, "0"),
        (5e-324, "+0"),
        (-0.5, "-0"),
        (0.9999999999999999, "+0"),
        (1, "+1"),
        (2, "+1"),
        (2.999999999999999, "+1"),
        (3, "+2"),
        (-3, "-2"),
        (7, "+3"),
        (6.999, "+2"),
        (1e6, "+19"),
        (-(2**19 - 1), "-19"),
        (2**19 - 2, "+18"),
    ],
)
def test_a_bucket_is_the_sign_and_the_binary_magnitude(value: float, text: str) -> None:
    assert bucket_text(value) == text
    assert encode({"n": value}) == ([h(f"n={text}")], None)


@given(st.integers(-(10**6), 10**6))
def test_bucket_bounds_are_exact(n: int) -> None:
    sign = "" if n == 0 else "+" if n > 0 else "-"
    magnitude = (abs(n) + 1).bit_length() - 1
    assert bucket_text(n) == bucket_text(float(n)) == f"{sign}{magnitude}"


@given(st.floats(-1e6, 1e6))
def test_the_log_transform_is_odd_and_close_to_log1p(v: float) -> None:
    assert signed_log1p(-v) == -signed_log1p(v)
    assert math.isclose(signed_log1p(v), math.copysign(math.log1p(abs(v)), v), rel_tol=1e-15)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (-2.50, "-2.5"),
        (12345678901234567890, "12345678901234567890"),
        (2.0**53, "9007199254740992.0"),
        (2.0**53 - 1, "9007199254740991"),
        (1e22, "1e+22"),
        (5e-324, "5e-324"),
        (2**255, str(2**255)),
    ],
)
def test_a_number_declared_a_category_is_its_shortest_decimal(value: float, text: str) -> None:
    assert encode({"id": value}, types={"id": "category"}) == ([h(f"id={text}")], None)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_decimal_text_of_a_number_reads_back_as_the_number(v: float) -> None:
    assert float(decimal_text(v, ())) == v


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(2**300)])
def test_infinite_and_absurdly_long_numbers_make_no_category(value: float) -> None:
    assert refusal({"id": value}, types={"id": "category"}).path == ("features", "id")


@given(st.integers(-(2**200), 2**200))
def test_an_integer_is_in_the_bucket_of_its_float(n: int) -> None:
    assert encode({"n": n}) == encode({"n": float(n)})


@pytest.mark.parametrize(("value", "text"), [(1e7, "+23"), (-1e300, "-996"), (LARGEST_NUMBER, "+1023")])
def test_numbers_that_become_buckets_have_no_bound(value: float, text: str) -> None:
    assert encode({"n": value, "l": [value]}).hashes == [h(f"n={text}"), h(f"l={text}")]
    assert encode({"n": {"value": value, "times": 2}}) == ([h(f"n={text}")], [2.0])
    crossed = encode({"n": value, "a": "x"}, crosses=[["n", "a"]]).hashes
    assert crossed[-1] == h(f"n^a={text}\x1fx")
    assert encode({"n": value}, numeric="raw", transforms={"n": "bucket"}).hashes == [h(f"n={text}")]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400), 2**1024 - 1])
def test_only_finite_numbers_become_buckets(value: float) -> None:
    refused = refusal({"n": value})
    assert refused.path == ("features", "n")
    assert "1.79769e+308" in refused.detail or "NaN" in refused.detail


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 1000001, -1e6 - 1e-9, 1e300, 10**400, -(10**400)]
)
@pytest.mark.parametrize("numeric", ["log", "raw", {"scale": 0.0}])
def test_numbers_out_of_bounds_are_refused_with_the_bound(value: float, numeric: Any) -> None:
    refused = refusal({"n": value}, numeric=numeric)
    assert refused.path == ("features", "n")
    assert "1e+06" in refused.detail or "NaN" in refused.detail


def test_a_transform_of_a_name_overrides_the_default() -> None:
    encoded = encode({"a": 3, "b": 3}, transforms={"a": "raw"})
    assert encoded == ([h("a"), h("b=+2")], [3.0, 1.0])


def test_text_where_a_number_is_declared_is_refused() -> None:
    for value in ("3", "NaN", True, ["3"]):
        refused = refusal({"n": value}, types={"n": "number"})
        assert refused.path == ("features", "n")
        assert "write 0.5 in JSON, name:0.5 in Vowpal Wabbit" in refused.detail


def test_a_strict_contract_refuses_undeclared_numbers_only() -> None:
    types = {"a": "number", "b": "category"}
    assert encode({"a": 1, "b": 1, "c": "x"}, types=types, strict=True).hashes == [
        h("a=+1"),
        h("b=1"),
        h("c=x"),
    ]
    refused = refusal({"c": 1}, types=types, strict=True)
    assert refused.path == ("features", "c")
    assert "declare" in refused.detail


@pytest.mark.parametrize(
    "name", ["", "a=b", "=", "a\tb", "a\x00", "\x7f", "a\x85", "x" * 257, "\u00e9" * 129, "a\ud800"]
)
@pytest.mark.parametrize("value", ["x", 1, True, None, ["x"]])
def test_names_that_cannot_be_are_refused(name: str, value: Any) -> None:
    refused = refusal({name: value})
    assert refused.path[0] == "features"
    assert "name" in refused.detail
    str(refused).encode()


def test_names_of_256_bytes_and_of_any_script_are_fine() -> None:
    names = ["x" * 256, "\u00e9" * 128, "\u0394 age (\u00b0C)", "a^b"]
    assert encode(dict.fromkeys(names, "v")) == ([h(f"{name}=v") for name in names], None)


@pytest.mark.parametrize("features", [{"a": "\ud800"}, {"a": ["x", "\udfff"]}])
def test_lone_surrogates_in_values_are_refused(features: dict[str, Any]) -> None:
    refused = refusal(features)
    assert refused.path == ("features", "a")
    assert "surrogates" in refused.detail


@pytest.mark.parametrize("value", [("x",), b"x", object()])
def test_other_types_are_refused_with_what_is_allowed(value: object) -> None:
    refused = refusal({"a": value})
    assert refused.path == ("features", "a")
    assert "list of strings" in refused.detail


@pytest.mark.parametrize("item", [None, True, ["x"], {"times": 1}])
def test_a_list_of_anything_but_strings_and_numbers_is_refused_at_its_item(item: object) -> None:
    assert refusal({"a": ["x", item]}).path == ("features", "a", 1)


@pytest.mark.parametrize("numeric", ["bucket", "raw", "log", {"scale": 2.0}])
def test_a_list_encodes_as_its_items_one_by_one(numeric: Any) -> None:
    contract = HashContract(numeric=numeric, crosses=(("a", "b"),))
    items = [3, "x", 2.5, "x", 3]
    one_by_one = FeatureEncoder(contract).encode([*(["a", item] for item in items), ["b", "y"]])
    assert FeatureEncoder(contract).encode({"a": items, "b": "y"}) == one_by_one
    assert len(one_by_one.hashes) == 11


def test_an_object_multiplies_the_value_of_its_feature() -> None:
    features = {"C1": {"value": "x", "times": 2}, "age": {"value": 3, "times": 0.5}, "rare": {"times": 4}}
    assert encode(features, numeric="raw") == ([h("C1=x"), h("age"), h("rare")], [2.0, 1.5, 4.0])
    assert encode(features) == ([h("C1=x"), h("age=+2"), h("rare")], [2.0, 0.5, 4.0])
    assert encode({"rare": {"times": 1}}) == ([h("rare")], None)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"x": 1},
        {"value": "x"},
        {"times": "2"},
        {"times": True},
        {"value": None, "times": 1},
        {"value": [1], "times": 1},
        {"value": "x", "times": 1, "by": 2},
    ],
)
def test_other_objects_are_refused_with_the_form_that_is_read(value: object) -> None:
    refused = refusal({"a": value})
    assert (refused.path, refused.code) == (("features", "a"), "wrong_type")
    assert '{"value": string or number, "times": number}' in refused.detail


def test_pairs_may_repeat_a_name_and_keep_their_order() -> None:
    pairs = [["a", "x"], ["b", 3], ["a", "y"], ["b", 3]]
    assert encode(pairs, numeric="raw") == ([h("a=x"), h("b"), h("a=y"), h("b")], [1.0, 3.0, 1.0, 3.0])


@pytest.mark.parametrize(
    ("pair", "path"),
    [("ab", (0,)), (["a"], (0,)), (["a", 1, 2], (0,)), ([1, "a"], (0, 0)), (["a", None, None], (0,))],
)
def test_anything_but_a_pair_of_name_and_value_is_refused(pair: object, path: tuple[int, ...]) -> None:
    assert refusal([pair]).path == ("features", *path)


def test_pairs_share_no_name_with_the_context() -> None:
    with pytest.raises(InvalidInput) as caught:
        encoder().encode_instances([["a", "x"], ["a", "y"]], [[["b", "y"]], [["a", "z"]]])
    assert caught.value.path == ("instances", 1, "features", "a")


def test_a_cross_is_the_category_of_both_values() -> None:
    encoded = encode({"site": "s1", "ad": "x"}, crosses=[["ad", "site"]])
    assert encoded == ([h("site=s1"), h("ad=x"), h("ad^site=x\x1fs1")], None)


def test_lists_multiply_out_in_crosses() -> None:
    encoded = encode({"a": ["1", "2"], "b": ["x", "y"], "c": True}, crosses=[["a", "b", "c"]])
    crossed = [h(f"a^b^c={a}\x1f{b}\x1ftrue") for a in "12" for b in "xy"]
    assert encoded.hashes[5:] == crossed


@pytest.mark.parametrize(
    ("numeric", "text"), [("bucket", "+3"), ("raw", "7.5"), ("log", "7.5"), ({"scale": 2.0}, "7.5")]
)
def test_a_number_is_crossed_by_its_bucket_or_decimal_text(numeric: Any, text: str) -> None:
    encoded = encode({"n": 7.5, "b": "x"}, numeric=numeric, crosses=[["n", "b"]])
    assert encoded.hashes[2:] == [h(f"n^b={text}\x1fx")]


def test_a_number_declared_a_category_takes_part_by_its_text() -> None:
    encoded = encode({"n": 7.0, "b": "x"}, types={"n": "category"}, crosses=[["n", "b"]])
    assert encoded.hashes == [h("n=7"), h("b=x"), h("n^b=7\x1fx")]


def test_a_missing_member_makes_no_cross() -> None:
    crosses = [["a", "b"]]
    assert encode({"a": "x"}, crosses=crosses) == ([h("a=x")], None)
    assert encode({"a": "x", "b": None}, crosses=crosses) == ([h("a=x")], None)
    assert encode({"a": "x", "b": []}, crosses=crosses) == ([h("a=x")], None)


def test_with_an_indicator_null_is_crossed_as_empty_text() -> None:
    crosses = [["a", "b"]]
    encoded = encode({"a": "x", "b": None}, crosses=crosses, missing="indicator")
    assert encoded == ([h("a=x"), h("b="), h("a^b=x\x1f")], None)
    assert encode({"a": "x"}, crosses=crosses, missing="indicator") == ([h("a=x")], None)


@given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS))
@example(("x\x1f", "y"), ("x", "\x1fy"))
@example(("x\\", "\x1fy"), ("x\\\x1f", "y"))
def test_different_values_never_make_the_same_cross(one: tuple[str, str], other: tuple[str, str]) -> None:
    def cross(pair: tuple[str, str]) -> int:
        encoded = encode({"a": pair[0], "b": pair[1]}, crosses=[["a", "b"]])
        return encoded.hashes[2]

    assert (cross(one) == cross(other)) == (one == other)


def test_a_cross_escapes_separators_with_a_backslash() -> None:
    encoded = encode({"a": "x\x1fy\\", "b": "z"}, crosses=[["a", "b"]])
    assert encoded.hashes[2] == h("a^b=x\\\x1fy\\\\\x1fz")


def test_the_limit_of_features_counts_lists_and_crosses() -> None:
    full = {f"f{i}": "x" for i in range(1024)}
    assert len(encode(full).hashes) == 1024
    assert "1024" in refusal({**full, "more": "x"}).detail
    assert "1024" in refusal({"a": ["x"] * 1025}).detail
    crosses = [["a", "b"]]
    assert len(encode({"a": ["x"] * 30, "b": ["y"] * 30}, crosses=crosses).hashes) == 960
    assert "1024" in refusal({"a": ["x"] * 32, "b": ["y"] * 32}, crosses=crosses).detail
    assert "at most 2" in refusal({"a": "x", "b": "y", "c": "z"}, Limits(features_per_example=2)).detail


def test_absurd_crosses_are_refused_before_they_are_made() -> None:
    names = [f"n{i}" for i in range(10)]
    assert "1024" in refusal({name: ["x"] * 100 for name in names}, crosses=[names]).detail


def test_limits_are_settings() -> None:
    limits = Limits(name_bytes=3, value_magnitude=10.0)
    assert "3 bytes" in refusal({"abcd": "x"}, limits).detail
    assert "10" in refusal({"abc": 11}, limits, numeric="raw").detail


def test_names_seen_as_text_and_as_number_are_noted() -> None:
    mixing = encoder(types={"id": "category"})
    mixing.encode({"a": "x", "b": 1, "id": 1})
    assert mixing.mixed_names == set()
    mixing.encode({"a": 1, "b": 2, "id": "1"})
    assert mixing.mixed_names == {"a"}
    mixing.encode({"b": True})
    assert mixing.mixed_names == {"a", "b"}


def test_declared_names_that_no_example_has_are_noted() -> None:
    declaring = encoder(types={"id": "category", "I1-I13": "number"}, crosses=(("a", "b"), ("a", "c")))
    assert declaring.unmet_names == {"id", "I1-I13", "a", "b", "c"}
    declaring.encode({"a": "x", "id": 7})
    declaring.encode_instances({"b": None}, [{"other": "y"}, {}])
    assert declaring.unmet_names == {"I1-I13", "c"}
    assert declaring.encoded == 3


def test_what_an_encoder_remembers_is_bounded() -> None:
    flooded = encoder(numeric="raw")
    for i in range(40):
        flooded.encode({f"n{i}.{j}": j for j in range(1000)})
        flooded.encode({f"n{i}.{j}": "x" for j in range(1000)})
    assert len(flooded.mixed_names) == 1000
    assert len(flooded._prefixes) <= 8192
    assert len(flooded._number_rules) <= 8192
    assert flooded.encode({"n0.0": "x", "n0.1": 2}) == ([h("n0.0=x"), h("n0.1")], [1.0, 2.0])


def test_the_order_is_context_instance_crosses() -> None:
    ranking = encoder(crosses=[["user", "ad"]], numeric="raw")
    encoded = ranking.encode_instances({"user": "u", "age": 3}, [{"ad": "x"}, {"ad": "y", "bid": 2.0}, {}])
    assert encoded == [
        ([h("user=u"), h("age"), h("ad=x"), h("user^ad=u\x1fx")], [1.0, 3.0, 1.0, 1.0]),
        ([h("user=u"), h("age"), h("ad=y"), h("bid"), h("user^ad=u\x1fy")], [1.0, 3.0, 1.0, 2.0, 1.0]),
        ([h("user=u"), h("age")], [1.0, 3.0]),
    ]


@given(FEATURES, st.lists(FEATURES, max_size=3))
def test_context_and_instance_encode_as_one_example(
    context: dict[str, Any], instances: list[dict[str, Any]]
) -> None:
    instances = [{name: v for name, v in features.items() if name not in context} for features in instances]
    names = [*context, *(name for features in instances for name in features)]
    crosses = [list(dict.fromkeys(names))[:2]] if len(set(names)) >= 2 else []
    for numeric in ("bucket", "raw"):
        apart = encoder(crosses=crosses, numeric=numeric).encode_instances(context, instances)
        together = [
            encode({**context, **features}, crosses=crosses, numeric=numeric) for features in instances
        ]
        assert apart == together


def test_a_name_in_context_and_instance_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        encoder().encode_instances({"a": "x"}, [{"b": "y"}, {"b": "y", "a": "z"}])
    assert caught.value.path == ("instances", 1, "features", "a")


def test_errors_in_context_and_instances_name_their_place() -> None:
    with pytest.raises(InvalidInput) as caught:
        encoder().encode_instances({"a": [None]}, [])
    assert caught.value.path == ("context", "a", 0)
    with pytest.raises(InvalidInput) as caught:
        encoder().encode_instances({}, [{}, {"n": math.nan}])
    assert caught.value.path == ("instances", 1, "features", "n")


@given(FEATURES)
def test_encoding_is_repeatable_and_pairs_equal_a_dict(features: dict[str, Any]) -> None:
    twice = encoder(numeric="log", missing="indicator")
    first = twice.encode(features)
    assert twice.encode(features) == first
    assert twice.encode_pairs(list(features.items())) == first
    assert all(0 <= value < 2**32 for value in first.hashes)
    assert first.values is None or len(first.values) == len(first.hashes)
