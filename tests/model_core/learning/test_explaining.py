"""An explanation agrees with the prediction that it explains, whatever the model."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import FeatureEncoder
from model_core.learning.explanation import BIAS, Explanation, NamedHash, explain, naming_encoder
from model_core.learning.hyperparameters import AdaptiveRate, GammaRate, Hyperparameters, ScalarRate, refusal
from model_core.learning.rounds import learn_batch, predict_batch, probabilities_with
from model_core.learning.schedules import Constant, Custom, InvSqrt, Once, OverT, Xiao
from model_core.learning.state import ModelState
from model_core.learning.step import FIXED, Prior
from model_core.learning.update import coefficients

LIMITS = Limits()
served_hypers = st.builds(
    Hyperparameters,
    st.sampled_from(["ftrl", "rda", "comid", "aogd"]),
    st.sampled_from(["first_order", "implicit"]),
    st.sampled_from([AdaptiveRate(), AdaptiveRate(1.0, 0.0), GammaRate(0.9, 1.5), ScalarRate(2.0, 4.0)]),
    st.sampled_from([Constant(), OverT(50), Once(), InvSqrt(), Xiao(1.0), Custom((1.0, 0.5))]),
    l1=st.sampled_from([0.0, 0.01, 0.1]),
    l2=st.sampled_from([0.0, 0.1]),
    psi_l2=st.sampled_from([0.0, 0.1]),
    box=st.sampled_from([None, 0.2]),
).filter(lambda hyper: refusal(hyper) is None)
contracts = st.builds(
    HashContract,
    bits=st.just(10),
    seed=st.sampled_from([0, 7]),
    types=st.sampled_from([{}, {"n": "category"}]),
    numeric=st.sampled_from(["bucket", "raw", "log"]),
    crosses=st.sampled_from([(), (("a", "b"),), (("a", "n"), ("a", "b", "n"))]),
    bias=st.booleans(),
    missing=st.sampled_from(["ignore", "indicator"]),
    prior_probability=st.sampled_from([None, 0.002, 0.9]),
)
texts = st.sampled_from(["x", "y", "z=1", "a\x1fb\\", "ż"])
values: st.SearchStrategy[Any] = st.one_of(
    texts, st.lists(texts, max_size=3), st.booleans(), st.none(), st.integers(-5, 5), st.floats(-3, 3)
)
feature_objects = st.dictionaries(st.sampled_from("abn"), values)
priors = st.sampled_from([FIXED, Prior(3.0, 100.0, 3.0, 103)])
examples = st.tuples(feature_objects, st.sampled_from([0, 1]), st.floats(0, 100))


def summed(explanation: Explanation) -> float:
    """Offset and contributions in the order of the parts, shared slots as one."""
    shared = {slot.slot: slot.contribution for slot in explanation.shared_slots}
    margin = explanation.offset
    for part in explanation.parts:
        if part.slot not in shared or part.value == 0.0:
            margin += part.contribution
        else:
            margin += shared[part.slot]
            shared[part.slot] = 0.0
    return margin


def trained(
    hyper: Hyperparameters, contract: HashContract, rows: list[Any], prior: Prior = FIXED
) -> ModelState:
    encoder, state = FeatureEncoder(contract), ModelState.empty(contract.bits, prior=prior)
    batch = ExampleBatch.from_encoded(
        [encoder.encode(row) for row, *_ in rows], [y for _, y, _ in rows], [w for *_, w in rows]
    )
    learn_batch(state, hyper, contract.bias, contract.prior_offset, batch)
    return state


@settings(max_examples=300)
@given(served_hypers, contracts, st.lists(examples, max_size=8), feature_objects, feature_objects, priors)
def test_an_explanation_adds_up_to_the_prediction_bit_for_bit(
    hyper: Hyperparameters,
    contract: HashContract,
    rows: list[Any],
    context: dict[str, Any],
    own: Any,
    prior: Prior,
) -> None:
    own = {name: value for name, value in own.items() if name not in context}
    state = trained(hyper, contract, rows, prior)
    (encoded,) = FeatureEncoder(contract).encode_instances(context, [own])
    batch = ExampleBatch.from_encoded([encoded])
    model = (hyper, contract.bias, contract.prior_offset)
    naming = naming_encoder(contract, LIMITS)
    named = naming.encode_within(naming.encode_context(context), own)
    assert named == encoded
    explanation = explain(state, hyper, contract, named)
    assert explanation.margin.hex() == float(predict_batch(state, *model, batch)[0]).hex()
    (probability,) = probabilities_with(state, coefficients(*model), batch).tolist()
    assert explanation.probability.hex() == probability.hex()
    assert summed(explanation).hex() == (explanation.margin + 0.0).hex()


@settings(max_examples=100)
@given(served_hypers, contracts, st.lists(examples, max_size=8), feature_objects)
def test_every_part_is_the_weight_and_the_state_of_its_slot(
    hyper: Hyperparameters, contract: HashContract, rows: list[Any], features: dict[str, Any]
) -> None:
    state = trained(hyper, contract, rows)
    explanation = explain(state, hyper, contract, naming_encoder(contract, LIMITS).encode(features))
    parts = explanation.parts
    assert [part.hash for part in parts[contract.bias :]] == FeatureEncoder(contract).encode(features).hashes
    for part in parts:
        slot = state.size if part.slot is None else part.slot
        assert part.hash is None or part.hash % state.size == slot
        assert state.weights(np.array([slot], np.uint32), hyper)[0] == part.weight
        assert state.rows[slot].tolist() == [part.z, part.n]
        assert part.contribution == part.value * part.weight


@given(feature_objects, contracts)
def test_names_are_the_texts_that_were_hashed(features: dict[str, Any], contract: HashContract) -> None:
    for named in naming_encoder(contract, LIMITS).encode(features).hashes:
        assert isinstance(named, NamedHash)
        again = FeatureEncoder(contract)._murmur(named.name.encode(), contract.seed)
        assert again == named


def explained(features: dict[str, Any], state: ModelState | None = None, **contract: Any) -> Explanation:
    made = HashContract.from_json({"bits": 10} | contract)
    encoded = naming_encoder(made, LIMITS).encode(features)
    return explain(state or ModelState.empty(10), Hyperparameters(), made, encoded)


def test_features_are_named_as_the_client_wrote_them() -> None:
    features = {"ad": "a17", "tags": ["x", "y"], "on": True, "hour": 14, "price": 2.5, "age": None}
    contract: dict[str, Any] = {
        "types": {"hour": "category"},
        "transforms": {"price": "raw"},
        "crosses": [["ad", "tags"]],
        "missing": "indicator",
    }
    names = [part.name for part in explained(features, **contract).parts]
    assert names == [
        BIAS,
        *("ad=a17", "tags=x", "tags=y", "on=true", "hour=14", "price", "age="),
        *("ad^tags=a17\x1fx", "ad^tags=a17\x1fy"),
    ]


def two_texts_in_one_slot(contract: HashContract) -> list[str]:
    by_slot: dict[int, str] = {}
    for i in range(contract.size + 1):
        (h,) = FeatureEncoder(contract).encode({"a": f"x{i}"}).hashes
        other = by_slot.setdefault(h % contract.size, f"x{i}")
        if other != f"x{i}":
            return [other, f"x{i}"]
    raise AssertionError("more texts than slots, and no two in one")


def test_features_that_share_a_slot_are_reported_and_add_up() -> None:
    contract = HashContract(bits=10)
    pair = two_texts_in_one_slot(contract)
    state = trained(Hyperparameters(l1=0.0), contract, [({"a": pair}, 1, 1.0)])
    encoded = naming_encoder(contract, LIMITS).encode({"a": pair, "b": "alone"})
    explanation = explain(state, Hyperparameters(l1=0.0), contract, encoded)
    (shared,) = explanation.shared_slots
    assert shared.names == [f"a={text}" for text in pair]
    first, second = explanation.parts[1:3]
    assert (first.slot, second.slot, shared.value) == (shared.slot, shared.slot, 2.0)
    assert shared.contribution == 2.0 * first.weight == 2.0 * second.weight != 0.0
    assert explanation.uncertainty == pytest.approx(
        sum(part.learning_rate * abs(part.value) for part in explanation.parts), rel=1e-15
    )


def test_the_uncertainty_sums_learning_rates_and_falls() -> None:
    """Adaptive, alpha 0.1, beta 1: 0.1 / (1 + sqrt(n)) for the bias and for each of the two features."""
    features = {"a": "x", "b": "y"}
    assert explained(features).uncertainty == pytest.approx(0.3, rel=1e-15)
    state = trained(Hyperparameters(), HashContract(bits=10), [(features, 1, 1.0)])
    assert explained(features, state).uncertainty == pytest.approx(0.3 / 1.5, rel=1e-15)
    assert explained({"a": "x", "b": "new"}, state).uncertainty == pytest.approx(0.2 / 1.5 + 0.1, rel=1e-15)


def test_the_uncertainty_bounds_the_move_of_the_margin() -> None:
    """Without penalty: sum of g theta / Q', with |g| <= |theta|, Q' >= Q and categories of value 1."""
    hyper, contract = Hyperparameters(l1=0.0), HashContract(bits=10)
    features = {"a": "x", "tags": ["p", "q"], "b": True}
    rows: list[Any] = []
    for label in (1, 0, 0, 1, 1, 0):
        state = trained(hyper, contract, rows)
        before = explain(state, hyper, contract, naming_encoder(contract, LIMITS).encode(features))
        rows.append((features, label, 1.0))
        after = explain(
            trained(hyper, contract, rows),
            hyper,
            contract,
            naming_encoder(contract, LIMITS).encode(features),
        )
        assert 0.0 < abs(after.margin - before.margin) <= before.uncertainty


def test_an_unbounded_learning_rate_starts_infinite() -> None:
    hyper, contract = Hyperparameters(rate=AdaptiveRate(0.1, 0.0)), HashContract(bits=10)
    encoded = naming_encoder(contract, LIMITS).encode({"a": "x"})
    assert explain(ModelState.empty(10), hyper, contract, encoded).uncertainty == math.inf
    state = trained(hyper, contract, [({"a": "x"}, 1, 1.0)])
    assert explain(state, hyper, contract, encoded).uncertainty == pytest.approx(0.2 / 0.5, rel=1e-15)


def test_a_feature_of_value_zero_contributes_nothing() -> None:
    explanation = explained({"n": 0, "m": 2}, numeric="raw", bias=False)
    assert [(part.name, part.value, part.contribution) for part in explanation.parts] == [
        ("n", 0.0, 0.0),
        ("m", 2.0, 0.0),
    ]
    assert explanation.uncertainty == pytest.approx(0.2, rel=1e-15)
