import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from model_core.kernels import numerics
from model_core.learning import rounds

finite = st.floats(allow_nan=False, allow_infinity=False)


def ulps(got: float, want: float) -> float:
    if got == want:
        return 0.0
    if not (math.isfinite(got) and math.isfinite(want)):
        return math.inf
    return abs(got - want) / math.ulp(want)


@given(st.floats(-746.0, 710.0))
def test_exp_is_within_one_ulp_of_libm_over_the_whole_range(x):
    want = math.exp(x) if x <= 709.782712893384 else math.inf
    assert ulps(numerics.exp(x), want) <= 1


def test_exp_is_within_one_ulp_on_a_dense_grid_of_every_binade():
    for x in np.concatenate([np.linspace(-745.2, 709.7, 20_011), np.geomspace(1e-320, 700, 5_003)]).tolist():
        assert ulps(numerics.exp(x), math.exp(x)) <= 1
        assert ulps(numerics.exp(-abs(x)), math.exp(-abs(x))) <= 1


@pytest.mark.parametrize(
    ("x", "want"),
    [
        (0.0, 1.0),
        (-0.0, 1.0),
        (1000.0, math.inf),
        (1.7e308, math.inf),
        (math.inf, math.inf),
        (-745.0, 5e-324),
        (-746.0, 0.0),
        (-1.7e308, 0.0),
        (-math.inf, 0.0),
        (5e-324, 1.0),
    ],
)
def test_exp_at_its_edges(x, want):
    assert numerics.exp(x) == want


def test_nan_goes_through():
    assert math.isnan(numerics.exp(math.nan))
    assert math.isnan(numerics.log1p(math.nan))
    assert math.isnan(numerics.sigmoid(math.nan))


@given(st.one_of(finite.filter(lambda x: x > -1), st.floats(-1, 1, exclude_min=True), st.floats(0, 1e6)))
def test_log1p_is_within_one_ulp_of_libm_over_the_whole_range(x):
    assert ulps(numerics.log1p(x), math.log1p(x)) <= 1


def test_log1p_is_within_one_ulp_on_a_dense_grid():
    grid = np.concatenate(
        [
            np.geomspace(1e-320, 1.7e308, 30_011),
            -np.geomspace(1e-320, 1 - 1e-16, 20_011),
            np.linspace(-0.9, 3, 5003),
        ]
    )
    for x in grid.tolist():
        assert ulps(numerics.log1p(x), math.log1p(x)) <= 1


def test_log1p_at_its_edges():
    assert numerics.log1p(-1.0) == -math.inf
    assert numerics.log1p(math.inf) == math.inf
    assert math.isnan(numerics.log1p(-1.5))
    assert math.copysign(1, numerics.log1p(-0.0)) == -1


@given(finite)
def test_sigmoid_is_a_probability_and_residual_is_precise(margin):
    p = numerics.sigmoid(margin)
    assert 0.0 <= p <= 1.0
    assert numerics.residual(margin, 0) == p
    assert numerics.residual(margin, 1) == -numerics.sigmoid(-margin)
    if margin < 700:
        assert numerics.residual(margin, 1) < 0.0


def test_the_residual_of_a_confident_prediction_is_not_zero():
    assert numerics.residual(50.0, 1) == pytest.approx(-math.exp(-50), rel=1e-15)


@given(st.floats(-1e300, 1e300), st.sampled_from([0, 1]))
def test_log_loss_comes_from_the_margin_and_is_finite(margin, label):
    a = -margin if label else margin
    want = a + math.log1p(math.exp(-a)) if a > 0 else math.log1p(math.exp(a))
    assert numerics.log_loss(margin, label) == pytest.approx(want, rel=1e-15, abs=0)


@pytest.mark.slow
def test_the_machine_code_has_no_fma_and_no_call_of_libm():
    for kernel in (numerics.log_losses, numerics.sigmoids, rounds._learn):
        kernel_of_this_test: Any = njit(
            kernel.py_func, error_model="numpy"
        )  # code from a cache cannot be inspected
        rounds.warm_up()
        kernel_of_this_test.compile(kernel.signatures[0])
        (code,) = kernel_of_this_test.inspect_asm().values()
        assert re.search(r"\b(v?divsd|fdiv)\b", code)
        assert not re.search(r"\b(vfn?m(add|sub)|fn?m(add|sub)|fml[as])", code)
        assert not re.search(r"\b(exp|log|log1p|pow|ldexp)(f|@PLT)?$", code, re.MULTILINE)
