import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.evaluation.figures import WINDOWS, auc_of_bins
from model_core.evaluation.measures import auc as exact_auc
from model_core.evaluation.measures import summarize
from model_core.evaluation.online import OnlineEvaluation
from tests.support.streams import MINUTE, Stream, evaluated, random_stream

seeds = st.integers(0, 2**32)
NO_WEIGHTS, NO_TIMES = np.empty(0), np.empty(0, np.int64)


def stream_of(margins, labels, weights=NO_WEIGHTS, times=NO_TIMES, log_time=0):
    margins = np.asarray(margins, np.float64)
    return Stream(margins, np.asarray(labels, np.float64), weights, times, np.full(len(margins), log_time))


def in_window(stream, window):
    """Which examples the last minute, five minutes or hour and those before it hold: bool[r]."""
    minutes = stream.times // MINUTE
    unit, units = {"15m": (1, 15), "30m": (5, 6), "1h": (5, 12), "24h": (60, 24), "all": (1, 10**9)}[window]
    return minutes // unit > minutes.max() // unit - units


@given(seeds)
def test_a_window_has_the_figures_of_its_examples(seed):
    stream = random_stream(seed)
    evaluation = evaluated(stream)
    for window in WINDOWS:
        kept = in_window(stream, window)
        exact = summarize(
            stream.margins[kept], stream.labels[kept], stream.weights[kept] if stream.weights.size else None
        )
        for weighting, expected in (("weight", exact.weighted), ("none", exact.plain)):
            figures = evaluation.figures(window, weighting)
            assert figures.examples == exact.rows
            assert figures.clicks == pytest.approx(exact.positives)
            if figures.clicks < 50:
                assert figures.log_loss is None
                continue
            assert figures.log_loss == pytest.approx(expected.log_loss)
            assert figures.normalized_entropy == pytest.approx(expected.normalized_entropy)
            assert figures.calibration_ratio == pytest.approx(expected.calibration_ratio)


@given(seeds, st.sampled_from([0.03, 0.2, 0.9]))
def test_the_exact_auc_of_every_window_lies_within_the_bound(seed, click_rate):
    stream = random_stream(seed, click_rate=click_rate, size=600)
    evaluation = evaluated(stream)
    for window in WINDOWS:
        kept = in_window(stream, window)
        clicks = stream.labels[kept].astype(np.float64)
        weights = stream.weights[kept] if stream.weights.size else np.ones(clicks.size)
        for weighting, w in (("weight", weights), ("none", np.ones(clicks.size))):
            figures = evaluation.figures(window, weighting)
            if figures.auc is not None:
                assert (
                    abs(figures.auc - exact_auc(stream.margins[kept], clicks, w)) <= figures.auc_error_bound
                )


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20))
def test_ties_count_half_and_bound_the_error(bins):
    counts = np.array(bins, np.float64)
    auc = auc_of_bins(counts, 0)
    pairs = [(i, j, counts[i, 1] * counts[j, 0]) for i in range(len(bins)) for j in range(len(bins))]
    total = sum(n for *_, n in pairs)
    if total == 0:
        assert math.isnan(auc.value)
        assert math.isnan(auc.error_bound)
        return
    assert auc.value == pytest.approx(sum(n * ((i > j) + 0.5 * (i == j)) for i, j, n in pairs) / total)
    assert auc.error_bound == pytest.approx(sum(0.5 * n for i, j, n in pairs if i == j) / total)


def test_bins_are_accurate_at_a_low_click_rate():
    # Predictions of a good model where 1.5 % click: nearly all are below 0.1, the first of ten thresholds.
    rng = np.random.default_rng(7)
    labels = (rng.random(50_000) < 0.015).astype(np.float64)
    margins = rng.normal(-5.0 + 1.4 * labels, 1.0)
    exact = exact_auc(margins, labels.astype(float), np.ones(50_000))
    p = 1 / (1 + np.exp(-margins))
    thresholds = np.concatenate([[-1e-7], np.arange(1, 9) / 9, [1 + 1e-7]])
    positive_rate, false_rate = (
        np.array([np.mean(p[labels == label] >= t) for t in thresholds]) for label in (1, 0)
    )
    few = np.trapezoid(positive_rate[::-1], false_rate[::-1])
    assert exact - few > 0.2
    figures = evaluated(stream_of(margins, labels)).figures("all")
    assert abs(figures.auc - exact) <= figures.auc_error_bound < 0.0005


def test_figures_are_none_before_the_fiftieth_click():
    labels = np.array([1, 0] * 49)
    before = evaluated(stream_of(np.zeros(98), labels)).figures("15m")
    assert (before.examples, before.clicks) == (98, 49)
    assert before.auc is before.log_loss is before.calibration_ratio is before.calibration_tolerance is None
    after = evaluated(stream_of(np.zeros(100), [1, 0] * 50)).figures("15m")
    assert after.auc == 0.5
    assert after.normalized_entropy == pytest.approx(1)
    assert after.calibration_ratio == pytest.approx(1)


def test_one_class_alone_has_no_auc_and_no_normalized_entropy():
    figures = evaluated(stream_of(np.linspace(-1, 1, 60), np.ones(60))).figures("all")
    assert figures.auc is figures.auc_error_bound is figures.normalized_entropy is None
    assert figures.log_loss is not None


def test_clicks_of_weight_zero_leave_weighted_figures_undefined():
    weights = np.array([0.0, 1.0] * 60)
    evaluation = evaluated(stream_of(np.tile([1.0, -1.0], 60), [1, 0] * 60, weights))
    assert evaluation.figures("all").auc is None
    assert evaluation.figures("all").calibration_ratio is None
    assert evaluation.figures("all", "none").auc == 1.0


def test_an_event_of_the_future_counts_when_it_was_logged():
    evaluation = evaluated(stream_of([0.0], [1], times=np.array([10**15]), log_time=90_000))
    assert (evaluation.newest, evaluation.ahead) == (90_000, 1)
    slightly = evaluated(stream_of([0.0], [1], times=np.array([100_000]), log_time=90_000))
    assert (slightly.newest, slightly.ahead) == (90_000, 0)


def test_an_event_older_than_a_day_counts_only_in_the_stream():
    times = np.array([3000 * MINUTE, 3000 * MINUTE - 25 * 60 * MINUTE])
    evaluation = evaluated(stream_of([0.0, 0.0], [1, 0], times=times, log_time=10**10))
    assert evaluation.late == 1
    assert evaluation.figures("24h").examples == 1
    assert evaluation.figures("all").examples == 2


def test_examples_that_learning_skips_do_not_count():
    margins = np.array([math.inf, math.nan, 0.0, 0.0, 0.0])
    weights = np.array([1.0, 1.0, math.nan, math.inf, -1.0])
    evaluation = evaluated(stream_of(margins, np.ones(5), weights))
    assert evaluation.figures("all").examples == 0
    assert evaluation.newest is None
    assert evaluation.take_changes(b"p") == (b"", b"")


@pytest.mark.parametrize(("clicks", "tolerance"), [(100, 0.2852), (900, 0.0951), (10_000, 0.05)])
def test_the_calibration_tolerance_follows_the_number_of_clicks(clicks, tolerance):
    labels = np.zeros(10 * clicks)
    labels[::10] = 1
    margin = math.log(0.12 / 0.88)
    figures = evaluated(stream_of(np.full(10 * clicks, margin), labels)).figures("30m")
    assert figures.calibration_ratio == pytest.approx(1.2)
    assert figures.calibration_tolerance == pytest.approx(tolerance, abs=1e-4)


def test_the_reliability_table_accounts_for_every_example():
    stream = random_stream(11, size=3000)
    p = 1 / (1 + np.exp(-stream.margins))
    table = evaluated(stream).figures("all", "none").reliability
    assert sum(row.examples for row in table) == 3000
    for row in table:
        inside = (p > row.low * 1.002) & (p < row.high * 0.998)
        near = (p > row.low * 0.998) & (p < row.high * 1.002)
        assert inside.sum() <= row.examples <= near.sum()
    assert sum(row.examples * row.click_rate for row in table) == pytest.approx(stream.labels.sum())
    assert sum(row.examples * row.mean_prediction for row in table) == pytest.approx(p.sum(), rel=2e-3)


def test_an_evaluation_of_nothing_has_no_figures():
    evaluation = OnlineEvaluation()
    assert [evaluation.figures(window).examples for window in WINDOWS] == [0] * 5
    assert evaluation.newest is None
