import math

import numpy as np
import pytest

from model_core.evaluation.intervals import STANDARD_ERRORS, wilson
from model_core.evaluation.online import OnlineEvaluation
from tests.support.streams import Stream, evaluated, random_stream

FIGURES = ("auc", "log_loss", "calibration_ratio", "base_rate")
SUMS = (1024).to_bytes(2, "little")  # the last part of the names of fields with sums


def figures_of(margins, labels, weights=None):
    margins = np.asarray(margins, np.float64)
    weights = np.empty(0) if weights is None else np.asarray(weights, np.float64)
    times = np.empty(0, np.int64)
    stream = Stream(margins, np.asarray(labels, np.float64), weights, times, np.zeros(margins.size, np.int64))
    return evaluated(stream).figures("all")


def predictions(size=2000, seed=3):
    rng = np.random.default_rng(seed)
    margins = rng.normal(-1.0, 1.0, size)
    return margins, (rng.random(size) < 1.0 / (1.0 + np.exp(-margins))).astype(np.float64)


def test_the_variance_of_the_auc_is_that_of_delong():
    margins, labels = predictions(300)
    figures = figures_of(margins, labels)
    clicks, others = margins[labels == 1], margins[labels == 0]
    wins = (clicks[:, None] > others).astype(float)
    variance = wins.mean(axis=1).var() / clicks.size + wins.mean(axis=0).var() / others.size
    low, high = wilson(wins.mean(), variance, 1.0)
    assert figures.auc_interval.low == pytest.approx(low, abs=2 * figures.auc_error_bound)
    assert figures.auc_interval.high == pytest.approx(high, abs=2 * figures.auc_error_bound)
    assert figures.auc_interval.low < low < high < figures.auc_interval.high


def test_the_interval_of_log_loss_is_that_of_a_mean():
    margins, labels = predictions()
    losses = np.logaddexp(0.0, np.where(labels, -margins, margins))
    reach = STANDARD_ERRORS * losses.std() / math.sqrt(losses.size) / losses.mean()
    low, high = figures_of(margins, labels).log_loss_interval
    assert (low, high) == pytest.approx(
        (losses.mean() * math.exp(-reach), losses.mean() * math.exp(reach)), rel=1e-3
    )


def test_the_interval_of_the_click_rate_is_wilsons():
    low, high = figures_of(np.zeros(1000), [1] * 100 + [0] * 900).base_rate_interval
    assert (low, high) == pytest.approx((0.08291, 0.12015), abs=1e-4)


def test_clicks_that_are_sampled_make_every_interval_wider_than_as_many_examples_of_weight_1():
    margins, labels = predictions()
    weighted = figures_of(margins, labels, np.where(labels, 1.0, 10.0))
    repeated = figures_of(
        np.repeat(margins, np.where(labels, 1, 10)), np.repeat(labels, np.where(labels, 1, 10))
    )
    for name in FIGURES:
        low, high = getattr(weighted, f"{name}_interval")
        of_repeated = getattr(repeated, f"{name}_interval")
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name))
        assert high - low > of_repeated.high - of_repeated.low


def test_weights_that_are_all_the_same_change_no_interval():
    margins, labels = predictions()
    plain, weighted = figures_of(margins, labels), figures_of(margins, labels, np.full(labels.size, 2.5))
    for name in FIGURES:
        assert getattr(weighted, f"{name}_interval") == pytest.approx(getattr(plain, f"{name}_interval"))


def test_perfect_predictions_have_intervals_that_allow_for_chance():
    figures = figures_of(np.repeat([-3.0, 3.0], 60), np.repeat([0, 1], 60))
    assert figures.auc == 1.0
    assert 0.9 < figures.auc_interval.low < 1.0 == figures.auc_interval.high


def test_margins_beyond_every_bin_have_finite_intervals():
    figures = figures_of(np.repeat([-300.0, 300.0], 60), np.repeat([0, 1], 60))
    assert all(math.isfinite(edge) for edge in (*figures.log_loss_interval, *figures.auc_interval))


def test_clicks_alone_have_no_auc_and_a_click_rate_whose_interval_ends_at_1():
    figures = figures_of(np.linspace(-1, 1, 60), np.ones(60))
    assert figures.auc_interval is None
    assert figures.base_rate_interval.low < 0.97 < figures.base_rate_interval.high == 1.0


def test_an_evaluation_of_the_first_version_is_read_as_if_weights_were_equal():
    stream = random_stream(5, size=300, click_rate=0.5)
    evaluation = evaluated(stream)
    fields = evaluation.all_fields()
    old = {name: value[:72] if name[2:] == SUMS else value for name, value in fields.items()}
    old[b"clock"] = b"\1" + fields[b"clock"][1:]
    restored = OnlineEvaluation.from_fields(old)
    assert restored.figures("all", "none") == evaluation.figures("all", "none")
    now, then = evaluation.figures("all"), restored.figures("all")
    assert then.log_loss == now.log_loss
    of_now, of_then = now.log_loss_interval, then.log_loss_interval
    assert of_now
    assert of_then
    assert of_now.low < of_then.low
