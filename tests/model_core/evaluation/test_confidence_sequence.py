import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.evaluation.confidence_sequence import CONFIDENCE, ENOUGH, LAMBDAS, WEIGHTS, evidence, radius

NUMBERS = 2_000


def cost(a):
    """ψ(a) by its series."""
    return math.fsum(a**k / k for k in range(2, 60))


def evidence_by_the_definition(numbers):
    components = zip(LAMBDAS.tolist(), map(cost, LAMBDAS.tolist()), WEIGHTS.tolist(), strict=True)
    return math.fsum(w * math.prod(math.exp(a * x - c * x * x) for x in numbers) for a, c, w in components)


def ever(found):
    return float(np.mean(np.any(found, axis=1)))


def walks(draw, number, seed):
    """float64[number, NUMBERS]: the sums and the sums of squares of as many numbers with mean 0."""
    numbers = draw(np.random.default_rng(seed), (number, NUMBERS))
    return np.cumsum(numbers, axis=1), np.cumsum(numbers**2, axis=1)


def heavy_tailed(rng, shape):
    """Seldom large, as differences are where clicks are rare, and with a mean of 0."""
    large = (rng.random(shape) < 0.02) * np.clip(0.4 * rng.standard_t(3, shape), -1.0, 1.0)
    return np.where(large == 0.0, 0.003 * rng.choice([-1.0, 1.0], shape), large)


def one_sided(rng, shape):
    """Almost always slightly above 0, and in a twentieth of the cases as far below as is allowed."""
    return np.where(rng.random(shape) < 0.05, -1.0, 1.0 / 19.0)


def test_the_weights_of_the_mixture_are_no_more_than_all():
    assert sum(map(Fraction, WEIGHTS.tolist())) < 1
    assert pytest.approx(1.0 / (1.0 - CONFIDENCE)) == ENOUGH / 2.0


@given(st.lists(st.floats(-1.0, 1.0), max_size=50))
def test_the_evidence_is_that_of_the_definition(numbers):
    total, squares = math.fsum(numbers), math.fsum(x * x for x in numbers)
    assert evidence(total, squares) == pytest.approx(evidence_by_the_definition(numbers), rel=1e-9)


@given(st.floats(-1.0, 1.0), st.sampled_from(LAMBDAS.tolist()))
def test_no_number_is_expected_to_add_evidence_where_the_mean_is_0(x, a):
    """The inequality that makes the evidence a supermartingale, for each number by itself."""
    assert math.exp(a * x - cost(a) * x * x) <= 1.0 + a * x + 1e-15


@pytest.mark.parametrize("squares", [0.0, 1e-9, 0.3, 7.0, 1e3, 1e6, 1e10])
def test_the_radius_is_where_the_evidence_is_enough(squares):
    at = radius(squares)
    assert evidence(at * (1.0 + 1e-9), squares) > ENOUGH > evidence(at * (1.0 - 1e-9), squares)


def test_without_bounds_in_sight_the_evidence_is_infinite_and_never_undefined():
    assert evidence(1e6, 1.0) == math.inf
    assert evidence(-1e9, 1e12) == 0.0


@pytest.mark.parametrize("draw", [heavy_tailed, one_sided])
def test_the_sequence_seldom_misses_the_mean_at_any_time_and_a_plain_interval_often_does(draw):
    totals, squares = walks(draw, 500, seed=1)
    counts = np.arange(1, NUMBERS + 1)
    checked = slice(49, None, 50)
    radii = np.vectorize(radius)(squares[:, checked])
    missed = ever(np.abs(totals[:, checked]) >= radii)
    assert missed <= 1.0 - CONFIDENCE
    assert ever(np.abs(totals[:, checked]) >= 0.5 * radii) > 1.0 - CONFIDENCE, "half as wide is too narrow"
    plain = 1.96 * np.sqrt(np.maximum(squares - totals**2 / counts, 0.0))
    assert ever(np.abs(totals[:, checked]) >= plain[:, checked]) > 4.0 * (1.0 - CONFIDENCE)
