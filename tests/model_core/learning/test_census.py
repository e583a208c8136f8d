import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.examples.batch import ExampleBatch
from model_core.learning.census import CensusTaker, take_census
from model_core.learning.hyperparameters import AdaptiveRate, Hyperparameters
from model_core.learning.rounds import learn_batch
from model_core.learning.schedules import Constant, InvSqrt, Once
from model_core.learning.state import ModelState

NO_FEATURES: tuple[list[int], None] = ([], None)


def learned(hyper, seed=0, examples=300, bits=10):
    rng = np.random.default_rng(seed)
    encoded = [(rng.integers(0, 2**32, 8).tolist(), None) for _ in range(examples)]
    state = ModelState.empty(bits)
    labels = rng.integers(0, 2, examples).tolist()
    learn_batch(state, hyper, True, 0.0, ExampleBatch.from_encoded(encoded, labels))
    return state


def pass_rounds(state, hyper, rounds):
    """Examples without features: rounds all the same."""
    learn_batch(state, hyper, True, 0.0, ExampleBatch.from_encoded([NO_FEATURES] * rounds, [0] * rounds))


@given(st.integers(1, 1100), st.sampled_from([Once(), Constant(), InvSqrt()]))
def test_a_census_in_steps_equals_a_whole_one_and_the_state(slots_a_step, schedule):
    hyper = Hyperparameters(schedule=schedule, l1=0.3 if isinstance(schedule, Once) else 0.002)
    state = learned(hyper)
    taker, census, steps = CensusTaker(slots_a_step), None, 0
    while census is None:
        census, steps = taker.step(state, hyper), steps + 1
    assert steps == math.ceil(state.size / slots_a_step)
    assert census == take_census(state, hyper)
    weights = state.weights(state.seen_slots()[:-1], hyper)
    assert (census.features_seen, census.nonzero) == (state.features_seen, state.nonzero(hyper))
    assert 0 < census.density == state.density(hyper) < 1
    assert census.weight_norm == pytest.approx(np.linalg.norm(weights))
    assert census.largest_weight == np.abs(weights).max()
    assert census.gradient_norm == pytest.approx(math.sqrt(state.rows[:-1, 1].sum()))
    assert (census.t, census.nonfinite) == (300, 0)


def test_weights_that_rounds_turned_to_zero_untouched_are_zero():
    hyper = Hyperparameters(rate=AdaptiveRate(0.1, 1.0), schedule=Constant(), l1=0.002)
    state = learned(hyper)
    before = take_census(state, hyper)
    pass_rounds(state, hyper, 2000)
    after = take_census(state, hyper)
    assert after.nonzero == 0 < before.nonzero
    assert (after.features_seen, after.density) == (before.features_seen, 0.0)


def test_each_stretch_is_read_at_the_rounds_completed_by_then():
    hyper = Hyperparameters(schedule=Constant(), l1=0.002)
    state = learned(hyper)
    first_half = np.count_nonzero(state.weights(np.arange(512, dtype=np.uint32), hyper))
    taker = CensusTaker(512)
    assert taker.step(state, hyper) is None
    pass_rounds(state, hyper, 2000)  # the second half is zero by now
    census = taker.step(state, hyper)
    assert census is not None
    assert census.nonzero == first_half > 0


def test_a_census_starts_again_with_another_state():
    hyper = Hyperparameters()
    taker = CensusTaker(600)
    assert taker.step(learned(hyper, seed=1), hyper) is None
    state = learned(hyper, seed=2)
    assert taker.step(state, hyper) is None
    assert taker.step(state, hyper) == take_census(state, hyper)


def test_slots_that_are_not_finite_are_counted_and_spoil_nothing():
    hyper = Hyperparameters()
    state = learned(hyper)
    slots = state.seen_slots()[[0, 1, 2, -1]]  # the last is the bias
    for slot, row in zip(
        slots, [(1.0, math.nan), (math.nan, 1.0), (1.0, math.inf), (-math.inf, 1.0)], strict=True
    ):
        state.rows[slot] = row
    census = take_census(state, hyper)
    assert census.nonfinite == 4
    assert math.isfinite(census.weight_norm + census.gradient_norm + census.largest_weight)


@pytest.mark.parametrize("features", [1, 200, 4000, 20_000])
def test_the_collision_rate_is_the_counted_share_of_features_that_share_a_slot(features):
    hyper = Hyperparameters()
    state = ModelState.empty(12)
    hashes = np.random.default_rng(4).integers(0, 2**32, features, np.uint32)
    learn_batch(state, hyper, True, 0.0, ExampleBatch.from_encoded([(hashes.tolist(), None)], [1]))
    census = take_census(state, hyper)
    in_slot = np.bincount(hashes % 4096, minlength=4096)
    assert census.slot_load == np.count_nonzero(in_slot) / 4096
    shared = in_slot[in_slot > 1].sum() / features
    assert census.expected_collision_rate == pytest.approx(shared, abs=0.02)


def test_an_empty_and_a_full_state_have_a_census():
    empty = take_census(ModelState.empty(4), Hyperparameters())
    assert (empty.density, empty.slot_load, empty.expected_collision_rate) == (0.0, 0.0, 0.0)
    state = ModelState.empty(2)
    state.apply_rows(np.arange(5, dtype=np.uint32), np.zeros((5, 2)))
    assert take_census(state, Hyperparameters()).expected_collision_rate == 1.0
