import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.learning.schedules import (
    Constant,
    Custom,
    InvSqrt,
    Once,
    OverT,
    Xiao,
    alpha_at,
    alpha_sum,
)
from tests.support.schedule_sums import cumulative_alpha

ALL = [Constant(), OverT(7), Once(), InvSqrt(), Xiao(0.5), Custom((3.0, 2.5, 0.1))]


@pytest.mark.parametrize(
    ("schedule", "alpha"),
    [
        (Constant(), lambda t: 1.0),
        (OverT(7), lambda t: 1 / 7),
        (Once(), lambda t: float(t == 1)),
        (InvSqrt(), lambda t: 1 / math.sqrt(t)),
        (Xiao(0.5), lambda t: 1 + 0.5 * (math.sqrt(t) - math.sqrt(t - 1))),
        (Custom((3.0, 2.5, 0.1)), lambda t: [3.0, 2.5, 0.1][t - 1] if t <= 3 else 0.0),
    ],
)
def test_the_sums_are_those_of_the_weights(schedule, alpha):
    alphas = [alpha(t) for t in range(1, 400)]
    sums = [math.fsum(alphas[:t]) for t in range(400)]
    np.testing.assert_allclose(cumulative_alpha(schedule, 0, 399), sums, rtol=2e-14)
    terms = schedule.terms()
    np.testing.assert_allclose([alpha_at(terms, t) for t in range(1, 400)], alphas, rtol=1e-13)


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: type(s).__name__)
def test_alphas_are_monotone_and_sums_do_not_fall(schedule):
    terms = schedule.terms()
    alphas = [alpha_at(terms, t) for t in range(1, 300)]
    assert min(alphas) >= 0
    assert all(b <= a for a, b in pairwise(alphas))
    assert (np.diff(cumulative_alpha(schedule, 0, 300)) >= 0).all()


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: type(s).__name__)
@given(st.integers(0, 10**12), st.integers(0, 5))
def test_a_sum_depends_on_the_round_alone(schedule, t0, count):
    sums = cumulative_alpha(schedule, t0, count)
    assert sums.shape == (count + 1,)
    assert sums.tolist() == [alpha_sum(schedule.terms(), t0 + i) for i in range(count + 1)]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_the_sums_of_a_custom_schedule_are_compensated(values):
    sums = cumulative_alpha(Custom(tuple(sorted(values, reverse=True))), 0, len(values))
    exact = sum((Fraction(v) for v in values), Fraction(0))
    assert abs(Fraction(float(sums[-1])) - exact) <= Fraction(math.ulp(float(sums[-1])))


def test_the_expansion_of_inv_sqrt_meets_the_table():
    sums = cumulative_alpha(InvSqrt(), 60, 8)
    want = [math.fsum(1 / math.sqrt(s) for s in range(1, t + 1)) for t in range(60, 69)]
    np.testing.assert_allclose(sums, want, rtol=1e-14)
