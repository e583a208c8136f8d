"""A mixture: the golden vectors, its experts as they are alone, its weights, and its guarantee."""

import inspect
import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_core.errors import FormatError, InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract, Limits
from model_core.kernels.numerics import log_losses
from model_core.learning.census import take_census
from model_core.learning.explanation import explain, naming_encoder
from model_core.learning.hyperparameters import AdaptiveRate, Expert, HalfLife, Hyperparameters, MixtureRate
from model_core.learning.mixture import learn_mixture, predict_mixture
from model_core.learning.rounds import learn_batch, predict_batch
from model_core.learning.state import Mixture, ModelState, parse_evidence
from model_core.learning.step import Prior
from model_core.learning.update import MixtureTerms
from tests.model_core.learning.test_golden import assert_close, unit
from tests.support.golden import cases_of, hyper_of
from tests.support.rounds import discount_of, mixture_of

BITS = 4
MILLENNIUM = 1_000_000_000_000

experts = st.builds(
    Expert,
    st.builds(AdaptiveRate, st.sampled_from([0.03, 0.1, 1.0, 10.0]), st.sampled_from([0.0, 0.1, 1.0])),
    st.sampled_from([0.0, 0.05, 0.5]),
)


@st.composite
def mixtures(draw):
    unit = draw(st.sampled_from(["examples", "seconds"]))
    half_lives = st.sampled_from([None, HalfLife(unit, 1.0), HalfLife(unit, 20.0), HalfLife(unit, 1e6)])
    found = draw(st.lists(st.tuples(experts, half_lives), min_size=2, max_size=8))
    rate = MixtureRate(
        tuple(Expert(one.rate, one.l1, half_life) for one, half_life in found),
        draw(st.sampled_from([0.0, 1e-4, 0.1])),
    )
    return Hyperparameters(
        rate=rate, l2=draw(st.sampled_from([0.0, 0.1])), box=draw(st.sampled_from([None, 0.3]))
    )


streams = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 2**32 - 1), st.floats(-3, 3)), max_size=4),
        st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)),
        st.floats(0, 10),
        st.sampled_from([-5_000, 0, 1, 400, 60_000, 250_000]),
    ),
    min_size=1,
    max_size=30,
)


def batch_of(stream) -> ExampleBatch:
    times = np.cumsum([MILLENNIUM, *(gap for *_, gap in stream)])[1:].tolist()
    encoded = [([h for h, _ in row], [v for _, v in row]) for row, *_ in stream]
    return ExampleBatch.from_encoded(encoded, [r[1] for r in stream], [r[2] for r in stream], times)


def empty(hyper: Hyperparameters, bits: int = BITS) -> ModelState:
    return ModelState.empty(bits, len(hyper.experts))


def log_sum(values) -> float:
    largest = max(values)
    return largest + math.log(sum(math.exp(v - largest) for v in values))


@pytest.mark.parametrize("case", cases_of("golden_mixture.json"))
def test_the_golden_case_is_reproduced(case):
    hyper = Hyperparameters.from_json(hyper_of(case))
    assert hyper.to_json() == hyper_of(case)
    examples, want, tol = case["examples"], case["expect"], case["tol"]
    indices = sorted({index for example in examples for index in example["indices"]})
    slot_of = {index: slot for slot, index in enumerate(indices)}
    batch = ExampleBatch.from_encoded(
        [([slot_of[i] for i in e["indices"]], e["values"]) for e in examples],
        [e["label"] for e in examples],
        [e["weight"] for e in examples],
        [None if "time" not in e else round(1000 * e["time"]) for e in examples],
    )
    state, alone = empty(hyper), [ModelState.empty(BITS) for _ in hyper.experts]
    for i in range(len(batch)):
        one = batch.slice(i, i + 1)
        margin = learn_batch(state, hyper, False, 0.0, one).margins
        assert_close(margin, want["margin"][i], tol, unit(want["margin"]))
        margins = [
            learn_batch(model, own, False, 0.0, one).margins[0]
            for model, own in zip(alone, hyper.experts, strict=True)
        ]
        assert_close(margins, want["expert_margins"][i], tol, unit(want["expert_margins"][i]))
        assert_close(mixture_of(state).weights.tolist(), want["weights"][i], tol, 1.0)


@settings(max_examples=200)
@given(mixtures(), streams)
def test_each_expert_is_what_it_is_alone_to_the_last_bit(hyper, stream):
    batch, state = batch_of(stream), empty(hyper)
    learned = learn_batch(state, hyper, True, 0.1, batch)
    slots = np.arange(2**BITS + 1, dtype=np.uint32)
    z, n = np.hsplit(state.rows_at(slots), 2)
    margins = []
    for e, own in enumerate(hyper.experts):
        alone = ModelState.empty(BITS)
        margins.append(learn_batch(alone, own, True, 0.1, batch).margins)
        assert alone.rows.tobytes() == np.stack([z[:, e], n[:, e]], axis=1).tobytes()
        assert (discount_of(alone).scale, discount_of(alone).folds) == (
            mixture_of(state).scales[e],
            mixture_of(state).folds[e],
        )
        readings = state.readings_of_experts(slots, hyper)[:, e]
        assert np.array_equal(readings, alone.readings(slots, own))
    assert not learned.skipped.any()
    served, weights = mixed_by_hand(hyper, np.array(margins), batch)
    np.testing.assert_allclose(learned.margins, served, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mixture_of(state).weights.tolist(), weights, rtol=1e-9, atol=1e-12)
    assert not state.rows[:, len(hyper.experts) : state.rows.shape[1] // 2].any()


def mixed_by_hand(hyper, margins, batch):
    """Served margins float64[r] and the weights after them, from the experts' margins float64[K, r]."""
    count, share = len(margins), hyper.rate.share
    log_weights, largest, served = np.full(count, -math.log(count)), 1.0, []
    for i in range(len(batch)):
        y, losses = batch.labels[i], [np.logaddexp(0.0, sign * margins[:, i]) for sign in (1.0, -1.0)]
        served.append(log_sum(log_weights - losses[1]) - log_sum(log_weights - losses[0]))
        largest = max(largest, batch.weights[i] if batch.weights.size else 1.0)
        weight = batch.weights[i] if batch.weights.size else 1.0
        log_weights = log_weights - weight / largest * ((1.0 - y) * losses[0] + y * losses[1])
        log_weights = log_weights - log_sum(log_weights)
        if share:
            log_weights = np.logaddexp(log_weights + math.log1p(-share), math.log(share / count))
    return served, np.exp(log_weights)


@settings(max_examples=200)
@given(mixtures(), streams, st.data())
def test_batching_and_restarts_change_no_bit(hyper, stream, data):
    batch, whole = batch_of(stream), empty(hyper)
    learned = learn_batch(whole, hyper, True, 0.1, batch)
    assert np.array_equal(learned.skipped, np.zeros(len(batch)))
    cut = data.draw(st.integers(0, len(batch)))
    for cuts in ([0, cut, len(batch)], range(len(batch) + 1)):
        state, mirror, margins = empty(hyper), empty(hyper), []
        for start, stop in pairwise(cuts):
            part = batch.slice(start, stop)
            predicted = predict_batch(state, hyper, True, 0.1, batch.slice(start, min(start + 1, stop)))
            margins.append(learn_batch(state, hyper, True, 0.1, part).margins)
            if not any(one.forgetting for one in hyper.rate.experts):
                assert np.array_equal(predicted, margins[-1][:1])
            mirror.forget_until(parse_evidence(state.discount.text()))
            mirror.apply_rows(*state.take_changed())
            mirror.t = state.t
            assert mirror.digest() == state.digest()
            assert mirror.features_seen == state.features_seen
        assert state.digest() == whole.digest()
        assert np.concatenate(margins).tobytes() == learned.margins.tobytes()


@settings(max_examples=100)
@given(mixtures(), streams)
def test_the_loss_is_at_most_that_of_the_best_expert_and_ln_k(hyper, stream):
    rate = MixtureRate(hyper.rate.experts, 0.0)
    hyper = Hyperparameters(rate=rate, l2=hyper.l2, box=hyper.box)
    batch = batch_of([(row, label, 1.0, gap) for row, label, _, gap in stream])
    losses = [
        log_losses(learn_batch(empty(own), own, True, 0.0, batch).margins, batch.labels).sum()
        for own in (hyper, *hyper.experts)
    ]
    assert losses[0] <= min(losses[1:]) + math.log(len(hyper.experts)) + 1e-9


@settings(max_examples=100)
@given(mixtures(), streams, st.sampled_from([1e-4, 1e-2, 0.1, 0.5]))
def test_the_loss_is_within_the_bound_of_the_best_sequence_of_experts(hyper, stream, share):
    """Fixed share: ln K + S ln(K/s) - (T - 1 - S) ln(1 - s) above the best sequence with S changes."""
    hyper = Hyperparameters(rate=MixtureRate(hyper.rate.experts, share), l2=hyper.l2, box=hyper.box)
    batch = batch_of([(row, label, 1.0, gap) for row, label, _, gap in stream])
    mixed, *alone = (
        log_losses(learn_batch(empty(own), own, True, 0.0, batch).margins, batch.labels)
        for own in (hyper, *hyper.experts)
    )
    count, rounds = len(alone), len(batch)
    # float64[changes, experts]: the least loss so far of a sequence that ends with this expert
    best = np.full((rounds, count), math.inf)
    best[0] = 0.0
    for losses in np.array(alone).T:
        moved = np.full_like(best, math.inf)
        moved[1:] = best[:-1].min(axis=1, keepdims=True)
        best = np.minimum(best, moved) + losses
    for changes, least in enumerate(best.min(axis=1)):
        kept = -(rounds - 1 - changes) * math.log1p(-share)
        allowed = math.log(count) + changes * math.log(count / share) + kept
        assert mixed.sum() <= least + allowed + 1e-9


def learn_one(state, hyper, label, weight=1.0, value=1.0):
    example = ExampleBatch.from_encoded([([1], [value])], [label], [weight])
    return learn_batch(state, hyper, False, 0.0, example)


TWO = Hyperparameters(rate=MixtureRate((Expert(AdaptiveRate(0.1), 0.0), Expert(AdaptiveRate(1.0), 0.0)), 0.0))


def test_the_expert_that_predicts_better_gains_weight():
    state = empty(TWO)
    for _ in range(50):
        learn_one(state, TWO, 1)
    slow, fast = mixture_of(state).weights.tolist()
    assert fast > 0.9
    assert slow + fast == pytest.approx(1.0)


def test_tails_are_as_accurate_as_the_experts():
    state = empty(TWO)
    state.rows[1, 0:2], state.rows[1, 4:6] = -1e5, 1.0  # weights 5,000 and 50,000
    prediction = predict_batch(
        state, TWO, False, 0.0, ExampleBatch.from_encoded([([1], [1.0]), ([1], [-1.0])])
    )
    assert prediction.tolist() == [5000.0 + math.log(2.0), -5000.0 - math.log(2.0)]


def test_a_round_that_one_expert_cannot_finish_is_skipped_by_all():
    state = empty(TWO)
    learn_one(state, TWO, 1)
    before, rows = state.discount, state.rows.copy()
    for weight, value in ((1e200, 1.0), (1.0, 1e200), (math.nan, 1.0), (-1.0, 1.0)):
        assert learn_one(state, TWO, 0, weight, value).skipped.tolist() == [1]
    assert state.discount == before
    assert np.array_equal(state.rows, rows)
    assert state.t == 5


def test_a_feature_counts_if_any_expert_has_a_weight_for_it():
    rate = MixtureRate(
        (Expert(AdaptiveRate(), 10.0), Expert(AdaptiveRate(), 0.0), Expert(AdaptiveRate(), 10.0))
    )
    hyper = Hyperparameters(rate=rate)
    state = empty(hyper)
    learn_one(state, hyper, 1)
    weights = state.weights(np.array([1], np.uint32), hyper)
    assert weights[0] == pytest.approx(mixture_of(state).weights.tolist()[1] / 30)
    census = take_census(state, hyper)
    assert state.nonzero(hyper) == census.nonzero == 1
    assert census.largest_weight == pytest.approx(weights[0])
    assert census.features_seen == 1


@settings(max_examples=50)
@given(mixtures(), streams)
def test_an_explanation_says_what_the_mixture_adds(hyper, stream):
    state, contract = empty(hyper, 10), HashContract(bits=10, numeric="raw")
    learn_batch(state, hyper, True, 0.0, batch_of(stream))
    features = {"a": "x", "b": 2.0, "c": ["y", "z"]}
    explanation = explain(state, hyper, contract, naming_encoder(contract, Limits()).encode(features))
    total = explanation.offset + sum(part.contribution for part in explanation.parts)
    assert total + explanation.mixing == pytest.approx(explanation.margin, rel=1e-9, abs=1e-9)
    assert [one.weight for one in explanation.experts] == mixture_of(state).weights.tolist()
    mean = sum(one.weight * one.probability for one in explanation.experts)
    assert mean == pytest.approx(explanation.probability)


def test_the_table_of_a_mixture_begins_at_a_cache_line():
    for count, lanes in ((2, 4), (4, 4), (5, 8), (8, 8)):
        state = ModelState.empty(BITS, count)
        assert state.rows.shape == (2**BITS + 1, 2 * lanes)
        assert state.rows.ctypes.data % 64 == 0
        assert state.rows_at(np.array([3], np.uint32)).shape == (1, 2 * count)


TWO_EXPERTS = [{"alpha": 1.0, "beta": 0.1, "l1": 0.0, "half_life_examples": 1000.0}, {"alpha": 0.1}]


def mixture_json(**changes):
    return {"rate": {"kind": "mixture", "experts": TWO_EXPERTS} | changes}


def test_a_mixture_makes_the_round_trip():
    hyper = Hyperparameters.from_json(mixture_json())
    written = hyper.to_json()
    assert written["rate"] == {
        "kind": "mixture",
        "experts": [TWO_EXPERTS[0], {"alpha": 0.1, "beta": 1.0, "l1": 0.5}],
        "share": 1e-4,
    }
    assert not {"l1", "forgetting"} & written.keys()
    assert Hyperparameters.from_json(json.loads(json.dumps(written))) == hyper
    assert hash(hyper) == hash(Hyperparameters.from_json(written))


def test_one_expert_is_a_model_without_a_mixture():
    hyper = Hyperparameters.from_json(mixture_json(experts=TWO_EXPERTS[:1]) | {"l2": 0.5})
    assert hyper == Hyperparameters(
        rate=AdaptiveRate(1.0, 0.1), l1=0.0, l2=0.5, forgetting=HalfLife("examples", 1000.0)
    )


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"family": "rda"}, "family", "must be ftrl"),
        ({"update": "implicit"}, "update", "must be first_order"),
        ({"schedule": {"kind": "constant"}}, "schedule", "must be once"),
        ({"l1": 0.5}, "l1", "set l1 in rate.experts"),
        ({"forgetting": {"half_life_examples": 9}}, "forgetting", "set half_life_examples or half_life_sec"),
        (mixture_json(experts=[]), "rate.experts", "a list of 2 to 8"),
        (mixture_json(experts=[{}] * 9), "rate.experts", "a list of 2 to 8"),
        (mixture_json(experts={}), "rate.experts", "a list of 2 to 8"),
        (mixture_json(experts=[{}, {"alpha": 0}]), "rate.experts.1.alpha", "a number from 1e-09"),
        (mixture_json(experts=[{}, {"gamma": 1}]), "rate.experts.1.gamma", "unknown; allowed: alpha"),
        (mixture_json(experts=[{}, {"half_life_seconds": 0}]), "rate.experts.1.half_life_seconds", "from 1"),
        (
            mixture_json(experts=[{"half_life_seconds": 60, "half_life_examples": 9}, {}]),
            "rate.experts.0",
            "must have one of",
        ),
        (mixture_json(experts=[{"half_life_seconds": 60}, *TWO_EXPERTS]), "rate.experts", "of one unit"),
        (mixture_json(share=0.6), "rate.share", "from 0 to 0.5"),
        (mixture_json(share=-0.1), "rate.share", "from 0 to 0.5"),
    ],
)
def test_what_is_no_mixture_is_refused_with_words(change, path, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        Hyperparameters.from_json(mixture_json() | change)
    assert ".".join(map(str, refused.value.path)) == path


@pytest.mark.parametrize(
    "text",
    [
        "-1 0x1p+0 0x1p-3 0 0x1p+0 0x0p+0",
        "-1 0x1p+0 0x1p-3 0 0x1p-1 -0x1p-1 0x1p-3 0 0x1p-1",
        "-1 0x1p+0 0x0p+0 0 0x1p-1 -0x1p-1 0x1p-3 0 0x1p-1 -0x1p-1",
        "-1 0x1p+0 0x1p-3 -1 0x1p-1 -0x1p-1 0x1p-3 0 0x1p-1 -0x1p-1",
        "-1 0x1p+0 0x1p-3 0 0x1p-1 0x1p-1 0x1p-3 0 0x1p-1 -0x1p-1",
        "-1 0x1p+0 0x1p-3 0 0x1p-2 -0x1p-1 0x1p-3 0 0x1p-1 -0x1p-1",
        "-1 0x1p-1 0x1p-3 0 0x1p-1 -0x1p-1 0x1p-3 0 0x1p-1 -0x1p-1",
        "-1 inf 0x1p-3 0 0x1p-1 -0x1p-1 0x1p-3 0 0x1p-1 -0x1p-1",
        "-1 0x1p+0 0x1p-3 0 0x1p-1 nan 0x1p-3 0 0x1p-1 -0x1p-1",
        f"-1 0x1p+0 0x1p-3 {2**70} 0x1p-1 -0x1p-1 0x1p-3 0 0x1p-1 -0x1p-1",
    ],
)
def test_what_is_no_mixture_state_is_refused(text):
    with pytest.raises(FormatError, match="discount"):
        parse_evidence(text)


def test_the_stored_form_is_exact():
    mixture = Mixture(
        np.array([0.3, 1.0]),
        np.array([7, 0]),
        np.array([0.0, 1.0]),
        np.array([-math.inf, 0.0]),
        largest=2.5,
        time=MILLENNIUM,
    )
    again = parse_evidence(mixture.text())
    assert again == mixture
    assert again != Mixture.initial(2)
    assert hash(again) == hash(mixture)


@pytest.mark.parametrize("kernel", [predict_mixture, learn_mixture], ids=["predict", "learn"])
def test_kernels_take_the_fields_of_the_terms_and_of_the_prior_in_their_order(kernel):
    names = [*inspect.signature(kernel.py_func).parameters]
    for fields in (MixtureTerms._fields, Prior._fields):
        start = names.index(fields[0])
        assert names[start : start + len(fields)] == [*fields]
