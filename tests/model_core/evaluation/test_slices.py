import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_core.errors import FormatError
from model_core.evaluation.measures import summarize
from model_core.evaluation.slices import Slice, SlicedEvaluation
from model_core.examples.batch import ExampleBatch
from tests.support.streams import MINUTE, Store

FEATURES, MOST, SPARE = 2, 3, 1
# Ten values of feature 0, six of feature 1; the hashes from 100 on are no values of theirs.
VALUES = {7 * v + 1: 0 for v in range(10)} | {2**32 - 1 - v: 1 for v in range(6)}


def example_stream(seed, size=600):
    """margins, labels, log times and hashes of the features of each example."""
    rng = np.random.default_rng(seed)
    zero, one = [h for h, f in VALUES.items() if f == 0], [h for h, f in VALUES.items() if f == 1]
    rows = []
    for i in range(size):
        # what is frequent changes halfway, so that slices change hands
        device = zero[min(9, int(rng.exponential(2.0)))] if i < size // 2 else zero[9 - int(rng.integers(3))]
        own = [device] if rng.random() < 0.9 else [device, device, zero[0]]
        rows.append([100, *own, *([int(rng.choice(one))] if rng.random() < 0.7 else []), 5000 + i])
    labels = rng.integers(0, 2, size).astype(np.float64)
    return rng.normal(size=size), labels, np.sort(rng.integers(0, 2000 * MINUTE, size)), rows


def add(evaluation, stream, start=0, stop=None, batch=1):
    margins, labels, times, rows = stream
    stop = len(rows) if stop is None else stop
    for i in range(start, stop, batch):
        encoded = [(row, None) for row in rows[i : min(i + batch, stop)]]
        examples = ExampleBatch.from_encoded(encoded, labels[i : i + len(encoded)].tolist())
        evaluation.add(margins[i : i + len(encoded)], examples, int(times[i]))


def new(values=VALUES):
    evaluation = SlicedEvaluation(FEATURES, MOST)
    evaluation.know(values)
    return evaluation


def expected_slices(rows):
    """For each feature, which examples are in which slice in the end: hash or None -> numbers."""
    slices: list[dict[int | None, list[int]]] = [{None: []} for _ in range(FEATURES)]
    places: list[list[int]] = [[] for _ in range(FEATURES)]  # the values with a series, by place
    counts = dict.fromkeys(VALUES, 0)
    for i, row in enumerate(rows):
        for own, held, feature in zip(slices, places, range(FEATURES), strict=True):
            found = False
            for value in dict.fromkeys(h for h in row if VALUES.get(h) == feature):
                counts[value] += 1
                if value not in held and len(held) < MOST + SPARE:
                    held.append(value)
                if value not in held:
                    rarest = min(held, key=counts.__getitem__)
                    ahead = sum(counts[one] >= counts[value] for one in held)
                    if ahead < MOST or counts[value] >= 2 * counts[rarest]:
                        own[None] += own.pop(rarest)
                        held[held.index(rarest)] = value
                if value in held:
                    own.setdefault(value, []).append(i)
                    found = True
            if not found:
                own[None].append(i)
    return [
        only_most_frequent(own, sorted(held, key=counts.__getitem__, reverse=True))
        for own, held in zip(slices, places, strict=True)
    ]


def only_most_frequent(own, held):
    for value in held[MOST:]:
        own[None] += own.pop(value)
    return own


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_the_rest_says_how_many_of_its_examples_belong_to_slices(seed):
    stream = example_stream(seed)
    evaluation = new()
    add(evaluation, stream)
    expected, rows = expected_slices(stream[3]), stream[3]
    counts = {h: sum(h in row for row in rows) for h in VALUES}
    moved = 0
    for number in evaluation.slices():
        feature, category = evaluation.slice_of(number)
        found = evaluation.examples_in_rest(number)
        own = expected[feature]
        if category is not None:
            assert found == counts[category] - len(own[category])
            moved += found
        else:
            assert found == sum(counts[h] - len(own[h]) for h in own if h is not None)
            others = [counts[h] for h, of in VALUES.items() if of == feature and h not in own]
            assert evaluation.largest_in_rest(feature) == max(others, default=0)
    assert moved > 0


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 600))
def test_the_slices_are_those_of_the_most_frequent_values(seed, size):
    stream = example_stream(seed)
    evaluation = new()
    add(evaluation, stream, stop=size)
    counts = {h: sum(h in row for row in stream[3][:size]) for h in VALUES}
    shown = [evaluation.slice_of(number) for number in evaluation.slices()]
    for feature in range(FEATURES):
        own = [category for of, category in shown if of == feature and category is not None]
        others = [counts[h] for h, of in VALUES.items() if of == feature and h not in own]
        seen = sum(of == feature and counts[h] > 0 for h, of in VALUES.items())
        assert len(own) == min(MOST, seen)
        assert max(others) <= min((counts[h] for h in own), default=0)


def test_values_of_about_the_same_frequency_hardly_change_slices():
    rng = np.random.default_rng(1)
    values, chosen = range(200), rng.integers(200, size=40_000)
    evaluation = SlicedEvaluation(1, most=20)
    evaluation.know(dict.fromkeys(values, 0))
    changes, before = 0, evaluation.all_fields()
    for start in range(0, chosen.size, 1000):
        rows = [([int(v)], None) for v in chosen[start : start + 1000]]
        evaluation.add(np.zeros(len(rows)), ExampleBatch.from_encoded(rows), 0)
        after = evaluation.all_fields()
        series = {name: value[-2:] for name, value in after.items() if name[:1] == b"v"}
        changes += sum(value != before.get(name, b"\0\0")[-2:] for name, value in series.items())
        before = after
    assert changes < 1000


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_every_slice_has_the_figures_of_its_examples(seed):
    stream = example_stream(seed)
    margins, labels, times, rows = stream
    evaluation = new()
    add(evaluation, stream)
    expected = expected_slices(rows)
    for window, unit, units in (("all", 1, 10**9), ("24h", 60, 24), ("1h", 5, 12)):
        seen = evaluation.figures(window)
        assert len(seen) == sum(len(own) for own in expected)
        for feature, category, figures in seen:
            numbers = np.array(sorted(expected[feature][category]), int)
            spans = times // MINUTE // unit
            kept = numbers[spans[numbers] > spans[-1] - units]
            exact = summarize(margins[kept], labels[kept])
            assert (figures.examples, figures.clicks) == (exact.rows, exact.positives)
            if figures.auc is not None:
                assert figures.log_loss == pytest.approx(exact.plain.log_loss)
                assert abs(figures.auc - exact.plain.auc) <= figures.auc_error_bound


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(1, 599), st.booleans()), max_size=8))
def test_commits_and_restarts_leave_the_same_bytes(seed, cuts):
    stream = example_stream(seed)
    store, evaluation, start = Store(), new(), 0
    for stop, restarts in [*sorted(cuts), (600, False)]:
        add(evaluation, stream, start, stop)
        store.take(evaluation)
        if restarts:
            evaluation = SlicedEvaluation.from_fields(store, FEATURES, MOST)
            evaluation.know(VALUES)
        start = stop
    whole = new()
    add(whole, stream)
    assert store == evaluation.all_fields() == whole.all_fields()
    assert {s[:2]: s.figures for s in evaluation.figures("all")} == {
        s[:2]: s.figures for s in whole.figures("all")
    }


def test_values_registered_later_leave_the_same_bytes():
    stream = example_stream(3)
    whole, evaluation = new(), new({})
    add(whole, stream)
    known: dict[int, int] = {}
    for i, row in enumerate(stream[3]):
        known |= {h: VALUES[h] for h in row if h in VALUES}
        evaluation.know(known)
        add(evaluation, stream, i, i + 1)
    assert evaluation.all_fields() == whole.all_fields()


def test_the_examples_of_a_log_entry_may_come_in_one_batch():
    margins, labels, times, rows = example_stream(4)
    stream = margins, labels, np.zeros_like(times), rows
    whole, single = new(), new()
    add(whole, stream, batch=600)
    add(single, stream)
    assert whole.all_fields() == single.all_fields()


def test_a_feature_without_values_is_all_other():
    evaluation = SlicedEvaluation(1)
    add(evaluation, example_stream(5))
    (only,) = evaluation.figures("all")
    assert isinstance(only, Slice)
    assert (only.feature, only.category, only.figures.examples) == (0, None, 600)


def test_skipped_examples_are_in_no_slice():
    evaluation = new()
    batch = ExampleBatch.from_encoded([([1], None)], [1])
    evaluation.add(np.array([math.nan]), batch, 0)
    assert [s.figures.examples for s in evaluation.figures("all")] == [0, 0]


def test_fields_of_other_slices_are_refused():
    evaluation = new()
    add(evaluation, example_stream(6), stop=50)
    fields = evaluation.all_fields()
    with pytest.raises(FormatError):
        SlicedEvaluation.from_fields(fields, FEATURES, MOST + 1)
    name = next(name for name in fields if name[:1] == b"v" and len(name) == 5)
    for damaged in (b"", b"\x05" + fields[name][1:]):
        with pytest.raises(FormatError):
            SlicedEvaluation.from_fields(fields | {name: damaged}, FEATURES, MOST)


def test_more_slices_than_there_are_rows_for_are_refused():
    with pytest.raises(ValueError, match="slices in all"):
        SlicedEvaluation(2, 1000)
