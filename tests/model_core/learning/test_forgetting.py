"""Forgetting: lazy rows under one scale are the model whose every coordinate is discounted on every round."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_core.errors import FormatError, InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.kernels.numerics import residual
from model_core.learning.census import take_census
from model_core.learning.hyperparameters import AdaptiveRate, GammaRate, HalfLife, Hyperparameters
from model_core.learning.rounds import learn_batch, predict_batch
from model_core.learning.state import NOTHING_FORGOTTEN, Discount, ModelState, parse_evidence
from tests.support.rounds import discount_of

BITS = 4
SIZE = 2**BITS
MILLENNIUM = 1_000_000_000_000

hypers = st.builds(
    Hyperparameters,
    st.sampled_from(["ftrl", "rda"]),
    st.sampled_from(["first_order", "implicit"]),
    st.sampled_from([AdaptiveRate(), AdaptiveRate(1.0, 0.0), GammaRate(0.9, 1.5)]),
    l1=st.sampled_from([0.0, 0.01, 0.5]),
    l2=st.sampled_from([0.0, 0.1]),
    psi_l2=st.sampled_from([0.0, 0.1]),
    box=st.sampled_from([None, 0.2]),
    forgetting=st.builds(
        HalfLife, st.sampled_from(["examples", "seconds"]), st.sampled_from([1.0, 7.5, 1e3, 1e12])
    ),
)
gaps = st.sampled_from([-5_000, 0, 1, 400, 60_000, 250_000, 86_400_000])
streams = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 2**32 - 1), st.floats(-3, 3)), max_size=4),
        st.sampled_from([0, 1]),
        st.floats(0, 10),
        gaps,
    ),
    min_size=1,
    max_size=30,
)


def batch_of(stream) -> ExampleBatch:
    times = np.cumsum([MILLENNIUM, *(gap for *_, gap in stream)])[1:].tolist()
    encoded = [([h for h, _ in row], [v for _, v in row]) for row, *_ in stream]
    return ExampleBatch.from_encoded(encoded, [r[1] for r in stream], [r[2] for r in stream], times)


def all_weights(state, hyper):
    return state.weights(np.arange(SIZE + 1, dtype=np.uint32), hyper)


def dense_pass(hyper, batch):
    """Margins, z and n of first-order rounds that discount and read every coordinate, the bias last."""
    rate, half_life = hyper.rate, hyper.forgetting
    z, n = np.zeros(SIZE + 1), np.zeros(SIZE + 1)
    l1 = np.append(np.full(SIZE, hyper.l1), 0.0)
    l2 = np.append(np.full(SIZE, hyper.l2 + hyper.psi_l2), 0.0)
    box = np.append(np.full(SIZE, hyper.box or math.inf), math.inf)

    def curvature(n):
        if isinstance(rate, AdaptiveRate):
            return (rate.beta + np.sqrt(n)) / rate.alpha
        return np.maximum(rate.floor, np.sqrt(n) / rate.gamma)

    def read(z, n):
        q = curvature(n) + l2
        excess = np.maximum(np.abs(z) - l1, 0.0)
        return np.clip(-np.sign(z) * np.where(q > 0, excess / np.where(q > 0, q, 1.0), 0.0), -box, box)

    margins, newest = [], None
    for i in range(len(batch)):
        passed = 1.0 if half_life.unit == "examples" else 0.0
        if half_life.unit == "seconds":
            passed = 0.0 if newest is None else max(0, batch.event_times[i] - newest) / 1000.0
            newest = max(newest or 0, batch.event_times[i])
        d = 2.0 ** -(passed / half_life.length)
        z, n = d * z, d * d * n
        theta = np.zeros(SIZE + 1)
        theta[SIZE] = 1.0
        span = slice(batch.row_ptr[i], batch.row_ptr[i + 1])
        np.add.at(theta, batch.hashes[span] % SIZE, batch.values[span] if batch.values.size else 1.0)
        x = read(z, n)
        margins.append(theta @ x)
        g = (batch.weights[i] if batch.weights.size else 1.0) * residual(margins[-1], batch.labels[i]) * theta
        n_new = n + g * g
        z = z + g - ((curvature(n_new) - curvature(n)) * x if hyper.family == "ftrl" else 0.0)
        n = n_new
    return np.array(margins), z, n, read(z, n)


@settings(max_examples=200)
@given(streams, hypers)
def test_lazy_rounds_are_dense_ones(stream, hyper):
    if hyper.update == "implicit":
        hyper = Hyperparameters(**{**hyper.__dict__, "update": "first_order"})
    batch, state = batch_of(stream), ModelState.empty(BITS)
    margins, z, n, x = dense_pass(hyper, batch)
    learned = learn_batch(state, hyper, True, 0.0, batch)
    scale = discount_of(state).scale
    np.testing.assert_allclose(learned.margins, margins, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state.rows[:, 0] * scale, z, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state.rows[:, 1] * scale**2, n, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(all_weights(state, hyper), x, rtol=1e-7, atol=1e-9)


@settings(max_examples=200)
@given(streams, hypers, st.data())
def test_batching_and_restarts_change_no_bit(stream, hyper, data):
    batch, whole = batch_of(stream), ModelState.empty(BITS)
    learned = learn_batch(whole, hyper, True, 0.1, batch)
    cut = data.draw(st.integers(0, len(batch)))
    for cuts in ([0, cut, len(batch)], range(len(batch) + 1)):
        state, mirror, margins = ModelState.empty(BITS), ModelState.empty(BITS), []
        for start, stop in pairwise(cuts):
            margins.append(learn_batch(state, hyper, True, 0.1, batch.slice(start, stop)).margins)
            mirror.forget_until(parse_evidence(state.discount.text()))
            mirror.apply_rows(*state.take_changed())
            mirror.t = state.t
            assert mirror.digest() == state.digest()
        assert state.digest() == whole.digest()
        assert np.concatenate(margins).tobytes() == learned.margins.tobytes()


def learn_one(state, hyper, label, time=None, hashes=(1,)):
    example = ExampleBatch.from_encoded([(list(hashes), None)], [label], None, [time])
    return float(learn_batch(state, hyper, False, 0.0, example).margins[0])


def test_evidence_of_a_half_life_ago_counts_half():
    hyper = Hyperparameters(l1=0.0, forgetting=HalfLife("seconds", 3600))
    state = ModelState.empty(BITS)
    learn_one(state, hyper, 1, MILLENNIUM)
    learn_one(state, hyper, 1, MILLENNIUM + 3_600_000, hashes=(2,))
    scale = discount_of(state).scale
    assert (state.rows[1] * (scale, scale**2)).tolist() == pytest.approx([-0.25, 0.0625])
    assert discount_of(state).time == MILLENNIUM + 3_600_000


def test_time_that_goes_back_discounts_nothing():
    hyper = Hyperparameters(l1=0.0, forgetting=HalfLife("seconds", 1))
    state = ModelState.empty(BITS)
    for time in (MILLENNIUM, MILLENNIUM - 500_000, MILLENNIUM, None):
        learn_one(state, hyper, 1, time)
    assert state.discount == Discount(1.0, 0, MILLENNIUM)


def test_predictions_are_read_at_the_time_of_the_last_round():
    hyper = Hyperparameters(l1=0.0, forgetting=HalfLife("seconds", 60))
    state = ModelState.empty(BITS)
    learn_one(state, hyper, 1, MILLENNIUM)
    late = ExampleBatch.from_encoded([([1], None)], None, None, [MILLENNIUM + 86_400_000])
    assert predict_batch(state, hyper, False, 0.0, late)[0] == pytest.approx(1 / 30)


def test_a_feature_that_is_not_confirmed_leaves_the_model():
    hyper = Hyperparameters(l1=0.2, forgetting=HalfLife("examples", 5))
    state = ModelState.empty(BITS)
    learn_one(state, hyper, 1)
    assert state.nonzero(hyper) == 1
    for _ in range(8):
        learn_one(state, hyper, 1, hashes=())
    assert state.nonzero(hyper) == take_census(state, hyper).nonzero == 0


def test_without_penalty_only_the_learning_rate_grows_again():
    hyper = Hyperparameters(rate=AdaptiveRate(0.1, 0.0), l1=0.0, forgetting=HalfLife("examples", 5))
    state = ModelState.empty(BITS)
    learn_one(state, hyper, 1)
    slot = np.array([1], np.uint32)
    weight, curvature = state.readings(slot, hyper)[:, 0]
    for _ in range(5):
        learn_one(state, hyper, 1, hashes=())
    assert state.readings(slot, hyper)[:, 0].tolist() == pytest.approx([weight, curvature / 2])


def test_after_ages_everything_is_forgotten():
    hyper = Hyperparameters(l1=0.0, forgetting=HalfLife("seconds", 1))
    state = ModelState.empty(BITS)
    learn_one(state, hyper, 1, MILLENNIUM)
    learn_one(state, hyper, 0, 1_600_000_000_000, hashes=())
    assert not state.rows.any()
    assert learn_one(state, hyper, 1, 1_600_000_000_000) == 0.0
    assert 0.0 < discount_of(state).scale <= 1.0


def test_many_half_lives_leave_the_scale_in_its_range():
    hyper = Hyperparameters(forgetting=HalfLife("examples", 1))
    state = ModelState.empty(BITS)
    learn_batch(state, hyper, True, 0.0, ExampleBatch.from_encoded([([i], None) for i in range(1000)]))
    assert state.discount == Discount(2.0**-200, 4, -1)  # 1000 half-lives: 4 folds of 200 each
    assert np.isfinite(state.rows).all()


@pytest.mark.parametrize("text", ["1", "0x1p-3 1", "0x1p-3 x -1", "0x0p+0 0 -1", "0x1p+1 0 -1", "nan 0 -1"])
def test_what_is_no_discount_is_refused(text):
    with pytest.raises(FormatError, match="discount"):
        parse_evidence(text)


def test_a_model_that_never_forgot_stores_no_discount():
    state = ModelState.empty(BITS)
    learn_one(state, Hyperparameters(), 1, MILLENNIUM)
    assert state.discount == NOTHING_FORGOTTEN
    assert state.discount.text() == ""


@pytest.mark.parametrize(
    ("hyper", "path", "words"),
    [
        ({"family": "comid", "schedule": {"kind": "constant"}}, ["forgetting"], "family ftrl or rda"),
        ({"family": "aogd", "schedule": {"kind": "constant"}}, ["forgetting"], "family ftrl or rda"),
        ({"schedule": {"kind": "inv_sqrt"}}, ["forgetting"], "use schedule once"),
        ({"family": "rda", "rate": {"kind": "scalar", "G": 1, "D": 1}}, ["forgetting"], "gamma rate"),
        ({"forgetting": {}}, ["forgetting"], "must have one of"),
        ({"forgetting": {"half_life_examples": 9, "half_life_seconds": 9}}, ["forgetting"], "must have one"),
        ({"forgetting": {"half_life": 9}}, ["forgetting", "half_life"], "unknown"),
        ({"forgetting": 9}, ["forgetting"], "must be an object"),
        ({"forgetting": {"half_life_seconds": 0.5}}, ["forgetting", "half_life_seconds"], "from 1 to 1e"),
        ({"forgetting": {"half_life_seconds": True}}, ["forgetting", "half_life_seconds"], "a number"),
        ({"forgetting": {"half_life_examples": math.nan}}, ["forgetting", "half_life_examples"], "a number"),
    ],
)
def test_forgetting_elsewhere_is_refused_with_words(hyper, path, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        Hyperparameters.from_json({"forgetting": {"half_life_examples": 100}} | hyper)
    assert list(refused.value.path) == path


@pytest.mark.parametrize("forgetting", [{"half_life_examples": 50.0}, {"half_life_seconds": 86400.0}])
def test_a_half_life_makes_the_round_trip(forgetting):
    hyper = Hyperparameters.from_json({"forgetting": forgetting})
    assert hyper.to_json()["forgetting"] == forgetting
    assert Hyperparameters.from_json(hyper.to_json()) == hyper


def test_null_forgets_nothing():
    assert Hyperparameters.from_json({"forgetting": None}) == Hyperparameters()
    assert "forgetting" not in Hyperparameters().to_json()
