"""A state that begins with given weights reads them, whatever the family, and learns on from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.learning.hyperparameters import Hyperparameters
from model_core.learning.rounds import learn_batch, predict_batch
from model_core.learning.state import ModelState
from model_core.learning.warm_start import add_in_slots, evidence_of, set_weights

BITS, ROUNDS = 10, 5_000
BIAS = 2**BITS
SERVED = [
    {"family": "ftrl", "l1": 0.5, "l2": 0.3},
    {"family": "ftrl", "rate": {"kind": "gamma", "gamma": 0.2, "floor": 2}, "schedule": {"kind": "constant"}},
    {"family": "ftrl", "update": "implicit", "psi_l2": 0.1, "schedule": {"kind": "inv_sqrt"}, "box": 9},
    {"family": "ftrl", "forgetting": {"half_life_examples": 1000}},
    {"family": "rda", "rate": {"kind": "scalar", "G": 1, "D": 2}},
    {"family": "rda", "schedule": {"kind": "xiao", "rho": 0.5}, "l1": 0.01},
    {"family": "comid", "schedule": {"kind": "over_T", "T": 10000}, "l2": 0.1},
    {"family": "aogd", "schedule": {"kind": "constant"}, "l1": 0.01},
    {
        "rate": {
            "kind": "mixture",
            "experts": [
                {"alpha": 0.05, "l1": 0.05},
                {"alpha": 2, "l1": 0.001, "half_life_examples": 5},
                {"alpha": 0.1, "l1": 3},
            ],
        },
        "box": 9,
    },
]


def started(hyper: Hyperparameters, weights: dict[int, float], n: float = 20.0) -> ModelState:
    state = ModelState.empty(BITS, hyper.number_of_experts)
    slots = np.array(list(weights), np.uint32)
    set_weights(state, hyper, ROUNDS, slots, np.array(list(weights.values())), np.full(slots.size, n))
    return state


@pytest.mark.parametrize("body", SERVED, ids=lambda body: f"{body.get('family', 'mixture')}")
def test_the_weights_that_are_read_are_those_that_were_set(body: dict[str, object]) -> None:
    hyper = Hyperparameters.from_json(body)
    weights = {1: 0.31, 2: -4.2, 3: 1e-7, 4: 0.0, 700: 8.9, BIAS: -3.1}
    state = started(hyper, weights)
    slots = np.array(list(weights), np.uint32)
    wanted = np.array(list(weights.values()))
    read = state.readings_of_experts(slots, hyper)
    z = state.rows_at(slots)[:, : hyper.number_of_experts].T
    rounding = np.finfo(float).eps * (np.abs(z) / read[1] + np.abs(wanted))
    assert (np.abs(read[0] - wanted) <= rounding).all()
    assert (state.t, state.features_seen) == (ROUNDS, 5)
    both = ExampleBatch.from_encoded([([1, 2], [2.0, 1.0])], [1])
    margins = predict_batch(state, hyper, True, 0.0, both)
    assert margins == pytest.approx([2 * 0.31 - 4.2 - 3.1], abs=1e-12)
    learn_batch(state, hyper, True, 0.0, both)
    assert predict_batch(state, hyper, True, 0.0, both) > margins


@given(
    st.floats(-50, 50).filter(lambda weight: weight == 0 or abs(weight) > 1e-9),
    st.floats(1e-6, 1e9),
    st.floats(0, 10),
)
def test_a_weight_is_read_to_the_rounding_of_z(weight: float, n: float, l1: float) -> None:
    hyper = Hyperparameters.from_json({"l1": l1})
    state = started(hyper, {5: weight}, n)
    ((read,), (curvature,)) = state.readings(np.array([5], np.uint32), hyper)
    assert abs(read - weight) <= np.finfo(float).eps * (abs(state.rows[5, 0]) / curvature + abs(weight))
    assert state.rows[5, 1] == n
    assert (read == 0) == (weight == 0)


def test_the_more_evidence_the_less_an_example_moves_a_weight() -> None:
    hyper = Hyperparameters.from_json({"l1": 0})
    example = ExampleBatch.from_encoded([([5], None)], [1])
    moved = []
    for n in (1.0, 100.0):
        state = started(hyper, {5: -1.0}, n)
        learn_batch(state, hyper, False, 0.0, example)
        moved.append(state.weights(np.array([5], np.uint32), hyper)[0] + 1.0)
    assert moved[0] > 3 * moved[1] > 0


def test_evidence_is_the_mean_square_of_the_gradients() -> None:
    random = np.random.default_rng(1)
    p = 0.2
    labels = random.random(200_000) < p
    gradients = p - labels
    expected = evidence_of(np.array([float(labels.size)]), p)
    assert expected == pytest.approx([np.square(gradients).sum()], rel=0.02)


def test_features_in_one_slot_have_their_mean_by_evidence() -> None:
    slots, weights, n = add_in_slots(
        np.array([9, 4, 9, 7, 7], np.uint32),
        np.array([1.0, 5.0, 2.0, 3.0, 5.0]),
        np.array([30.0, 1.0, 10.0, 0.0, 0.0]),
    )
    assert slots.tolist() == [4, 7, 9]
    assert weights.tolist() == [5.0, 4.0, 1.25]
    assert n.tolist() == [1.0, 0.0, 40.0]


def test_a_weight_outside_the_box_is_refused_but_not_a_bias() -> None:
    hyper = Hyperparameters.from_json({"box": 2})
    started(hyper, {1: 2.0, BIAS: -5.0})
    with pytest.raises(InvalidInput, match="outside the model's box of 2") as refused:
        started(hyper, {1: 2.0, 3: -2.5})
    assert refused.value.path == (1,)


def test_without_beta_and_evidence_no_weight_can_be_held() -> None:
    hyper = Hyperparameters.from_json({"rate": {"kind": "adaptive", "beta": 0}})
    started(hyper, {1: 0.0}, n=0.0)
    with pytest.raises(InvalidInput, match="a count above 0 is needed"):
        started(hyper, {1: 1.0}, n=0.0)
