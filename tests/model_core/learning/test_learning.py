import math
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from model_core.examples.batch import ExampleBatch
from model_core.kernels.numerics import residual, sigmoids
from model_core.learning.hyperparameters import AdaptiveRate, GammaRate, Hyperparameters, ScalarRate
from model_core.learning.rounds import learn_batch, predict_batch, probabilities_with, warm_up
from model_core.learning.schedules import Constant, Custom, InvSqrt, Once, OverT, Xiao
from model_core.learning.state import ModelState
from model_core.learning.update import (
    coefficients,
    curvature,
    linear,
    prox,
    psi_in_force,
    psi_of_coordinate,
    psi_of_round,
    state_of_point,
)

BITS = 4

hypers = st.builds(
    Hyperparameters,
    st.sampled_from(["ftrl", "rda", "comid", "aogd"]),
    st.sampled_from(["first_order", "implicit"]),
    st.sampled_from([AdaptiveRate(), AdaptiveRate(1.0, 0.0), GammaRate(0.9, 1.5), ScalarRate(2.0, 4.0)]),
    st.sampled_from([Constant(), OverT(50), Once(), InvSqrt(), Xiao(1.0), Custom((1.0, 0.5))]),
    l1=st.sampled_from([0.0, 0.01, 0.5]),
    l2=st.sampled_from([0.0, 0.1]),
    psi_l2=st.sampled_from([0.0, 0.1]),
    box=st.sampled_from([None, 0.2]),
)


ORDINARY_WEIGHTS = st.floats(0, 100)
DEFAULT = Hyperparameters()


def example_lists(values, weights=ORDINARY_WEIGHTS):
    feature = st.tuples(st.integers(0, 2**32 - 1), values)
    return st.lists(
        st.tuples(st.lists(feature, max_size=6), st.sampled_from([0, 1]), weights), min_size=1, max_size=12
    )


def batch_of(rows) -> ExampleBatch:
    encoded = [([h for h, _ in row], [v for _, v in row]) for row, _, _ in rows]
    return ExampleBatch.from_encoded(encoded, [label for _, label, _ in rows], [w for *_, w in rows])


def bits_of(array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def learn(rows, hyper=DEFAULT, bias=False, offset=0.0, state=None):
    state = state or ModelState.empty(BITS)
    return state, learn_batch(state, hyper, bias, offset, batch_of(rows))


@settings(max_examples=200)
@given(example_lists(st.floats(-10, 10)), hypers, st.booleans(), st.data())
def test_the_batching_changes_no_bit(rows, hyper, bias, data):
    whole, learned = learn(rows, hyper, bias, 0.3)
    cut = data.draw(st.integers(0, len(rows)))
    batch = batch_of(rows)
    for cuts in ([0, cut, len(rows)], range(len(rows) + 1)):
        state, margins = ModelState.empty(BITS), []
        for start, stop in pairwise(cuts):
            margins.append(learn_batch(state, hyper, bias, 0.3, batch.slice(start, stop)).margins)
        assert state.digest() == whole.digest()
        assert bits_of(np.concatenate(margins)) == bits_of(learned.margins)


def learned_one_by_one(rows, hyper, bias, offset):
    """Margins and {slot: (z, n)} by the equations of `update`, one coordinate after the other."""
    c, margins = coefficients(hyper, bias, offset), []
    state: dict[int, tuple[float, float]] = {}
    for t, (row, label, weight) in enumerate(rows, 1):
        theta = {2**BITS: 1.0} if bias else {}
        for h, v in row:
            theta[h % 2**BITS] = theta.get(h % 2**BITS, 0.0) + v
        slots = list(theta)
        before, now, after = psi_in_force(c, t - 1), psi_of_round(c, t), psi_in_force(c, t)
        z, n = ([state.get(slot, (0.0, 0.0))[i] for slot in slots] for i in range(2))
        q = [curvature(c, before, n_j) for n_j in n]
        x = [prox(z[j], q[j], psi_of_coordinate(c, before, j)) for j in range(len(slots))]
        margin = offset
        for j, slot in enumerate(slots):
            margin += theta[slot] * x[j]
        margins.append(margin)
        r = weight * residual(margin, label)
        for j, slot in enumerate(slots):
            g, own = r * theta[slot], psi_of_coordinate(c, now, j)
            n_new = n[j] + g * g
            q_new = curvature(c, now, n_new)
            z_new = linear(c.family, z[j], x[j], q[j], q_new, own.l2) + g
            if hyper.family in ("comid", "aogd"):
                z_new = state_of_point(prox(z_new, q_new, own), q_new, psi_of_coordinate(c, after, j))
            state[slot] = (z_new, n_new)
    return margins, state


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 2**BITS - 1), st.floats(0.1, 10)), max_size=14),
            st.sampled_from([0, 1]),
            ORDINARY_WEIGHTS,
        ),
        max_size=12,
    ),
    hypers,
    st.booleans(),
)
def test_several_coordinates_at_a_time_have_the_bits_of_one_at_a_time(rows, hyper, bias):
    hyper = replace(hyper, update="first_order")
    assume(not coefficients(hyper, bias, 0.3).dense)
    state, learned = learn(rows, hyper, bias, 0.3)
    margins, rows_by_slot = learned_one_by_one(rows, hyper, bias, 0.3)
    slots = sorted(rows_by_slot)
    assert bits_of(learned.margins) == bits_of(np.array(margins))
    assert state.seen_slots().tolist() == slots
    assert bits_of(state.rows_at(np.array(slots, np.uint32))) == b"".join(
        bits_of(np.array(rows_by_slot[slot])) for slot in slots
    )


@settings(max_examples=200)
@given(
    example_lists(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1.7e308)),
    hypers,
    st.booleans(),
)
def test_extreme_examples_leave_a_finite_state_and_are_rounds(rows, hyper, bias):
    state, learned = learn(rows, hyper, bias)
    assert np.isfinite(state.rows).all()
    assert (state.rows[:, 1] >= 0).all()
    assert state.t == len(rows)
    assert np.isfinite(learned.margins[learned.skipped == 0]).all()


@pytest.mark.parametrize(
    ("value", "weight"),
    [
        (1e308, 1e308),
        (1e200, 1.0),
        (math.inf, 1.0),
        (math.nan, 1.0),
        (1.0, -1.0),
        (1.0, math.nan),
        (1.0, math.inf),
    ],
)
@pytest.mark.parametrize("family", ["ftrl", "rda", "comid", "aogd"])
@pytest.mark.parametrize("update", ["first_order", "implicit"])
def test_an_update_that_would_not_be_finite_changes_no_feature(value, weight, family, update):
    hyper = Hyperparameters(family, update, box=0.5)
    state, _ = learn([([(1, 1.0)], 1, 1.0)], hyper)
    before, seen = state.rows.copy(), state.features_seen
    state.take_changed()
    learned = learn([([(1, value), (2, 1.0)], 0, weight)], hyper, state=state)[1]
    assert learned.skipped.tolist() == [1]
    assert np.array_equal(state.rows, before)
    assert (state.t, state.features_seen, state.changes) == (2, seen, 0)


@given(example_lists(st.floats(-10, 10)), hypers)
def test_features_in_one_slot_add_up_before_anything_else(rows, hyper):
    added = []
    for row, label, weight in rows:
        sums: dict[int, float] = {}
        for h, v in row:
            if v != 0:
                sums[h % 2**BITS] = sums.get(h % 2**BITS, 0.0) + v
        added.append((list(sums.items()), label, weight))
    state, learned = learn(rows, hyper)
    wanted, want = learn(added, hyper)
    assert state.digest() == wanted.digest()
    assert bits_of(learned.margins) == bits_of(want.margins)


def test_exact_zeros_vanish():
    state, _ = learn([([(1, 0.0), (2, -0.0), (3, 1.0), (3, -1.0)], 1, 1.0)])
    assert state.features_seen == 0
    assert state.t == 1


def test_examples_of_weight_zero_and_without_features_are_rounds():
    state, _ = learn([([(1, 2.0)], 1, 0.0), ([], 0, 1.0)])
    assert state.t == 2
    assert state.seen_slots().tolist() == [1]
    assert not state.rows.any()


def test_all_values_one_is_the_same_as_no_values():
    rows = [([(1, 1.0), (2, 1.0)], 1, 1.0), ([(1, 1.0)], 0, 1.0)]
    plain = ExampleBatch.from_encoded([([1, 2], None), ([1], None)], [1, 0])
    state = ModelState.empty(BITS)
    learn_batch(state, Hyperparameters(), True, 0.0, plain)
    assert state.digest() == learn(rows, bias=True)[0].digest()


def test_the_offset_is_the_first_prediction_and_no_weight():
    offset = math.log(0.002 / 0.998)
    learned = learn([([(1, 1.0)], 0, 1.0)], bias=True, offset=offset)[1]
    assert learned.margins.tolist() == [offset]
    c = coefficients(Hyperparameters(), True, offset)
    p = probabilities_with(ModelState.empty(BITS), c, batch_of([([(1, 1.0)], 0, 1.0)]))
    assert p[0] == pytest.approx(0.002, rel=1e-14)


@given(example_lists(st.floats(-10, 10)), hypers, st.booleans())
def test_the_progressive_prediction_equals_predict_before_it(rows, hyper, bias):
    state = ModelState.empty(BITS)
    for i in range(len(rows)):
        one = batch_of(rows).slice(i, i + 1)
        margins = predict_batch(state, hyper, bias, 0.3, one)
        c = coefficients(hyper, bias, 0.3)
        assert bits_of(probabilities_with(state, c, one)) == bits_of(sigmoids(margins))
        assert bits_of(learn_batch(state, hyper, bias, 0.3, one).margins) == bits_of(margins)


@given(
    example_lists(st.floats(-3, 3), st.floats(0, 5)), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.5])
)
def test_the_default_family_is_algorithm_1_of_mcmahan_2013(rows, l1, l2):
    alpha, beta = 0.5, 1.0
    state, learned = learn(rows, Hyperparameters(rate=AdaptiveRate(alpha, beta), l1=l1, l2=l2))
    z, n = np.zeros(2**BITS), np.zeros(2**BITS)
    for (row, y, c), margin in zip(rows, learned.margins, strict=True):
        x: dict[int, float] = {}
        for h, v in row:
            x[h % 2**BITS] = x.get(h % 2**BITS, 0.0) + v
        w = {
            i: 0.0
            if abs(z[i]) <= l1
            else -(z[i] - math.copysign(l1, z[i])) / ((beta + math.sqrt(n[i])) / alpha + l2)
            for i in x
        }
        wx = sum(w[i] * x[i] for i in x)
        assert margin == pytest.approx(wx, rel=1e-9, abs=1e-9)
        for i, v in x.items():
            g = c * (1 / (1 + math.exp(-wx)) - y) * v
            sigma = (math.sqrt(n[i] + g * g) - math.sqrt(n[i])) / alpha
            z[i] += g - sigma * w[i]
            n[i] += g * g
    np.testing.assert_allclose(state.rows[:-1, 0], z, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state.rows[:-1, 1], n, rtol=1e-9, atol=1e-9)


@given(example_lists(st.floats(-3, 3), st.floats(0, 1e4)), st.sampled_from(["ftrl", "rda", "comid", "aogd"]))
def test_an_implicit_step_solves_its_equation(rows, family):
    """At a fixed Q, without penalty, x moves by -r theta / Q, r = weight (sigmoid(margin after it) - y)."""
    hyper = Hyperparameters(family, "implicit", GammaRate(1e6, 2.0), Constant(), l1=0.0)
    state = ModelState.empty(BITS)
    for i, (_, label, weight) in enumerate(rows):
        one = batch_of(rows).slice(i, i + 1)
        slots = np.arange(2**BITS, dtype=np.uint32)
        before = state.weights(slots, hyper)
        learn_batch(state, hyper, False, 0.0, one)
        moved = state.weights(slots, hyper) - before
        theta = np.zeros(2**BITS)
        np.add.at(theta, one.hashes % 2**BITS, one.values if one.values.size else 1.0)
        after = predict_batch(state, hyper, False, 0.0, one)[0]
        r = weight * (
            -1 / (1 + math.exp(min(after, 700))) if label else 1 / (1 + math.exp(-max(after, -700)))
        )
        np.testing.assert_allclose(moved, -r * theta / 2.0, rtol=1e-6, atol=1e-9)


DIGESTS = """
import numpy as np
from model_core.examples.batch import ExampleBatch
from model_core.learning.hyperparameters import GammaRate, Hyperparameters
from model_core.learning.rounds import learn_batch
from model_core.kernels.numerics import log_losses
from model_core.learning.schedules import InvSqrt
from model_core.learning.state import ModelState
from model_core.learning.update import (
    coefficients,
    curvature,
    linear,
    prox,
    psi_in_force,
    psi_of_coordinate,
    psi_of_round,
    state_of_point,
)

rng = np.random.default_rng(7)
r, k = 3000, 20
hashes, values = rng.integers(0, 2**32, r * k, np.uint32), rng.random(r * k) * 4 - 2
labels = (values.reshape(r, k)[:, 0] > 0.5).astype(np.float64)
batch = ExampleBatch(np.arange(r + 1) * k, hashes, values, labels, rng.random(r))
for family in ("ftrl", "rda", "comid", "aogd"):
    for update in ("first_order", "implicit"):
        state = ModelState.empty(8)
        hyper = Hyperparameters(family, update, GammaRate(0.5, 1.5), InvSqrt(), l1=0.01, box=0.5)
        learned = learn_batch(state, hyper, True, -1.0, batch)
        print(state.digest(), log_losses(learned.margins, labels).sum().hex())
"""


def digests(**environment) -> str:
    repository = Path(__file__).resolve().parents[3]
    run = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        env={**os.environ, "PYTHONPATH": str(repository), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert len(run.stdout.split()) == 16
    return run.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_cpu_without_fma_and_vectors_gets_the_same_bits():
    here = digests()
    # glibc took the names with _Usable until 2.32.
    tunables = (
        "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F,-AVX2_Usable,-FMA_Usable,-FMA4_Usable,-AVX512F_Usable"
    )
    assert digests(GLIBC_TUNABLES=tunables) == here
    assert digests(GLIBC_TUNABLES=tunables, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == here


def test_after_the_warm_up_nothing_is_compiled():
    from model_core.examples import records
    from model_core.learning import rounds, rows

    warm_up()
    kernels: list[Any] = [
        rounds._learn,
        rounds._predict,
        records.pack,
        records.unpack,
        rows.readings,
    ]
    compiled = [len(kernel.signatures) for kernel in kernels]
    examples = [([(1, 0.5)], 1, 2.0)]
    model, _ = learn(examples, Hyperparameters("aogd", schedule=Custom((1.0,)), box=1.0))
    batch = ExampleBatch.concatenate(
        [batch_of(examples), ExampleBatch.from_bytes(batch_of(examples).to_bytes())]
    )
    predict_batch(model, Hyperparameters(), True, -1.0, batch)
    model.weights(model.seen_slots(), Hyperparameters())
    assert [len(kernel.signatures) for kernel in kernels] == compiled


def test_features_that_cancel_change_nothing_in_dense_rounds():
    hyper = Hyperparameters.from_json({"family": "comid", "schedule": {"kind": "constant"}, "psi_l2": 0.1})
    states = [ModelState.empty(4), ModelState.empty(4)]
    plain = ([5, 9], [1.0, 1.0])
    for state, second in zip(states, [plain, ([5, 6, 6, 9], [1.0, 1.0, -1.0, 1.0])], strict=True):
        learn_batch(state, hyper, True, 0.0, ExampleBatch.from_encoded([([5, 6, 9], None)], [1]))
        learn_batch(state, hyper, True, 0.0, ExampleBatch.from_encoded([second], [0]))
    assert states[0].digest() == states[1].digest()
