"""Vowpal Wabbit and libsvm text: the rules one by one, and the kernels against the line-by-line way."""

import json
from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from model_core.errors import InvalidInput
from model_core.hashing.columns import is_plain
from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import FeatureEncoder
from model_core.text.lines import features_of, read_libsvm_line, read_vw_line
from model_core.text.parser import (
    Parsed,
    TextParser,
    libsvm_parser,
    parse_libsvm,
    parse_vw,
    vw_parser,
)
from model_core.text.problems import LineProblem, TextOptions

RAW = HashContract(numeric="raw")
OPTIONS = TextOptions()


def h(text: str, seed: int = 0) -> int:
    return mmh3.hash(text, seed, signed=False)


def rows(parsed: Parsed) -> list[tuple[list[int], list[float], float, float]]:
    """hashes, values, label and weight of each example."""
    batch = parsed.batch
    values = batch.values if batch.values.size else np.ones(batch.hashes.size)
    weights = batch.weights if batch.weights.size else np.ones(len(batch))
    bounds = batch.row_ptr.tolist()
    return [
        (batch.hashes[a:b].tolist(), values[a:b].tolist(), float(label), float(weight))
        for a, b, label, weight in zip(bounds, bounds[1:], batch.labels, weights, strict=False)
    ]


def vw(text: str | bytes, contract: HashContract = RAW, options: TextOptions = OPTIONS) -> Any:
    """The rows of lines that are all good."""
    parsed = parse_vw(text if isinstance(text, bytes) else text.encode(), contract, options)
    assert parsed.errors == []
    return rows(parsed)


def reason(line: str | bytes, options: TextOptions = OPTIONS, contract: HashContract = RAW) -> str:
    """The reason for which the second of three lines is left out."""
    data = line if isinstance(line, bytes) else line.encode()
    parsed = parse_vw(b"1 |f a\n" + data + b"\n-1 |f b\n", contract, options)
    assert rows(parsed) == [([h("a")], [1.0], 1, 1.0), ([h("b")], [1.0], 0, 1.0)]
    assert [error.line_number for error in parsed.errors] == [2]
    return parsed.errors[0].reason


def test_the_documented_line_gives_the_features_of_its_json() -> None:
    encoded = FeatureEncoder(RAW).encode({"age": 0.3, "C1": "68fd1e64"})
    assert vw("1 0.5 'tag |f age:0.3 C1=68fd1e64\n") == [(encoded.hashes, encoded.values, 1, 0.5)]


def test_words_are_categories_bare_features_or_numbers() -> None:
    assert vw("1 | C1=a rare age:2.5 C1=b:3 x==y\n") == [
        ([h("C1=a"), h("rare"), h("age"), h("C1=b"), h("x==y")], [1.0, 1.0, 2.5, 3.0, 1.0], 1, 1.0)
    ]


def test_values_begin_with_the_first_that_is_not_1() -> None:
    parsed = parse_vw(b"1 | a b:1 c:1.0\n-1 | d\n", RAW)
    assert parsed.batch.values.size == 0
    assert vw("1 | a b\n-1 | c d:2\n1 | e f\n")[2] == ([h("e"), h("f")], [1.0, 1.0], 1, 1.0)


@pytest.mark.parametrize(
    ("labels", "word", "label"),
    [
        ("minus_plus", "1", 1),
        ("minus_plus", "-1", 0),
        ("minus_plus", "+1.0", 1),
        ("minus_plus", "-1e0", 0),
        ("zero_one", "1", 1),
        ("zero_one", "0", 0),
        ("zero_one", "-0.0", 0),
        ("zero_one", "10e-1", 1),
        ("zero_one", "0.25", 0.25),
        ("zero_one", "1e-3", 0.001),
        ("zero_one", "0.1000000000000000055511151231257827", 0.1),
        ("zero_one", "1.00000000000000000000000", 1),
    ],
)
def test_labels_are_read_by_the_option(labels: Any, word: str, label: float) -> None:
    assert vw(f"{word} | a\n", options=TextOptions(labels=labels)) == [([h("a")], [1.0], label, 1.0)]


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        ("minus_plus", "0"),
        ("zero_one", "-1"),
        ("zero_one", "2"),
        ("zero_one", "1.2"),
        ("zero_one", "-0.1"),
        ("zero_one", "nan"),
        ("minus_plus", "0.5"),
        ("minus_plus", "yes"),
        ("minus_plus", "nan"),
    ],
)
def test_any_other_label_is_an_error_that_names_the_labels(labels: Any, word: str) -> None:
    parsed = parse_vw(f"{word} | a\n".encode(), RAW, TextOptions(labels=labels))
    assert len(parsed.batch) == 0
    assert word in parsed.errors[0].reason
    assert ("-1" if labels == "minus_plus" else "from 0 to 1") in parsed.errors[0].reason


def test_weights_are_bounded() -> None:
    assert [row[3] for row in vw("1 2 | a\n-1 | a\n1 0 | a\n1 1e6 |\n")] == [2.0, 1.0, 0.0, 1e6]
    for weight in ("-1", "1000001", "inf", "nan", "1e999", "two", "-1e-300"):
        assert weight in reason(f"1 {weight} | a")


def test_tags_begin_with_a_quote_or_touch_the_bar() -> None:
    for header in ("1 'tag ", "1 'tag", "1 tag", "1 1 'a:b ", "1\t'tag\t", "1 1 tag", "  1  "):
        assert vw(f"{header}|f a\n") == [([h("a")], [1.0], 1, 1.0)]


@pytest.mark.parametrize("line", ["|f a", " |f a", "1|f a", "'tag |f a", "tag|f a"])
def test_a_line_without_a_label_is_an_error(line: str) -> None:
    assert "no label" in reason(line)


def test_initial_predictions_are_refused() -> None:
    assert "'0.5'" in reason("1 1 0.5 |f a")
    assert "'x'" in reason("1 1 x y 'tag |f a")


def test_a_line_without_a_bar_is_an_error() -> None:
    assert "'|'" in reason("1 a b")


def test_namespaces_are_ignored_or_prefixed() -> None:
    line = "1 |f a=x b |gg c:2 | d |f e\n"
    plain, prefixed = vw(line)[0], vw(line, options=TextOptions(namespaces="prefix"))[0]
    assert plain[0] == [h("a=x"), h("b"), h("c"), h("d"), h("e")]
    assert prefixed[0] == [h("f^a=x"), h("f^b"), h("gg^c"), h("d"), h("f^e")]
    assert plain[1] == prefixed[1] == [1.0, 1.0, 2.0, 1.0, 1.0]


def test_the_factor_of_a_namespace_multiplies_every_value_in_it() -> None:
    line = "1 |f:2 a=x b c:3 |g d |:-0.5 e\n"
    assert vw(line)[0][1] == [2.0, 2.0, 6.0, 1.0, -0.5]
    assert "1e7" in reason("1 |f:1e7 a=x")
    assert "two" in reason("1 |f:two a=x")
    assert "a:1e5" in reason("1 |f:100 a:1e5")
    assert "a=x:1e5" in reason("1 |f:100 a=x:1e5")


def test_a_bar_inside_a_word_begins_a_namespace() -> None:
    assert vw("1 |f a|g b\n", options=TextOptions(namespaces="prefix"))[0][0] == [h("f^a"), h("g^b")]


def test_a_namespace_in_front_of_names_must_fit_into_a_name() -> None:
    prefix = TextOptions(namespaces="prefix")
    assert "'='" in parse_vw(b"1 |a=b c\n", RAW, prefix).errors[0].reason
    assert vw("1 |a=b c\n")[0][0] == [h("c")]
    long = "n" * 250
    assert vw(f"1 |{long} 12345\n", options=prefix)[0][0] == [h(f"{long}^12345")]
    for bad in (f"1 |{long} 123456\n", f"1 |{long} 123456=x\n", f"1 |{long}123456 a\n"):
        assert "256 bytes" in parse_vw(bad.encode(), RAW, prefix).errors[0].reason


@pytest.mark.parametrize("numeric", ["raw", "log", "bucket", {"scale": 0.25}])
@pytest.mark.parametrize("number", ["0", "-0.0", "0.5", "1", "-3", "7.25", "1e6", "-999999.5", "1e-300"])
def test_numbers_go_through_the_contracts_transform(numeric: Any, number: str) -> None:
    contract = HashContract(numeric=numeric, seed=3)
    encoded = FeatureEncoder(contract).encode({"age": float(number)})
    values = encoded.values or [1.0]
    assert vw(f"1 | age:{number}\n", contract) == [(encoded.hashes, values, 1, 1.0)]
    prefixed = vw(f"1 |f:0.5 age:{number}\n", contract, TextOptions(namespaces="prefix"))
    encoded = FeatureEncoder(contract).encode({"f^age": float(number)})
    assert prefixed == [(encoded.hashes, [0.5 * v for v in encoded.values or [1.0]], 1, 1.0)]


def test_numbers_of_any_size_become_buckets() -> None:
    contract = HashContract(numeric="bucket")
    for number in ("1e300", "-9007199254740993", "1152921504606846974", "18446744073709551616", "1022.9999"):
        encoded = FeatureEncoder(contract).encode({"n": float(number), "1": float(number)})
        for read in (vw_parser, libsvm_parser):
            name = "n" if read is vw_parser else "1"
            line = f"1 {'|' * (read is vw_parser)} {name}:{number}\n".encode()
            in_kernel = rows(read(contract).parse(line))
            assert in_kernel == rows(read(contract, encoder=FeatureEncoder(contract)).parse(line))
            assert in_kernel[0][0] == [encoded.hashes[name == "1"]]


@pytest.mark.parametrize("number", ["1e999", "-1e400", "9" * 400])
def test_a_number_that_is_not_finite_is_no_bucket(number: str) -> None:
    assert "1.79769e+308" in reason(f"1 | a:{number}", contract=HashContract())
    assert "1e+06" in reason(f"1 | a=x:{number}", contract=HashContract())
    [error] = parse_libsvm(f"1 5:{number}\n".encode(), HashContract()).errors
    assert "1.79769e+308" in error.reason


@pytest.mark.parametrize("number", ["1e7", "-1000000.1", "1e999", "-1e400", "99999999999999999999999"])
def test_values_beyond_the_bound_are_errors(number: str) -> None:
    assert "1e+06" in reason(f"1 | a:{number}")
    assert "1e+06" in reason(f"1 | a=x:{number}")


@pytest.mark.parametrize(
    "number", ["", "x", "nan", "inf", "-infinity", "1_0", "0x1", "1:2", "1,5", "1e", "٣"]
)
def test_what_is_no_decimal_number_is_an_error(number: str) -> None:
    assert "decimal number" in reason(f"1 | b a:{number}")
    assert "decimal number" in reason(f"1 | b a=x:{number} c")


def test_features_need_names_of_at_most_256_bytes() -> None:
    assert "name" in reason("1 | =x")
    assert "name" in reason("1 | :1")
    assert "name" in reason("1 | =:1")
    name = "n" * 256
    assert vw(f"1 | {name} {name}=x {name}:2 a={name * 3}\n")[0][0] == [
        h(name), h(f"{name}=x"), h(name), h(f"a={name * 3}")
    ]  # fmt: skip
    for word in (f"{name}n", f"{name}n=x", f"{name}n:1", f"{'é' * 129}=x"):
        assert "256 bytes" in reason(f"1 | {word}")


def test_too_many_features_are_an_error() -> None:
    options = TextOptions(limits=Limits(features_per_example=3))
    assert len(vw("1 | a b c\n", options=options)[0][0]) == 3
    assert "more than 3 features" in reason("1 | a b c d", options)
    assert "more than 3 features" in reason("1 | a:1 b:2 |g c=x:3 d:1", options)


@pytest.mark.parametrize(
    "line", ["1 | a\x00b", "1 |\x1f a", "1\x0b| a", "1 | a\rb", "1 | a:1\x7f", "1 | \u0085"]
)
def test_control_characters_are_errors(line: str) -> None:
    assert "control character" in reason(line)


@pytest.mark.parametrize(
    "bad",
    [b"\xff", b"\xc3", b"\xc3 ", b"\xe2\x82", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80"],
)
def test_what_is_not_utf8_is_an_error(bad: bytes) -> None:
    assert "UTF-8" in reason(b"1 | a=" + bad)
    assert "UTF-8" in reason(b"1 | a=b" + bad + b" c")


def test_any_script_is_fine() -> None:
    line = "1 |名 città=Ålesund 😀:2 \u00a0\n"
    assert vw(line) == [([h("città=Ålesund"), h("😀"), h("\u00a0")], [1.0, 2.0, 1.0], 1, 1.0)]


def test_blank_lines_and_crlf_are_fine_and_count() -> None:
    parsed = parse_vw(b"\r\n1 | a=x\r\n  \t \n\n-1 | b:2\r\nbad\r\n1 |f c\r", RAW)
    assert [row[0] for row in rows(parsed)] == [[h("a=x")], [h("b")], [h("c")]]
    assert parsed.lines == 7
    assert [error.line_number for error in parsed.errors] == [6]


def test_a_line_with_no_features_is_an_example() -> None:
    assert vw("1 |\n-1 |f\n1 | \n") == [([], [], 1, 1.0), ([], [], 0, 1.0), ([], [], 1, 1.0)]


def test_no_bytes_are_no_examples() -> None:
    for data in (b"", b"\n", b"   "):
        parsed = parse_vw(data, RAW)
        assert len(parsed.batch) == 0
        assert parsed.errors == []
        assert parsed.consumed_bytes == len(data)


def test_a_chunk_stops_at_its_last_newline() -> None:
    parsed = parse_vw(b"1 | a\n-1 | b", RAW, first_line=10, final=False)
    assert (parsed.consumed_bytes, parsed.lines, len(parsed.batch)) == (6, 1, 1)
    assert parse_vw(b"1 | a", RAW, final=False).consumed_bytes == 0
    assert parse_vw(b"x\ny\n", RAW, first_line=10).errors[1].line_number == 11


def test_a_bad_line_adds_no_features() -> None:
    parsed = parse_vw(b"1 5 | a:2 b c:x\n1 | d\n", RAW)
    assert rows(parsed) == [([h("d")], [1.0], 1, 1.0)]


def test_very_long_lines_and_words_are_fine() -> None:
    limits = Limits(features_per_example=200_000)
    words = " ".join(f"w{i}" for i in range(100_000))
    assert len(vw(f"1 | {words}\n", options=TextOptions(limits=limits))[0][0]) == 100_000
    assert vw(f"1 | a={'x' * 1_000_000}\n")[0][0] == [h("a=" + "x" * 1_000_000)]


def test_numbers_that_only_float_can_read_are_read_by_it() -> None:
    numbers = ["0.1234567890123456789012345", "1e-30", "123456.000000000000000000001", "5e-324", "1.5"]
    line = "1 0.33333333333333333333333333 |f:1.0000000000000000000001 " + " ".join(f"a:{n}" for n in numbers)
    assert vw(line + "\n") == [([h("a")] * 5, [float(n) for n in numbers], 1, 1 / 3)]
    parsed = parse_vw(f"1 | a:1e-30 b:1e999 c:1e-40\n{line}\n".encode(), RAW)
    assert rows(parsed)[0][1] == [float(n) for n in numbers]
    assert "b:1e999" in parsed.errors[0].reason


def test_an_index_is_the_feature_of_its_number_as_in_json() -> None:
    encoded = FeatureEncoder(RAW).encode({"12": 0.5, "7": 1, "0": 2})
    parsed = parse_libsvm(b"+1 12:0.5 007:1\t00:2 # a comment: 5\n", RAW)
    assert rows(parsed) == [(encoded.hashes, encoded.values, 1, 1.0)]


def test_the_number_of_a_query_is_read_over() -> None:
    parsed = parse_libsvm(b"1 qid:3 1:2\n-1 qid:12\n", RAW)
    assert rows(parsed) == [([h("1")], [2.0], 1, 1.0), ([], [], 0, 1.0)]
    assert parsed.errors == []


def test_libsvm_lines_may_be_blank_commented_or_without_features() -> None:
    parsed = parse_libsvm(b"# head\n\n-1\n1 1:2#x\r\n  # \xc3\xa9\n", RAW)
    assert rows(parsed) == [([], [], 0, 1.0), ([h("1")], [2.0], 1, 1.0)]
    assert (parsed.errors, parsed.lines) == ([], 5)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("0 1:2", "neither 1 nor -1: --labels zero_one reads 0 and 1, and what is between"),
        ("x 1:2", "neither 1 nor -1"),
        ("1:2", "neither"),
        ("1 a:2", "index"),
        ("1 -1:2", "index"),
        ("1 qid: 1:2", "index"),
        ("1 qid:x 1:2", "index"),
        ("1 1:2 qid:3", "index"),
        ("1 1.5:2", "index"),
        ("1 :2", "index"),
        ("1 5", "index:value"),
        ("1 5: 6:1", "decimal number"),
        ("1 5:nan", "decimal number"),
        ("1 5:1:2", "decimal number"),
        ("1 5:1e7", "1e+06"),
        ("1 " + "1" * 257 + ":1", "256 bytes"),
        ("1 5:1\x00", "decimal number"),
        ("1 \x01", "control"),
    ],
)
def test_bad_libsvm_lines_are_errors(line: str, says: str) -> None:
    parsed = parse_libsvm(f"{line}\n1 1:1\n".encode(), RAW)
    assert rows(parsed) == [([h("1")], [1.0], 1, 1.0)]
    assert parsed.errors[0].line_number == 1
    assert says in parsed.errors[0].reason or "control" in parsed.errors[0].reason


def test_libsvm_counts_features_too() -> None:
    options = TextOptions(limits=Limits(features_per_example=2))
    parsed = parse_libsvm(b"1 1:1 2:1 3:1\n1 1:1 2:1\n", RAW, options)
    assert len(parsed.batch) == 1
    assert "more than 2" in parsed.errors[0].reason


def test_types_transforms_and_crosses_apply_as_in_json() -> None:
    contract = HashContract(
        types={"id": "category", "n": "number"},
        transforms={"n": "raw"},
        crosses=(("id", "site"), ("rare", "n")),
        missing="indicator",
    )
    assert not is_plain(contract)
    features = {"id": 7, "n": 2.5, "m": 3, "site": ["a", "b"], "rare": "1"}
    expected = FeatureEncoder(contract).encode(features)
    expected.hashes[expected.hashes.index(h("rare=1"))] = h("rare")
    parsed = parse_vw(b"1 | id:7.0 n:2.5 m:3 site=a site=b rare\n", contract)
    assert rows(parsed) == [(expected.hashes, expected.values, 1, 1.0)]


def test_a_number_that_is_a_category_keeps_its_digits() -> None:
    contract = HashContract(types={"id": "category"})
    parsed = parse_vw(b"1 | id:12345678901234567890 id:0.10 id:1e3\n", contract)
    assert parsed.batch.hashes.tolist() == [h("id=12345678901234567890"), h("id=0.1"), h("id=1000")]


def test_what_the_contract_refuses_is_an_error_of_the_line() -> None:
    contract = HashContract(types={"n": "number"}, strict=True, numeric="raw")
    parsed = parse_vw(b"1 | n=x\n1 | m:1\n1 | n:1\n1 | n:1e9\n1\n", contract)
    assert len(parsed.batch) == 1
    assert [error.line_number for error in parsed.errors] == [1, 2, 4, 5]
    assert "n: " in parsed.errors[0].reason


VW_CHARACTERS = st.text(st.sampled_from("ab1=:| \t'#^.e-+é\r\x00\u0085"), max_size=25)
WORDS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["a", "bb", "é", "=", "n" * 256, "n" * 257, "a=b", "C1="]),
    st.sampled_from(["", "=x", "=" + "y" * 300, ":"]),
    st.sampled_from(["", ":", ":1", ":0.1", ":-2.5e1", ":1e7", ":x", ":0.30000000000000000004", ":007"]),
)
VW_LINES = st.builds(
    "{} |{} {}|{} {}".format,
    st.sampled_from(["1", "-1", "0", "0.25", "1e-3 2", "1 2", "1 0.1 'tag", "1 1 1", "", "-1 tag", "1 x "]),
    st.sampled_from(["", "f", "ns:2", "f:0.1", "f:x", "a=b", "n" * 256]),
    st.lists(WORDS, max_size=4).map(" ".join),
    st.sampled_from(["", "g", ":3"]),
    st.lists(WORDS, max_size=2).map("\t".join),
)
CONTRACTS = st.sampled_from(
    [
        HashContract(numeric=numeric, seed=seed)
        for numeric in ("raw", "log", "bucket", {"scale": 0.75})
        for seed in (0, 9)
    ]
)
ALL_OPTIONS = st.builds(
    TextOptions,
    st.sampled_from(["minus_plus", "zero_one"]),
    st.sampled_from(["ignore", "prefix"]),
    st.sampled_from([Limits(), Limits(features_per_example=2)]),
)


def assert_both_ways_agree(parser: TextParser, data: bytes) -> None:
    fast = parser.parse(data, 5)
    encoder = FeatureEncoder(parser._contract, parser._options.limits)
    batch, errors = parser._parse_line_by_line(data, fast.lines, 5, encoder)
    assert rows(Parsed(batch, 0, 0, errors)) == rows(fast)
    assert [error.line_number for error in errors] == [error.line_number for error in fast.errors]


@settings(max_examples=300)
@given(st.lists(VW_LINES | VW_CHARACTERS, max_size=5).map("\n".join), CONTRACTS, ALL_OPTIONS)
@example("1 |f a:1\r\r\n1 | b\r", RAW, OPTIONS)
def test_the_kernel_and_the_line_by_line_way_agree(
    text: str, contract: HashContract, options: TextOptions
) -> None:
    assert_both_ways_agree(vw_parser(contract, options), text.encode())


@given(
    st.lists(
        st.builds(
            "{}{}".format,
            st.integers(0, 70).map(lambda length: "w" * length),
            st.sampled_from([" ", " ", " ", "  ", "\t", ":2 ", ":1 ", "=x ", " |f ", "|f:2 ", " :3"]),
        ),
        max_size=40,
    ).map("".join)
)
def test_the_two_ways_agree_on_words_that_end_anywhere(words: str) -> None:
    assert_both_ways_agree(vw_parser(RAW), f"1 | {words}\n-1 | a {words} b".encode())


@settings(max_examples=200)
@given(st.binary(max_size=60).map(lambda data: b"1 | a=" + data))
def test_the_two_ways_agree_on_any_bytes(data: bytes) -> None:
    assert_both_ways_agree(vw_parser(RAW), data)
    assert_both_ways_agree(libsvm_parser(RAW), data)


@settings(max_examples=200)
@given(
    st.lists(
        st.text(st.sampled_from("10:. #-+e\txqid\r"), max_size=20)
        | st.lists(st.builds("{}:{}".format, st.integers(0, 99), st.floats(-1e6, 1e6)), max_size=4).map(
            lambda words: " ".join(["1", "qid:7", *words])
        ),
        max_size=5,
    ).map("\n".join),
    CONTRACTS,
    ALL_OPTIONS,
)
def test_the_libsvm_kernel_and_the_line_by_line_way_agree(
    text: str, contract: HashContract, options: TextOptions
) -> None:
    assert_both_ways_agree(libsvm_parser(contract, options), text.encode())


NAMES = st.text("abcXYZ019_^é", min_size=1, max_size=6)
PLAIN_FEATURES = st.dictionaries(
    NAMES,
    st.text("abcXYZ019_=é.", max_size=6) | st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6),
    max_size=6,
)


def as_word(name: str, value: str | float) -> str:
    return f"{name}={value}" if isinstance(value, str) else f"{name}:{value!r}"


@given(PLAIN_FEATURES, CONTRACTS)
def test_text_and_json_land_in_the_same_hashes(features: dict[str, Any], contract: HashContract) -> None:
    line = " ".join(["1 |f", *(as_word(name, value) for name, value in features.items())])
    encoded = FeatureEncoder(contract).encode(features)
    values = encoded.values or [1.0] * len(encoded.hashes)
    assert vw(line, contract) == [(encoded.hashes, values, 1, 1.0)]


@given(PLAIN_FEATURES, CONTRACTS)
def test_a_line_read_as_json_features_encodes_the_same(
    features: dict[str, Any], contract: HashContract
) -> None:
    line = " ".join(["1 |f", *(as_word(name, value) for name, value in features.items())])
    row = read_vw_line(line.encode(), OPTIONS)
    assert row is not None
    read = features_of(row.pairs, contract)
    assert FeatureEncoder(contract).encode(read) == FeatureEncoder(contract).encode(features)


@given(st.lists(VW_LINES, min_size=1, max_size=6), st.integers(0, 400))
def test_chunks_cut_anywhere_give_what_the_whole_gives(lines: list[str], cut: int) -> None:
    data = "\n".join(lines).encode()
    parser = vw_parser(RAW)
    whole = parser.parse(data)
    first = parser.parse(data[:cut], 1, final=False)
    rest = parser.parse(data[first.consumed_bytes :], 1 + first.lines)
    assert rows(first) + rows(rest) == rows(whole)
    assert first.errors + rest.errors == whole.errors


@given(
    st.lists(VW_LINES, min_size=1, max_size=6),
    st.integers(0, 400),
    st.sampled_from([RAW, HashContract(numeric="raw", types={"bb": "category"})]),
)
def test_the_beginning_of_a_line_may_come_apart_from_its_end(
    lines: list[str], cut: int, contract: HashContract
) -> None:
    data = "\n".join(lines).encode()
    parser = vw_parser(contract)
    whole = parser.parse(data)
    first = parser.parse(data[:cut], 1, final=False)
    rest = parser.parse(data[cut:], 1 + first.lines, begun=data[first.consumed_bytes : cut])
    assert rows(first) + rows(rest) == rows(whole)
    assert first.errors + rest.errors == whole.errors
    assert first.consumed_bytes + rest.consumed_bytes == len(data)


@pytest.mark.parametrize(
    ("line", "numeric", "features"),
    [
        (b"1 |f a=x b c:2 d=x:1", "raw", {"a": "x", "b": 1.0, "c": 2, "d": "x"}),
        (b"1 |f:2 b", "raw", {"b": 2.0}),
        (b"1 | a=x:2", "raw", {"a": {"value": "x", "times": 2}}),
        (b"1 | rare", "bucket", {"rare": {"times": 1.0}}),
        (b"1 |f:2 c:3", "log", {"c": {"value": 3, "times": 2}}),
        (b"1 | a:1 b a:2 a=x", "raw", [["a", 1], ["b", 1.0], ["a", 2], ["a", "x"]]),
        (b"1 | rare rare", "bucket", [["rare", {"times": 1.0}], ["rare", {"times": 1.0}]]),
    ],
)
def test_a_line_has_the_json_that_says_the_same(line: bytes, numeric: Any, features: Any) -> None:
    row = read_vw_line(line, OPTIONS)
    assert row is not None
    assert features_of(row.pairs, HashContract(numeric=numeric)) == features


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # most of these lines have an error
@given(VW_LINES, CONTRACTS)
def test_the_json_of_any_line_encodes_as_the_line_does(line: str, contract: HashContract) -> None:
    try:
        row = read_vw_line(line.encode(), OPTIONS)
        assume(row is not None)
        assert row is not None
        encoded = FeatureEncoder(contract).encode_pairs(row.pairs)
    except (LineProblem, InvalidInput):
        assume(False)
        return
    read = json.loads(json.dumps(features_of(row.pairs, contract)))
    assert FeatureEncoder(contract).encode(read) == encoded


def test_line_readers_skip_blank_lines_and_raise_for_bad_ones() -> None:
    assert read_vw_line(b" \t\r", OPTIONS) is None
    assert read_libsvm_line(b" # x", OPTIONS) is None
    with pytest.raises(LineProblem):
        read_libsvm_line(b"x", OPTIONS)


def test_an_id_that_is_written_as_a_number_gets_the_way_out() -> None:
    [error] = parse_vw(b"1 | user:9007199254740993\n", RAW).errors
    assert error.reason.endswith("write an id as text: user=9007199254740993")
    for line in (b"1 | user:-9007199254740993\n", b"1 | user:1e7\n", b"1 | user=x:10000000\n"):
        [error] = parse_vw(line, RAW).errors
        assert "an id" not in error.reason


@pytest.mark.parametrize("line", [b"1 | age=7\n", b"1 | age=\n"])
def test_text_for_a_declared_number_says_how_to_write_it(line: bytes) -> None:
    [error] = parse_vw(line, HashContract(types={"age": "number"})).errors
    assert "name:0.5 in Vowpal Wabbit text" in error.reason
    assert "quotes" not in error.reason
