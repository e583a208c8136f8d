"""The offset that a model takes from the first examples of its log."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_core.errors import FormatError
from model_core.examples.batch import ExampleBatch
from model_core.learning.hyperparameters import Hyperparameters
from model_core.learning.rounds import learn_batch, predict_batch
from model_core.learning.state import ModelState, parse_evidence
from model_core.learning.step import FIRST_EXAMPLES, FIXED, NOTHING_LEARNED, Prior, offset_from
from tests.model_core.learning.test_forgetting import hypers
from tests.model_core.learning.test_mixture import BITS, batch_of, mixtures, streams

LATE = Prior(12.0, 975.0, 12.0, FIRST_EXAMPLES - 13)
NO_FEATURES: tuple[list[int], None] = ([], None)


@pytest.mark.parametrize(
    ("prior", "offset"),
    [  # 40 digits of mpmath, by the formula
        (NOTHING_LEARNED, 0.0),
        (FIXED, 0.0),
        (Prior(1.0, 0.0, 1.0, 1), 0.0),
        (Prior(1e6, 0.0, 1.0, 1), 0.0),
        (Prior(0.0, 5.0, 0.0, 5), 0.0),
        (Prior(0.0, 100.0, 0.0, 100), -2.467850624346892344),
        (Prior(0.0, 1000.0, 0.0, 1000), -4.772268544711027469),
        (Prior(2.0, 998.0, 2.0, 1000), -4.723469832757313178),
        (Prior(30.0, 970.0, 30.0, 1000), -3.092295203383129356),
        (Prior(30.0, 70.0, 30.0, 100), -0.404428843041096279),
        (Prior(500.0, 500.0, 500.0, 1000), 0.0),
        (Prior(950.0, 50.0, 950.0, 1000), 2.646196141682430476),
        (Prior(40.0, 19200.0, 40.0, 1000), -5.637945549196732742),
    ],
)
def test_the_golden_offset_is_reproduced(prior: Prior, offset: float) -> None:
    assert offset_from(prior) == pytest.approx(offset, rel=1e-13)


@given(st.integers(0, 1000), st.integers(0, 1000), st.floats(1e-6, 1e6))
def test_what_all_weights_are_multiplied_by_does_not_matter(clicked: int, others: int, weight: float) -> None:
    once = Prior(float(clicked), float(others), float(clicked), clicked + others)
    weighted = once._replace(clicks=clicked * weight, others=others * weight)
    assert offset_from(weighted) == pytest.approx(offset_from(once), rel=1e-9, abs=1e-9)


def test_each_example_is_predicted_with_the_offset_before_it() -> None:
    labels = [int(i % 40 == 39) for i in range(FIRST_EXAMPLES + 100)]
    state = ModelState.empty(BITS, prior=NOTHING_LEARNED)
    batch = ExampleBatch.from_encoded([NO_FEATURES] * len(labels), labels)
    margins = learn_batch(state, Hyperparameters(), False, 0.0, batch).margins.tolist()
    counts = [(sum(labels[:i]), i) for i in range(FIRST_EXAMPLES + 1)]
    expected = [offset_from(Prior(float(k), float(n - k), float(k), n)) for k, n in counts]
    assert margins == expected + [expected[-1]] * 99
    assert state.offset == expected[-1]
    assert expected[-1] == pytest.approx(math.log(25.5 / 975.5) + 2 * math.sqrt(1 / 25.5 + 1 / 975.5))


def test_what_is_not_learned_does_not_count() -> None:
    state = ModelState.empty(BITS, prior=NOTHING_LEARNED)
    weights = [0.0, math.inf, math.nan, 3.0, 2.0]
    batch = ExampleBatch.from_encoded([([1], None)] * 5, [1, 1, 1, 1, 0], weights)
    assert learn_batch(state, Hyperparameters(), True, 0.0, batch).skipped.tolist() == [0, 1, 1, 0, 0]
    assert state.discount.prior == Prior(3.0, 2.0, 1.0, 2)


def test_a_label_between_counts_as_a_part_of_a_click() -> None:
    state = ModelState.empty(BITS, prior=NOTHING_LEARNED)
    batch = ExampleBatch.from_encoded([([1], None)] * 3, [0.25, 1, 0.5], [4.0, 1.0, 1.0])
    learn_batch(state, Hyperparameters(), True, 0.0, batch)
    assert state.discount.prior == Prior(2.5, 3.5, 1.75, 3)
    assert parse_evidence(state.discount.text()) == state.discount
    assert state.discount.text().endswith(f" prior {(2.5).hex()} {(3.5).hex()} 1.75 3")


@settings(max_examples=60)
@given(st.one_of(hypers, mixtures()), streams, st.sampled_from([NOTHING_LEARNED, LATE]), st.data())
def test_batching_and_restarts_change_no_bit(hyper, stream, prior, data):
    batch, experts = batch_of(stream), len(hyper.experts)
    whole = ModelState.empty(BITS, experts, prior)
    learned = learn_batch(whole, hyper, True, 0.0, batch)
    cut = data.draw(st.integers(0, len(batch)))
    for cuts in ([0, cut, len(batch)], range(len(batch) + 1)):
        state, margins = ModelState.empty(BITS, experts, prior), []
        for start, stop in pairwise(cuts):
            again = ModelState.empty(BITS, experts)
            again.discount = parse_evidence(state.discount.text())
            slots = state.seen_slots()
            again.apply_rows(slots, state.rows_at(slots))
            again.t, state = state.t, again
            part = batch.slice(start, stop)
            predicted = predict_batch(state, hyper, True, 0.0, part.slice(0, min(1, stop - start)))
            margins.append(learn_batch(state, hyper, True, 0.0, part).margins)
            if not any(one.forgetting for one in hyper.experts):
                assert predicted.tobytes() == margins[-1][:1].tobytes()
        assert state.digest() == whole.digest()
        assert np.concatenate(margins).tobytes() == learned.margins.tobytes()


@settings(max_examples=50)
@given(st.one_of(hypers, mixtures()), streams)
def test_a_frozen_offset_is_a_fixed_one(hyper, stream):
    batch, frozen = batch_of(stream), Prior(30.0, 970.0, 30.0, FIRST_EXAMPLES)
    states = [ModelState.empty(BITS, len(hyper.experts), prior) for prior in (frozen, FIXED)]
    offsets = (0.0, states[0].offset)
    margins = [
        learn_batch(state, hyper, True, offset, batch).margins.tobytes()
        for state, offset in zip(states, offsets, strict=True)
    ]
    assert margins[0] == margins[1]
    assert states[0].rows.tobytes() == states[1].rows.tobytes()


@pytest.mark.parametrize(
    "text",
    [
        "0x1p-1 0 -1 prior",
        "0x1p-1 0 -1 prior 0x1p0 0x1p0 1",
        "0x1p-1 0 -1 prior 0x1p0 0x1p0 2 1",
        "0x1p-1 0 -1 prior 0x1p0 0x1p0 1 1001",
        "0x1p-1 0 -1 prior -0x1p0 0x1p0 1 2",
        "0x1p-1 0 -1 prior inf 0x1p0 1 2",
        "0x1p-1 0 -1 prior nan 0x1p0 1 2",
        " prior 0x1p0 0x1p0 1 2",
    ],
)
def test_a_prior_that_was_not_written_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="discount"):
        parse_evidence(text)
