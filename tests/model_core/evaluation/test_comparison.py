import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from model_core.errors import FormatError
from model_core.evaluation.comparison import PAIRS_A_LOOK, POINTS, PairedComparison
from model_core.evaluation.confidence_sequence import radius
from model_core.examples.batch import ExampleBatch


def batch_of(labels, weights=None):
    labels = np.asarray(labels, np.float64)
    weights = np.empty(0) if weights is None else np.asarray(weights, np.float64)
    return ExampleBatch(
        np.zeros(labels.size + 1, np.int64), np.empty(0, np.uint32), np.empty(0), labels, weights
    )


def compared(champion, challenger, labels, weights=None, log_time=0):
    comparison = PairedComparison()
    comparison.add(
        np.asarray(champion, float), np.asarray(challenger, float), batch_of(labels, weights), log_time
    )
    return comparison


def drawn(size=20_000, champion_error=0.6, challenger_error=0.1, seed=1, mean=-2.0):
    """Margins of both models and labels."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(mean, 1.0, size)
    labels = (rng.random(size) < 1.0 / (1.0 + np.exp(-odds))).astype(np.float64)
    champion, challenger = (
        odds + error * rng.normal(size=size) for error in (champion_error, challenger_error)
    )
    return champion, challenger, labels


def by_the_definition(champion, challenger, labels, weights):
    """Differences and residuals of the examples as docs/mathematics.md defines them, in plain Python."""
    differences, residuals, counts, number, weight = [], [], [], [0.0, 0.0], [0.0, 0.0]
    for m, n, y, w in zip(champion, challenger, labels, weights, strict=True):
        count = min(w, 1.0)
        if weight[1]:
            rate = weight[1] / sum(weight)
            count = w / max(weight[1] / number[1], rate * weight[0] / (number[0] or 1))
        one, other = (math.log1p(math.exp(margin)) - y * margin for margin in (m, n))
        p, q = (1.0 / (1.0 + math.exp(-margin)) for margin in (m, n))
        differences.append(max(-1.0, min(1.0, count * (one - other))))
        residuals.append(max(-8.0, min(8.0, count * (y - (p + q) / 2.0))))
        counts.append(count)
        for k, share in enumerate((1 - y, y)):
            number[k] += share
            weight[k] += w * share
    return differences, residuals, counts


@pytest.mark.parametrize("share_between", [0.0, 0.4])
def test_a_comparison_is_that_of_the_definition(share_between):
    champion, challenger, labels = drawn(3000, champion_error=2.0)
    rng = np.random.default_rng(3)
    labels = np.where(rng.random(3000) < share_between, rng.random(3000) ** 4, labels)
    weights = np.random.default_rng(2).lognormal(0.0, 0.7, labels.size) * (np.arange(labels.size) % 50 > 0)
    figures = compared(champion, challenger, labels, weights).figures()
    differences, residuals, counts = by_the_definition(champion, challenger, labels, weights)
    total = math.fsum(counts)
    reach = radius(math.fsum(x * x for x in differences)) / total
    mean = math.fsum(differences) / total
    assert figures.difference == pytest.approx(mean, rel=1e-9)
    assert figures.difference_interval == pytest.approx((mean - reach, mean + reach), rel=1e-9)
    assert figures.clipped == sum(abs(x) == 1.0 for x in differences) > 0
    assert figures.pairs == 3000
    assert figures.clicks == pytest.approx(labels.sum())
    clicked = math.fsum(counts * labels)
    for margins, model in ((champion, figures.champion), (challenger, figures.challenger)):
        p = 1.0 / (1.0 + np.exp(-margins))
        losses = np.logaddexp(0.0, margins) - labels * margins
        assert model.log_loss == pytest.approx(counts @ losses / total)
        assert model.calibration_ratio == pytest.approx(counts @ p / clicked)
        expected = (
            math.fsum(residuals) + counts @ sum(1 / (1 + np.exp(-m)) for m in (champion, challenger)) / 2
        )
        reach = 8.0 * radius(math.fsum((x / 8.0) ** 2 for x in residuals))
        assert model.calibration_interval == pytest.approx(
            (counts @ p / (expected + reach), counts @ p / (expected - reach))
        )


def test_batches_and_restarts_change_no_bit():
    champion, challenger, labels = drawn(5000)
    whole = compared(champion, challenger, labels, log_time=7)
    parts, at = PairedComparison(), 0
    for size in (1, 0, 63, 64, 700, 172, 4000):
        part = slice(at, at + size)
        parts.add(champion[part], challenger[part], batch_of(labels[part]), 7)
        parts, at = PairedComparison.from_bytes(parts.to_bytes()), at + size
    assert at == labels.size
    assert parts.to_bytes() == whole.to_bytes()
    assert parts.figures() == whole.figures()


def test_a_better_challenger_is_called_better_and_the_other_way_round_worse():
    champion, challenger, labels = drawn()
    better = compared(champion, challenger, labels, log_time=9).figures()
    worse = compared(challenger, champion, labels, log_time=9).figures()
    assert (better.verdict, worse.verdict) == ("better", "worse")
    assert better.difference_interval.low > 0.0 > worse.difference_interval.high
    assert better.difference == -worse.difference
    assert better.since_pairs == worse.since_pairs
    assert better.since_milliseconds == 9
    assert 0 < better.since_pairs < better.pairs
    assert better.since_pairs % PAIRS_A_LOOK == 0
    assert compared(champion, champion, labels).figures().verdict == "undecided"


def test_the_verdict_is_as_old_as_its_first_look():
    champion, challenger, labels = drawn()
    since = compared(champion, challenger, labels).figures().since_pairs
    before = slice(0, since - 1)
    assert compared(champion[before], challenger[before], labels[before]).figures().verdict == "undecided"
    until = slice(0, since)
    assert compared(champion[until], challenger[until], labels[until]).figures().verdict == "better"


def test_what_only_clipping_makes_better_is_not_called_better():
    champion, challenger, labels = drawn()
    disasters = np.flatnonzero(labels)[::20]
    challenger = challenger.copy()
    challenger[disasters] = -200.0
    figures = compared(champion, challenger, labels).figures()
    assert figures.difference_interval.low > 0.0
    assert figures.challenger.log_loss > figures.champion.log_loss
    assert figures.verdict == "undecided"


def test_weights_count_by_their_share():
    champion, challenger, labels = drawn()
    plain = compared(champion, challenger, labels).figures()
    heavy = compared(champion, challenger, labels, np.full(labels.size, 1024.0)).figures()
    assert heavy == plain


@pytest.mark.parametrize("logged", [0.05, 0.5])
def test_sampled_non_clicks_change_little_but_the_examples_needed(logged):
    champion, challenger, labels = drawn(300_000, champion_error=0.3, mean=-4.0)
    kept = (labels == 1) | (np.random.default_rng(3).random(labels.size) < logged)
    whole = compared(champion, challenger, labels).figures()
    weights = np.where(labels, 1.0, 1.0 / logged)[kept]
    sampled = compared(champion[kept], challenger[kept], labels[kept], weights).figures()
    assert sampled.difference_interval.low < whole.difference < sampled.difference_interval.high
    assert whole.difference_interval.low < sampled.difference
    assert sampled.clipped < sampled.pairs / 100
    assert sampled.verdict == whole.verdict == "better"


def test_the_calibration_closer_to_the_clicks_is_called_better():
    champion, challenger, labels = drawn(challenger_error=0.6)
    too_high = compared(champion + 0.5, challenger, labels).figures()
    assert too_high.calibration == "better"
    assert too_high.calibration_difference_interval.high < 0.0
    assert too_high.champion.calibration_interval.low > 1.0
    assert compared(champion, challenger + 0.5, labels).figures().calibration == "worse"
    assert compared(champion - 0.8, challenger - 0.2, labels).figures().calibration == "better"


def test_equal_calibrations_are_seldom_called_different_however_wrong_both_are():
    called = looks = 0
    for seed in range(60):
        champion, challenger, labels = drawn(8_000, 0.6, 0.6, seed)
        comparison, verdicts = PairedComparison(), set()
        for at in range(0, labels.size, 400):
            part = slice(at, at + 400)
            comparison.add(champion[part] + 0.5, challenger[part] + 0.5, batch_of(labels[part]), 0)
            verdicts.add(comparison.figures().calibration)
            looks += 1
        called += verdicts != {"undecided"}
    assert called <= 3
    assert looks == 60 * 20


def test_examples_that_a_model_skips_are_unpaired():
    champion, challenger, labels = drawn(100)
    champion[3], challenger[5] = math.nan, math.inf
    comparison = compared(champion, challenger, labels)
    comparison.add_unpaired(40)
    figures = comparison.figures()
    assert (figures.pairs, figures.unpaired) == (98, 42)
    assert math.isfinite(figures.difference)


def test_without_examples_clicks_or_weight_nothing_is_undefined():
    empty = PairedComparison().figures()
    assert (empty.pairs, empty.difference, empty.difference_interval, empty.verdict) == (
        0,
        None,
        None,
        "undecided",
    )
    assert empty.relative_difference is None
    weightless = compared([0.0, 1.0], [0.0, 2.0], [0, 1], [0.0, 0.0]).figures()
    assert replace(weightless, pairs=0, clicks=0) == empty
    clickless = compared([-3.0], [-4.0], [0]).figures()
    assert clickless.champion.calibration_ratio is None
    assert clickless.difference > 0.0
    assert clickless.verdict == clickless.calibration == "undecided"


def test_the_course_is_that_of_the_comparisons_of_before_at_equal_distances():
    champion, challenger, labels = drawn(11_000)
    comparison = compared(champion, challenger, labels)
    course = comparison.course()
    distances = {b.pairs - a.pairs for a, b in pairwise(course[:-1])}
    assert distances == {course[0].pairs} == {4 * PAIRS_A_LOOK}
    assert POINTS / 2 < len(course) <= POINTS
    assert course[-1].pairs == 11_000
    for point in (course[0], course[20], course[-1]):
        part = slice(0, point.pairs)
        then = compared(champion[part], challenger[part], labels[part]).figures()
        assert (point.difference, point.interval) == (then.difference, then.difference_interval)
        assert point.champion_log_loss == then.champion.log_loss
    assert PairedComparison.from_bytes(comparison.to_bytes()).course() == course
    assert PairedComparison().course() == []


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"\x09" + b[1:], lambda _: b"", lambda b: b + b"\0" * 40]
)
def test_what_is_no_stored_comparison_is_refused(damage):
    with pytest.raises(FormatError, match="not a comparison of version 1"):
        PairedComparison.from_bytes(damage(PairedComparison().to_bytes()))
