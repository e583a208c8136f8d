"""Dropping: a model that forgets gives up features, at rounds that its log alone determines."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_core.errors import FormatError, InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.learning.census import take_census
from model_core.learning.hyperparameters import AdaptiveRate, Expert, HalfLife, Hyperparameters, MixtureRate
from model_core.learning.rounds import learn_batch, predict_batch
from model_core.learning.rows import CHANGED, ROUNDS_A_SEARCH, SLOTS_A_ROUND
from model_core.learning.state import Mixture, ModelState, parse_evidence

BITS = 8
SIZE = 2**BITS
MILLENNIUM = 1_000_000_000_000
SEARCHED = ROUNDS_A_SEARCH * SLOTS_A_ROUND
TURN = SIZE // SLOTS_A_ROUND  # rounds until all slots were searched

half_lives = st.builds(HalfLife, st.just("examples"), st.sampled_from([1.0, 4.0, 50.0]))
slower = half_lives | st.none()
traces = st.sampled_from([1e-30, 1e-4, 1e-2, 1.0])
penalties = st.sampled_from([0.01, 0.5])
singles = st.builds(
    Hyperparameters,
    st.sampled_from(["ftrl", "rda"]),
    st.sampled_from(["first_order", "implicit"]),
    st.sampled_from([AdaptiveRate(), AdaptiveRate(1.0, 0.0)]),
    l1=penalties,
    forgetting=half_lives,
    drop_below=traces,
)
mixtures = st.builds(
    lambda first, others, trace: Hyperparameters(rate=MixtureRate((first, *others)), drop_below=trace),
    st.builds(Expert, st.just(AdaptiveRate(0.3, 0.1)), penalties, half_lives),
    st.lists(st.builds(Expert, st.just(AdaptiveRate(1.0)), penalties, slower), min_size=1, max_size=5),
    traces,
)
hypers = singles | mixtures
streams = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 2 * SIZE - 1), st.floats(-3, 3)), max_size=4),
        st.sampled_from([0, 1]),
        st.sampled_from([0.0, 0.1, 1.0, 5.0]),
    ),
    min_size=2 * ROUNDS_A_SEARCH,
    max_size=4 * ROUNDS_A_SEARCH,
)


def batch_of(stream) -> ExampleBatch:
    encoded = [([h for h, _ in row], [v for _, v in row]) for row, *_ in stream]
    return ExampleBatch.from_encoded(encoded, [r[1] for r in stream], [r[2] for r in stream])


def empty(hyper) -> ModelState:
    return ModelState.empty(BITS, hyper.number_of_experts)


def faded(state, hyper, slot) -> bool:
    """Whether a slot has faded, by the readings of its experts."""
    at = np.array([slot], np.uint32)
    weights = state.readings_of_experts(at, hyper)[0, :, 0]
    discount = state.discount
    scales = discount.scales if isinstance(discount, Mixture) else np.array([discount.scale])
    n = state.rows_at(at)[0, hyper.number_of_experts :] * (scales * scales)
    forgets = [expert.forgetting is not None for expert in hyper.experts]
    return not weights[forgets].any() and bool(np.all(n[forgets] < hyper.drop_below))


@settings(max_examples=30)
@given(streams, hypers)
def test_a_round_drops_what_has_faded_in_the_slots_that_it_searches(stream, hyper):
    """Against the same round without dropping, slot by slot."""
    batch, state = batch_of(stream), empty(hyper)
    keeping = Hyperparameters(**{**vars(hyper), "drop_below": None})
    for i in range(len(batch)):
        before = empty(hyper)
        before.apply_rows(state.seen_slots(), state.rows_at(state.seen_slots()))
        before.t, before.discount = state.t, state.discount
        one = batch.slice(i, i + 1)
        margins = [learn_batch(s, h, True, 0.1, one).margins for s, h in ((state, hyper), (before, keeping))]
        assert margins[0].tobytes() == margins[1].tobytes()
        search, waits = divmod(state.t, ROUNDS_A_SEARCH)
        searched = (
            [] if waits else range((search - 1) * SEARCHED % SIZE, (search - 1) * SEARCHED % SIZE + SEARCHED)
        )
        gone = [slot for slot in searched if before.marks[slot] & 1 and faded(before, hyper, slot)]
        kept = sorted(set(before.seen_slots().tolist()) - set(gone))
        assert state.seen_slots().tolist() == kept
        assert np.array_equal(state.rows[kept], before.rows[kept])
        assert not state.rows[gone].any()
        assert state.discount.dropped == before.discount.dropped + len(gone)
        assert state.features_seen == take_census(state, hyper).features_seen == len(set(kept) - {SIZE})


def test_one_round_may_drop_a_whole_search():
    hyper = Hyperparameters(l1=1.0, forgetting=HalfLife("examples", 1.0), drop_below=1.0)
    state = ModelState.empty(11)
    slots = np.arange(state.size, dtype=np.uint32)
    state.apply_rows(slots, np.full((slots.size, 2), 1e-6))
    state.t = state.size // SLOTS_A_ROUND - 1  # the next round searches the last slots
    state.changed[:], state.changes = slots[: state.changed.size], state.changed.size - SEARCHED // 2
    state.marks[state.changed[: state.changes]] |= CHANGED
    learn_batch(state, hyper, True, 0.0, batch_of([([], 1, 1.0)]))
    assert state.discount.dropped == SEARCHED
    assert state.changes <= state.changed.size
    assert set(slots[-SEARCHED:].tolist()) <= set(state.take_changed().dropped.tolist())


@settings(max_examples=40)
@given(streams, hypers, st.data())
def test_batching_and_restarts_change_no_bit(stream, hyper, data):
    batch, whole = batch_of(stream), empty(hyper)
    learned = learn_batch(whole, hyper, True, 0.1, batch)
    cut = data.draw(st.integers(0, len(batch)))
    for cuts in ([0, cut, len(batch)], range(len(batch) + 1)):
        state, mirror, margins = empty(hyper), empty(hyper), []
        for start, stop in pairwise(cuts):
            margins.append(learn_batch(state, hyper, True, 0.1, batch.slice(start, stop)).margins)
            mirror.forget_until(parse_evidence(state.discount.text()))
            mirror.apply_rows(*state.take_changed())
            mirror.t = state.t
            assert mirror.digest() == state.digest()
            assert mirror.features_seen == state.features_seen
            assert mirror.marks.tobytes() == state.marks.tobytes()
            restarted = empty(hyper)
            restarted.apply_rows(state.seen_slots(), state.rows_at(state.seen_slots()))
            restarted.t, restarted.discount = state.t, mirror.discount
            state = restarted
        assert state.digest() == whole.digest()
        assert np.concatenate(margins).tobytes() == learned.margins.tobytes()


def learn(state, hyper, hashes, label=1, rounds=1):
    examples = ExampleBatch.from_encoded([(list(hashes), None)] * rounds, [label] * rounds)
    learn_batch(state, hyper, True, 0.0, examples)


FADES = Hyperparameters(l1=0.1, forgetting=HalfLife("examples", 1), drop_below=1e-4)


def test_a_dropped_feature_is_as_one_that_was_never_seen():
    state = empty(FADES)
    learn(state, FADES, [5, 9])
    learn(state, FADES, [9], rounds=TURN)
    assert (state.features_seen, state.discount.dropped) == (1, 1)
    assert state.seen_slots().tolist() == [9, SIZE]
    new, old = ([ExampleBatch.from_encoded([([slot], None)])] for slot in (6, 5))
    assert predict_batch(state, FADES, True, 0.0, *new) == predict_batch(state, FADES, True, 0.0, *old)


def test_the_bias_stays():
    state = empty(FADES)
    learn(state, FADES, [])
    learn_batch(state, FADES, False, 0.0, ExampleBatch.from_encoded([([], None)] * TURN, [0] * TURN))
    assert state.seen_slots().tolist() == [SIZE]
    assert state.discount.dropped == 0


def test_a_slot_that_comes_back_before_it_is_taken_has_only_changed():
    state = empty(FADES)
    learn(state, FADES, [5])
    state.take_changed()
    learn(state, FADES, [], rounds=TURN)
    assert state.features_seen == 0
    learn(state, FADES, [5])
    changes = state.take_changed()
    assert (changes.slots.tolist(), changes.dropped.tolist()) == ([SIZE, 5], [])
    assert changes.rows.tobytes() == state.rows_at(changes.slots).tobytes()
    learn(state, FADES, [], rounds=TURN)
    assert state.take_changed().dropped.tolist() == [5]
    assert state.take_changed().dropped.tolist() == []


def test_what_never_forgets_loses_its_row_with_the_experts_that_do():
    stays = Expert(AdaptiveRate(1.0), 0.01)
    fades = Expert(AdaptiveRate(0.1), 0.1, HalfLife("examples", 1))
    hyper = Hyperparameters(rate=MixtureRate((stays, fades)), drop_below=1e-4)
    state = empty(hyper)
    learn(state, hyper, [5])
    assert state.readings_of_experts(np.array([5], np.uint32), hyper)[0, 0, 0] > 0.0
    learn(state, hyper, [], rounds=TURN)
    assert not state.rows[5].any()


def test_memory_of_daily_new_features_is_bounded():
    """Features live for 100 rounds, and are dropped some half-lives later, when their slots are searched."""
    bits, rounds = 14, 40_000
    hyper = Hyperparameters(l1=0.1, forgetting=HalfLife("examples", 200), drop_below=1e-4)
    random = np.random.default_rng(1)
    features = np.arange(rounds)[:, np.newaxis] // 100 * 50 + random.integers(0, 50, (rounds, 3))
    encoded = [(np.unique(row).tolist(), None) for row in features * 2_654_435_761 % 2**32]
    batch = ExampleBatch.from_encoded(encoded, random.integers(0, 2, rounds).tolist())
    state, in_use = ModelState.empty(bits), []
    for start in range(0, rounds, 4000):
        learn_batch(state, hyper, True, 0.0, batch.slice(start, start + 4000))
        in_use.append(state.features_seen)
    new_a_round, half_lives = 0.5, 7
    assert max(in_use) < new_a_round * (half_lives * 200 + 2**bits / SLOTS_A_ROUND)
    assert max(in_use[1:]) < 1.2 * min(in_use[1:])


@pytest.mark.parametrize(
    ("hyper", "words"),
    [
        ({}, "needs a half-life"),
        ({"rate": {"kind": "mixture", "experts": [{}, {}]}}, "needs a half-life"),
        ({"forgetting": {"half_life_examples": 10}, "l1": 0}, "needs an l1 above 0"),
        (
            {"rate": {"kind": "mixture", "experts": [{}, {"l1": 0, "half_life_examples": 10}]}},
            "needs an l1 above 0",
        ),
        ({"forgetting": {"half_life_examples": 10}, "drop_below": 0}, "must be a number from 1e-30"),
        ({"forgetting": {"half_life_examples": 10}, "drop_below": "1"}, "must be a number"),
        ({"forgetting": {"half_life_examples": 10}, "drop_below": True}, "must be a number"),
    ],
)
def test_dropping_without_a_reason_to_fade_is_refused_with_words(hyper, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        Hyperparameters.from_json({"drop_below": 1e-6} | hyper)
    assert refused.value.path == ("drop_below",)


@pytest.mark.parametrize(
    "hyper",
    [
        {"forgetting": {"half_life_seconds": 86400.0}, "drop_below": 1e-6},
        {"rate": {"kind": "mixture", "experts": [{"l1": 0}, {"half_life_examples": 9}]}, "drop_below": 0.5},
    ],
)
def test_a_trace_makes_the_round_trip(hyper):
    found = Hyperparameters.from_json(hyper)
    assert found.to_json()["drop_below"] == hyper["drop_below"]
    assert Hyperparameters.from_json(found.to_json()) == found


def test_null_drops_nothing():
    assert Hyperparameters.from_json({"drop_below": None}) == Hyperparameters()
    assert "drop_below" not in Hyperparameters().to_json()


@pytest.mark.parametrize("hyper", [FADES, Hyperparameters(rate=MixtureRate((Expert(), Expert())))])
def test_the_number_of_dropped_features_is_stored_if_there_are_any(hyper):
    state = empty(hyper)
    text = state.discount.text()
    assert "dropped" not in text
    learn(state, hyper, [])
    counted = state.discount.text() + " dropped 7"
    assert parse_evidence(counted).dropped == 7
    assert parse_evidence(counted).text() == counted
    for wrong in (" dropped -7", " dropped x", " dropped 7 7"):
        with pytest.raises(FormatError, match="discount"):
            parse_evidence(state.discount.text() + wrong)
