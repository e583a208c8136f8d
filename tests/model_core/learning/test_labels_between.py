"""Labels between 0 and 1: their loss and gradient, and what they do to each kind of model.

That every family and update follows its table for them is tested where it is for labels 0 and 1, in
test_update_table, test_theorems and test_mixture.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from model_core.examples.batch import ExampleBatch
from model_core.kernels import numerics
from model_core.learning.hyperparameters import AdaptiveRate, Hyperparameters
from model_core.learning.rounds import learn_batch
from model_core.learning.state import ModelState

labels = st.floats(0, 1)
margins = st.floats(-40, 40)
SLOTS = np.arange(8, dtype=np.uint32)


@given(st.floats(-800, 800), labels)
def test_the_residual_is_that_of_a_part_of_a_click_and_a_part_of_none(margin: float, label: float) -> None:
    parts = label * numerics.residual(margin, 1.0), (1 - label) * numerics.residual(margin, 0.0)
    assert numerics.residual(margin, label) == pytest.approx(sum(parts), rel=1e-15, abs=1e-300)
    assert numerics.residual(margin, label) == pytest.approx(float(expit(margin)) - label, abs=1e-15)


@given(st.floats(-800, 800), labels)
def test_the_loss_is_that_of_a_part_of_a_click_and_a_part_of_none(margin: float, label: float) -> None:
    parts = label * numerics.log_loss(margin, 1.0), (1 - label) * numerics.log_loss(margin, 0.0)
    assert numerics.log_loss(margin, label) == pytest.approx(sum(parts), rel=1e-14)


@given(margins, labels)
def test_the_residual_is_the_derivative_of_the_loss(margin: float, label: float) -> None:
    h = 1e-4
    ahead, behind = numerics.log_loss(margin + h, label), numerics.log_loss(margin - h, label)
    assert numerics.residual(margin, label) == pytest.approx((ahead - behind) / (2 * h), abs=1e-6)


@given(st.floats(0.001, 0.999), margins)
def test_no_prediction_has_less_loss_than_the_label_itself(label: float, margin: float) -> None:
    entropy = -label * math.log(label) - (1 - label) * math.log1p(-label)
    best = math.log(label) - math.log1p(-label)
    assert numerics.log_loss(best, label) == pytest.approx(entropy)
    assert numerics.log_loss(margin, label) >= entropy - 1e-12


def trained(hyper: Hyperparameters) -> ModelState:
    rng, state = np.random.default_rng(3), ModelState.empty(3)
    encoded = [(rng.integers(0, 8, 3).tolist(), rng.normal(size=3).tolist()) for _ in range(40)]
    learn_batch(state, hyper, False, 0.0, ExampleBatch.from_encoded(encoded, rng.integers(0, 2, 40).tolist()))
    return state


@settings(max_examples=50)
@given(labels, st.floats(0.01, 100), st.lists(st.floats(-3, 3), min_size=8, max_size=8))
def test_a_label_adds_the_gradient_of_its_clicks_and_its_non_clicks(
    label: float, weight: float, values: list[float]
) -> None:
    """Of rda, whose z is the sum of the gradients, each taken at the same state."""
    hyper = Hyperparameters(family="rda", rate=AdaptiveRate())

    def gradient(y: float, w: float) -> np.ndarray:
        state = trained(hyper)
        before = state.rows_at(SLOTS)[:, 0].copy()
        learn_batch(state, hyper, False, 0.0, ExampleBatch.from_encoded([(SLOTS.tolist(), values)], [y], [w]))
        return state.rows_at(SLOTS)[:, 0] - before

    parts = gradient(1, weight * label) + gradient(0, weight * (1 - label))
    np.testing.assert_allclose(gradient(label, weight), parts, rtol=1e-9, atol=1e-9 * weight)


@settings(max_examples=50)
@given(st.floats(0.01, 0.99), st.floats(0, 1e6), st.floats(-3, 3))
def test_an_implicit_step_does_not_pass_the_label(label: float, weight: float, start: float) -> None:
    hyper = Hyperparameters(update="implicit", rate=AdaptiveRate(1.0), l1=0.0)
    state = ModelState.empty(3)
    one = ([1], [1.0])
    learn_batch(state, hyper, False, start, ExampleBatch.from_encoded([one], [label], [weight]))
    margin = start + float(state.weights(np.array([1], np.uint32), hyper)[0])
    low, high = sorted((start, math.log(label) - math.log1p(-label)))
    assert low - 1e-9 <= margin <= high + 1e-9


def test_predictions_become_the_mean_label() -> None:
    rng, state, hyper = np.random.default_rng(5), ModelState.empty(3), Hyperparameters(l1=0.0)
    of_slot = np.array([0.9, 0.3, 0.02])
    slots = rng.integers(0, 3, 20_000)
    soft = rng.beta(10 * of_slot[slots], 10 * (1 - of_slot[slots]))
    batch = ExampleBatch.from_encoded([([slot], None) for slot in slots.tolist()], soft.tolist())
    learn_batch(state, hyper, False, 0.0, batch)
    assert expit(state.weights(SLOTS[:3], hyper)) == pytest.approx(of_slot, abs=0.01)


@pytest.mark.parametrize("label", [-0.1, 1.2, math.nan, math.inf])
def test_what_is_no_label_is_skipped(label: float) -> None:
    state = ModelState.empty(3)
    batch = ExampleBatch.from_encoded([([1], None), ([1], None)], [label, 0.5])
    assert learn_batch(state, Hyperparameters(), True, 0.0, batch).skipped.tolist() == [1, 0]
