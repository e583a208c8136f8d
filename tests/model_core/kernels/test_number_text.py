import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model_core.kernels.number_text import DECIMAL, EXACT, HARD, MALFORMED, scan_number


def scan(text: str) -> tuple[int, float]:
    data = np.frombuffer(b"9" + text.encode() + b"9", np.uint8)
    return scan_number(data, 1, data.size - 1)


def same_bits(a: float, b: float) -> bool:
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


DECIMALS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "+", "-"]),
    st.from_regex(r"[0-9]{1,22}", fullmatch=True),
    st.one_of(st.just(""), st.just("."), st.from_regex(r"\.[0-9]{1,22}", fullmatch=True)),
    st.one_of(st.just(""), st.from_regex(r"[eE][+-]?[0-9]{1,4}", fullmatch=True)),
)


@given(DECIMALS)
@example("0.30000000000000004")
@example("9007199254740993")
@example("18446744073709551615")
@example("18446744073709551616")
@example("184467440737095.51616")
@example("1844674407370955161.6")
@example("0.1e1")
@example("-0")
@example("5e-324")
def test_a_number_is_exactly_what_float_reads_or_left_to_float(text: str) -> None:
    status, value = scan(text)
    assert status in (EXACT, HARD)
    if status == EXACT:
        assert same_bits(value, float(text))


@given(st.floats(1e-5, 1e6) | st.floats(-1e6, -1e-5))
def test_the_shortest_text_of_a_float_is_nearly_always_exact(value: float) -> None:
    status, read = scan(repr(value))
    assert status == HARD or same_bits(read, value)


def test_ordinary_numbers_are_not_left_to_float() -> None:
    rng = np.random.default_rng(5)
    values = (rng.random(2000) * 10.0 ** rng.integers(-3, 7, 2000)).tolist()
    assert all(scan(repr(v)) == (EXACT, v) for v in values)


@given(st.integers(0, 2**64 - 1), st.integers(1, 22))
def test_long_significands_round_correctly(significand: int, power: int) -> None:
    text = f"{significand}e-{power}"
    status, value = scan(text)
    assert status == HARD or value == float(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+",
        ".",
        "-.",
        "e5",
        ".e5",
        "1e",
        "1e+",
        "1.2.3",
        "--1",
        "1_0",
        "0x10",
        "nan",
        "inf",
        "1 ",
        "1,5",
        "½",
    ],
)
def test_anything_else_is_malformed(text: str) -> None:
    assert scan(text) == (MALFORMED, 0.0)


@given(st.text("0123456789+-.eE", max_size=8))
def test_the_kernel_and_the_pattern_agree_on_what_is_a_number(text: str) -> None:
    assert (scan(text)[0] != MALFORMED) == bool(DECIMAL.fullmatch(text))
