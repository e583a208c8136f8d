import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.evaluation.measures import auc, summarize

streams = st.lists(
    st.tuples(
        st.sampled_from([-2.0, -0.5, 0.0, 0.5, 3.0]),
        st.sampled_from([0, 1]),
        st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    ),
    max_size=30,
)


def summary_of(rows):
    margins, labels, weights = (
        (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.empty(0),) * 3
    )
    return summarize(margins, labels.astype(np.uint8), weights)


@given(streams)
def test_auc_is_the_share_of_pairs_in_the_right_order(rows):
    plain, weighted = [], []
    for margin, label, weight in rows:
        for other, other_label, other_weight in rows:
            if label == 1 and other_label == 0:
                plain.append((margin > other) + 0.5 * (margin == other))
                weighted.append((plain[-1], weight * other_weight))
    summary = summary_of(rows)
    assert summary.plain.auc == (pytest.approx(sum(plain) / len(plain)) if plain else None)
    pairs = sum(w for _, w in weighted)
    assert summary.weighted.auc == (pytest.approx(sum(v * w for v, w in weighted) / pairs) if pairs else None)


@given(streams)
def test_the_other_measures_are_their_definitions(rows):
    summary = summary_of(rows)
    if not rows:
        assert summary.plain.log_loss is None
        assert summary.plain.calibration_ratio is None
        return
    losses = [math.log1p(math.exp(-m if y else m)) for m, y, _ in rows]
    p = [1 / (1 + math.exp(-m)) for m, _, _ in rows]
    total, clicks = sum(w for *_, w in rows), sum(y for _, y, _ in rows)
    assert (summary.rows, summary.positives) == (len(rows), clicks)
    assert summary.plain.log_loss == pytest.approx(sum(losses) / len(rows))
    assert summary.plain.calibration_ratio == (pytest.approx(sum(p) / clicks) if clicks else None)
    weighted_loss = sum(loss * w for loss, (*_, w) in zip(losses, rows, strict=True))
    assert summary.weighted.log_loss == (pytest.approx(weighted_loss / total) if total else None)
    rate = clicks / len(rows)
    if 0 < rate < 1:
        entropy = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
        assert summary.plain.normalized_entropy == pytest.approx(sum(losses) / len(rows) / entropy)
    else:
        assert summary.plain.normalized_entropy is None


def test_one_class_has_no_auc_and_no_normalized_entropy():
    summary = summarize(np.array([0.1, 0.2]), np.array([1, 1], np.uint8))
    assert summary.plain.auc is None
    assert summary.plain.normalized_entropy is None
    assert summary.plain.calibration_ratio is not None


def test_predicting_the_click_rate_scores_one():
    labels = np.array([1, 0, 0, 0], np.uint8)
    summary = summarize(np.full(4, math.log(0.25 / 0.75)), labels, density=0.5)
    assert summary.plain.normalized_entropy == pytest.approx(1)
    assert summary.plain.calibration_ratio == pytest.approx(1)
    assert summary.plain.auc == 0.5
    assert summary.weighted == summary.plain
    assert summary.density == 0.5


def test_margins_that_are_not_finite_are_left_out():
    labels = np.array([1, 0, 1, 0], np.uint8)
    summary = summarize(np.array([1.0, -1.0, math.nan, math.inf]), labels)
    assert summary == summarize(np.array([1.0, -1.0]), labels[:2])


def test_auc_is_exact_on_a_large_stream_with_ties():
    rng = np.random.default_rng(3)
    p = rng.integers(0, 50, 20_000) / 50
    clicks = (rng.random(20_000) < p).astype(np.float64)
    wins = sum(
        np.sum(clicks[p == v]) * (np.sum((p < v) * (1 - clicks)) + 0.5 * np.sum((p == v) * (1 - clicks)))
        for v in np.unique(p)
    )
    assert auc(p, clicks, np.ones(p.size)) == wins / (clicks.sum() * (1 - clicks).sum())
