from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.examples.batch import ExampleBatch
from model_core.learning.hyperparameters import Hyperparameters, ScalarRate
from model_core.learning.rounds import learn_batch
from model_core.learning.rows import CHANGED, SEEN, take_over
from model_core.learning.schedules import Constant
from model_core.learning.state import ModelState

BITS = 4
examples = st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=6), min_size=1, max_size=12)


DEFAULT = Hyperparameters()


def learn(state: ModelState, rows, hyper=DEFAULT, bias=True):
    return learn_batch(
        state, hyper, bias, 0.0, ExampleBatch.from_encoded([(row, None) for row in rows], [1] * len(rows))
    )


@pytest.mark.parametrize("count", [0, 1, 2])
def test_rows_from_any_memory_are_taken_over_by_one_kernel(count):
    """Also a view of bytes, which for one record is contiguous, not aligned, and not to be written."""
    records = np.frombuffer(bytes(21 * count), [("tag", "u1"), ("slot", "<u4"), ("row", "<f8", (2,))])
    state = ModelState.empty(BITS)
    state.apply_rows(records["slot"], records["row"])
    state.apply_rows(np.zeros(count, np.uint32), np.frombuffer(bytes(16 * count)).reshape(-1, 2))
    assert len(getattr(take_over, "signatures")) == 1  # noqa: B009  mypy sees the function


@given(examples, examples)
def test_changed_slots_come_once_each_and_only_until_taken(first, second):
    state = ModelState.empty(BITS)
    for rows in (first, second):
        learn(state, rows)
        slots, values, _ = state.take_changed()
        assert sorted(slots.tolist()) == sorted({h % 2**BITS for row in rows for h in row} | {2**BITS})
        assert np.array_equal(values, state.rows[slots])
        assert not (state.marks & CHANGED).any()
    assert state.take_changed()[0].size == 0


@given(examples, st.booleans())
def test_the_changes_rebuild_the_state_elsewhere(rows, bias):
    state, mirror = ModelState.empty(BITS), ModelState.empty(BITS)
    for row in rows:
        learn(state, [row], bias=bias)
        mirror.apply_rows(*state.take_changed())
        mirror.t = state.t
        assert mirror.digest() == state.digest()
        assert mirror.features_seen == state.features_seen
    assert mirror.take_changed()[0].size == 0


@given(examples)
def test_features_seen_counts_slots_without_the_bias(rows):
    state = ModelState.empty(BITS)
    learn(state, rows)
    assert state.features_seen == len({h % 2**BITS for row in rows for h in row})
    assert state.seen_slots().tolist()[-1] == state.size


def test_dense_rounds_change_all_features_together():
    state = ModelState.empty(14)
    dense = Hyperparameters(rate=ScalarRate(1.0, 1.0), l1=0.0)
    learn(state, [[h] for h in range(5000)], dense)
    state.take_changed()
    learn(state, [[0]], dense)
    assert len(set(state.take_changed()[0].tolist())) == 5001


def test_different_states_have_different_digests():
    state = ModelState.empty(BITS)
    digests = [state.digest()]
    learn(state, [[1]])
    digests.append(state.digest())
    state.t += 1
    digests.append(state.digest())
    state.rows[1, 0] = np.nextafter(state.rows[1, 0], 1)
    digests.append(state.digest())
    state.marks[2] |= SEEN
    digests.append(state.digest())
    assert len(set(digests)) == 5


def test_density_is_the_share_of_seen_features_with_a_weight():
    state = ModelState.empty(BITS)
    assert state.density(Hyperparameters()) == 0.0
    hyper = Hyperparameters(l1=0.9)
    learn(state, [[1, 2], [1], [1]], hyper)
    assert state.weights(np.array([1, 2, 3], np.uint32), hyper)[1:].tolist() == [0.0, 0.0]
    assert state.nonzero(hyper) == 1
    assert state.density(hyper) == 0.5


def test_untouched_weights_shrink_under_a_growing_schedule():
    hyper = Hyperparameters(schedule=Constant(), l1=0.02)
    state = ModelState.empty(BITS)
    learn(state, [[1]], hyper, bias=False)
    sizes = []
    for _ in range(40):
        sizes.append(abs(state.weights(np.array([1], np.uint32), hyper)[0]))
        learn(state, [[]], hyper, bias=False)
    assert sizes[0] > 0
    assert all(b < a or a == 0 for a, b in pairwise(sizes))
    assert state.nonzero(hyper) == 0
    assert state.features_seen == 1


def test_the_bias_weight_is_read_without_penalty():
    hyper = Hyperparameters(l1=1e6, box=1e-9)
    state = ModelState.empty(BITS)
    learn(state, [[1]], hyper)
    bias, feature = state.weights(np.array([state.size, 1], np.uint32), hyper)
    assert bias == pytest.approx(0.1 * 0.5 / 1.5)
    assert feature == 0.0
    assert state.nonzero(hyper) == 0


def test_the_list_of_changes_is_at_most_the_size_of_the_model():
    state = ModelState.empty(12)
    learn(state, [list(range(4096))] * 3)
    assert state.changed.size == state.marks.size
    assert state.take_changed()[0].size == 4097
