"""The kernels against the table of the unified update, written out with every coordinate on every round."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_core.examples.batch import ExampleBatch
from model_core.learning.hyperparameters import AdaptiveRate, GammaRate, Hyperparameters, ScalarRate
from model_core.learning.rounds import learn_batch
from model_core.learning.schedules import Constant, Custom, InvSqrt, Once, OverT, Xiao, alpha_at
from model_core.learning.state import ModelState
from tests.support.rounds import COORDINATES, curvature, residual
from tests.support.schedule_sums import cumulative_alpha


def prox(z, L, q, box):
    x = np.divide(np.maximum(np.abs(z) - L, 0), q, out=np.zeros(z.size), where=q > 0)
    return np.clip(-np.sign(z) * x, -box, box)


def root(h, bound):
    """The root of an increasing function between 0 and bound, by bisection to neighbouring floats."""
    low, high = min(0.0, bound), max(0.0, bound)
    while low < (middle := low + 0.5 * (high - low)) < high:
        low, high = (low, middle) if h(middle) > 0 else (middle, high)
    return low


def play(hyper, theta, labels, weights):
    """Margins of all rounds and the last x."""
    family, box = hyper.family, math.inf if hyper.box is None else hyper.box
    sums, schedule = cumulative_alpha(hyper.schedule, 0, len(labels)), hyper.schedule.terms()
    z, n, x = np.zeros(COORDINATES), np.zeros(COORDINATES), np.zeros(COORDINATES)
    q_old, margins = np.zeros(COORDINATES), []
    for t, (row, y, c) in enumerate(zip(theta, labels, weights, strict=True), start=1):
        margins.append(float(row @ x))
        r = c * residual(margins[-1], y)
        n = n + (r * row) ** 2
        q_new = curvature(hyper.rate, n, t)
        alpha = sums[t] if family in ("ftrl", "rda") else alpha_at(schedule, t)
        linear = {
            "ftrl": z - (q_new - q_old) * x * (t > 1),
            "rda": z,
            "comid": -(q_new + hyper.l2) * x,
            "aogd": -(q_old + hyper.l2) * x,
        }[family]
        L, q = hyper.l1 * alpha, q_new + hyper.l2 + hyper.psi_l2 * alpha

        def after(r, row=row, linear=linear, L=L, q=q):
            return prox(linear + r * row, L, q, box)

        if hyper.update == "implicit":
            bound = c * residual(float(row @ after(0.0)), y)
            r = root(
                lambda r, row=row, after=after, c=c, y=y: r - c * residual(float(row @ after(r)), y), bound
            )
        z, x, q_old = linear + r * row, after(r), q_new
    return margins, x


# Tiny gradients with beta = 0 make a curvature so small that comid's z, |z| = l1 A_t + Q |x|, loses the x.
values = st.one_of(st.just(0.0), st.floats(1e-4, 3), st.floats(-3, -1e-4))
rows = st.lists(
    st.tuples(
        st.lists(values, min_size=COORDINATES, max_size=COORDINATES),
        st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)),
        st.sampled_from([0.0, 0.3, 1.0, 20.0]),
    ),
    min_size=1,
    max_size=25,
)
rates = [
    AdaptiveRate(0.3, 1.0),
    AdaptiveRate(0.3, 0.0),
    GammaRate(0.9, 1.5),
    GammaRate(0.9),
    ScalarRate(2.0, 4.0),
]
schedules = [Constant(), OverT(20), Once(), InvSqrt(), Xiao(2.0), Custom((1.0, 0.5, 0.5))]


@pytest.mark.parametrize("update", ["first_order", "implicit"])
@pytest.mark.parametrize("family", ["ftrl", "rda", "comid", "aogd"])
@settings(max_examples=60)
@given(
    rows,
    st.sampled_from(rates),
    st.sampled_from(schedules),
    st.sampled_from([0.0, 0.02, 0.3]),
    st.sampled_from([(0.0, 0.0), (0.5, 0.0), (0.0, 0.1)]),
    st.sampled_from([None, 0.25]),
)
def test_the_kernels_follow_the_table_of_updates(family, update, rows, rate, schedule, l1, ridges, box):
    hyper = Hyperparameters(family, update, rate, schedule, l1, ridges[0], ridges[1], box)
    theta = np.array([row for row, _, _ in rows])
    labels, weights = [y for _, y, _ in rows], [c for *_, c in rows]
    batch = ExampleBatch.from_encoded(
        [(list(range(COORDINATES)), row) for row in theta.tolist()], labels, weights
    )
    state = ModelState.empty(3)
    learned = learn_batch(state, hyper, False, 0.0, batch)
    margins, x = play(hyper, theta, labels, weights)
    np.testing.assert_allclose(learned.margins, margins, rtol=1e-8, atol=1e-8)
    got = state.weights(np.arange(COORDINATES, dtype=np.uint32), hyper)
    np.testing.assert_allclose(got, x, rtol=1e-8, atol=1e-8)
