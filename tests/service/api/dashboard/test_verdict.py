"""What the head of the page says of a situation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from model_core.evaluation.figures import Window
from service.api.dashboard.awaiting import Awaiting
from service.api.dashboard.traffic import Latency, Rates
from service.api.dashboard.verdict import Level, Situation, verdict
from service.models.evaluation.judgement import CHECKS, Finding, Judgement

ENOUGH, TOO_FEW = {"clicks": 3600}, {"clicks": 12}
RIGHT = (Finding("total", False, 1.01, 0.05), Finding("constant", False, 0.88, 0.02))
SAID = "Predicts 1.010 × the clicks, at 0.880 × the loss of always predicting the click rate"
HEALTHY = Situation(
    predict="fresh",
    update="available",
    quiet_seconds=0.1,
    rates=Rates(500.0, 600.0, 0.0, Latency(0.0003, 0.002, 9000), Latency(0.004, 0.01, 900)),
    learner=True,
    backlog=0,
    lag_seconds=0.0,
    learned_per_second=100.0,
    rounds=10_000,
    nonfinite=0,
    windows={"30m": ENOUGH, "all": ENOUGH},
    judgement=Judgement("30m", "progressive", RIGHT).to_json(),
)


def judged(*findings: Finding, window: Window = "30m") -> dict[str, Any]:
    """These findings, and those of a model that is right otherwise."""
    found = {finding.check: finding for finding in (*RIGHT, *findings)}
    return Judgement(
        window, "progressive", tuple(found[check] for check in CHECKS if check in found)
    ).to_json()


def total(ratio: float, tolerance: float = 0.05) -> Finding:
    return Finding("total", abs(ratio - 1.0) > tolerance, ratio, tolerance)


@pytest.mark.parametrize(
    ("changes", "level", "headline"),
    [
        ({}, "good", "Healthy: learning, calibrated"),
        ({"learned_per_second": 0.0}, "good", "Healthy: idle, calibrated"),
        ({"rounds": 0, "windows": {}, "judgement": None}, "none", "Ready: nothing learned yet"),
        (
            {"judgement": judged(total(1.31))},
            "bad",
            "Not right: predicts 1.31 × the clicks (tolerance 1.05)",
        ),
        (
            {"judgement": judged(total(0.5, 0.2))},
            "bad",
            "Not right: predicts 0.50 × the clicks (tolerance 0.80)",
        ),
        (
            {"judgement": judged(Finding("constant", True, 1.05, 0.01))},
            "watch",
            "Not right: 1.050 × the loss of always predicting the click rate (tolerance 1.010)",
        ),
        (
            {"judgement": judged(Finding("constant", None, 0.99, 0.02))},
            "none",
            "Healthy: learning; not yet shown to be better than the click rate alone",
        ),
        (
            {"judgement": judged(Finding("slice", True, 2.29, where="device = phone"))},
            "watch",
            "Not right: predicts 2.29 × the clicks where device = phone",
        ),
        (
            {"judgement": judged(Finding("bucket", True, None, where="0.2 to 0.3"))},
            "watch",
            "Not right: predicts clicks where it predicts 0.2 to 0.3, and there is none",
        ),
        (
            {"judgement": judged(total(1.31), Finding("bucket", True, 4.0, where="0.2 to 0.3"))},
            "bad",
            "Not right: predicts 1.31 × the clicks (tolerance 1.05)",
        ),
        (
            {"windows": {"30m": TOO_FEW, "all": TOO_FEW}, "judgement": None},
            "none",
            "Healthy: learning; too few clicks to say whether it is right",
        ),
        (
            {"windows": None, "judgement": None},
            "none",
            "Healthy: learning; whether it is right is not known",
        ),
        ({"predict": "stale", "quiet_seconds": 12.0}, "bad", "Stale: Redis does not answer"),
        (
            {"predict": "stale", "learner": None, "judgement": judged(total(2.0))},
            "bad",
            "Stale: Redis does not answer; not right: predicts 2.00 × the clicks (tolerance 1.05)",
        ),
        ({"predict": "unavailable", "update": "unavailable"}, "bad", "Not available"),
        ({"update": "unavailable"}, "bad", "Updates are refused"),
        ({"learner": False, "backlog": 7}, "bad", "Not learning: no learner runs"),
        ({"lag_seconds": 31.0, "backlog": 9}, "bad", "Falling behind: learning is 31 s late"),
        (
            {"lag_seconds": 31.0, "backlog": 9, "learned_per_second": 0.0},
            "bad",
            "Not learning: 31 s late, and nothing is learned",
        ),
        ({"nonfinite": 2}, "bad", "Broken: weights are not finite"),
        (
            {"rates": replace(HEALTHY.rates, failures=0.04, failed=40, failing=True)},
            "bad",
            "Failing: 4.0% of requests end in a server error",
        ),
        (
            {"rates": replace(HEALTHY.rates, predict=Latency(0.01, 0.08, 900))},
            "watch",
            "Slow: one prediction in a hundred takes 80 ms or more",
        ),
        ({"reasons": ["Redis persists nothing."]}, "watch", "Attention: Redis persists nothing"),
    ],
)
def test_the_headline_says_what_is_the_matter(changes: dict[str, Any], level: Level, headline: str) -> None:
    found = verdict(replace(HEALTHY, **changes))
    assert (found.level, found.headline) == (level, headline)


def test_there_are_four_checks_whatever_is_known() -> None:
    for situation in (HEALTHY, Situation(predict="unavailable", update="unavailable")):
        assert [check.name for check in verdict(situation).checks] == ["up", "fast", "learning", "right"]
        assert all(check.text.endswith(".") for check in verdict(situation).checks)


def test_an_unused_model_is_neither_slow_nor_wrong() -> None:
    found = verdict(replace(HEALTHY, rates=Rates(), learned_per_second=0.0, windows={}, judgement=None))
    assert [check.level for check in found.checks] == ["good", "none", "good", "none"]
    assert "0 so far" in found.checks[3].text


def test_a_model_that_was_just_made_is_not_called_unlearned() -> None:
    found = verdict(Situation(predict="fresh", update="available", learner=False, backlog=0, rounds=0))
    assert found.headline == "Ready: nothing learned yet"


@pytest.mark.parametrize(("failed", "times"), [(1, "once"), (2, "2 times")])
def test_a_few_failures_of_a_few_requests_are_no_alarm(failed: int, times: str) -> None:
    rates = replace(HEALTHY.rates, failures=failed / 3, failed=failed, failing=True)
    said = verdict(replace(HEALTHY, rates=rates))
    assert (said.level, said.headline) == ("watch", f"Failed {times} in the last minute")


def test_failures_that_have_ended_are_no_alarm() -> None:
    said = verdict(replace(HEALTHY, rates=replace(HEALTHY.rates, failures=0.9, failed=1200)))
    assert (said.level, said.headline) == ("watch", "Failed 1,200 times in the last minute")


@pytest.mark.parametrize(
    ("ended_seconds", "over"),
    [
        (None, "over the last 30 minutes."),
        (-5.0, "over the last 30 minutes."),
        (20.0, "over the last 30 minutes."),
        (7200.0, "over the 30 minutes that ended 2 h ago."),
    ],
)
def test_old_figures_are_not_shown_as_current(ended_seconds: float | None, over: str) -> None:
    right = verdict(replace(HEALTHY, ended_seconds=ended_seconds)).checks[3]
    assert right.text == f"{SAID}, {over}"


def test_the_whole_stream_is_not_the_last_of_anything() -> None:
    right = verdict(replace(HEALTHY, judgement=judged(window="all"))).checks[3]
    assert right.text == f"{SAID}, over the whole stream."


def test_figures_that_are_not_known_are_not_0() -> None:
    right = verdict(replace(HEALTHY, windows=None, judgement=None)).checks[3]
    assert right.text == "Redis has not answered: the figures are not known."


def test_all_that_is_wrong_is_said() -> None:
    found = judged(total(1.31), Finding("slice", True, 2.29, where="device = phone"))
    right = verdict(replace(HEALTHY, judgement=found)).checks[3]
    assert right.text == (
        "Predicts 1.31 × the clicks (tolerance 1.05); predicts 2.29 × the clicks where device = phone,"
        " over the last 30 minutes."
    )


@pytest.mark.parametrize(
    ("awaiting", "text"),
    [
        (None, "Idle; no example waits to be learned."),
        (Awaiting(), "Idle; no example waits to be learned."),
        (
            Awaiting(impressions=1200),
            "Idle; no example waits to be learned. 1,200 impressions wait for the end of their windows.",
        ),
        (
            Awaiting(impressions=1, unshown=1),
            (
                "Idle; no example waits to be learned."
                " 1 impression waits for the end of its window, 1 logged prediction waits to be shown."
            ),
        ),
        (
            Awaiting(unshown=30),
            "Idle; no example waits to be learned. 30 logged predictions wait to be shown.",
        ),
    ],
)
def test_pending_predictions_are_shown_beside_the_examples(awaiting: Awaiting | None, text: str) -> None:
    found = verdict(replace(HEALTHY, learned_per_second=0.0, awaiting=awaiting))
    assert found.checks[2].text == text
