"""What the head of the page says of a situation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from service.api.dashboard.awaiting import Awaiting
from service.api.dashboard.traffic import Latency, Rates
from service.api.dashboard.verdict import Level, Situation, verdict

CALIBRATED = {"clicks": 3600, "calibration_ratio": 1.01, "calibration_tolerance": 0.05}
TOO_FEW = {"clicks": 12, "calibration_ratio": None, "calibration_tolerance": None}
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
    windows={"30m": CALIBRATED, "all": CALIBRATED},
)


def windows(ratio: float, tolerance: float = 0.05) -> dict[str, Any]:
    return {"30m": CALIBRATED | {"calibration_ratio": ratio, "calibration_tolerance": tolerance}}


@pytest.mark.parametrize(
    ("changes", "level", "headline"),
    [
        ({}, "good", "Healthy: learning, calibrated"),
        ({"learned_per_second": 0.0}, "good", "Healthy: idle, calibrated"),
        ({"rounds": 0, "windows": {}}, "none", "Ready: nothing learned yet"),
        ({"windows": windows(1.31)}, "bad", "Not right: predicts 1.31 × the clicks (tolerance 1.05)"),
        ({"windows": windows(0.5, 0.2)}, "bad", "Not right: predicts 0.50 × the clicks (tolerance 0.80)"),
        (
            {"windows": {"30m": TOO_FEW, "all": TOO_FEW}},
            "none",
            "Healthy: learning; too few clicks to say whether it is right",
        ),
        ({"windows": {"30m": TOO_FEW, "24h": CALIBRATED}}, "good", "Healthy: learning, calibrated"),
        ({"predict": "stale", "quiet_seconds": 12.0}, "bad", "Stale: Redis does not answer"),
        (
            {"predict": "stale", "learner": None, "windows": windows(2.0)},
            "bad",
            "Stale: Redis does not answer; not right: predicts 2.00 × the clicks (tolerance 1.05)",
        ),
        ({"predict": "unavailable", "update": "unavailable"}, "bad", "Not available"),
        ({"update": "unavailable"}, "bad", "Updates are refused"),
        ({"learner": False, "backlog": 7}, "bad", "Not learning: no learner runs"),
        ({"lag_seconds": 31.0, "backlog": 9}, "bad", "Falling behind: learning is 31 s late"),
        ({"nonfinite": 2}, "bad", "Broken: weights are not finite"),
        (
            {"rates": replace(HEALTHY.rates, failures=0.04, failed=40)},
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
    found = verdict(replace(HEALTHY, rates=Rates(), learned_per_second=0.0, windows={}))
    assert [check.level for check in found.checks] == ["good", "none", "good", "none"]
    assert "0 so far" in found.checks[3].text


def test_a_model_that_was_just_made_is_not_called_unlearned() -> None:
    found = verdict(Situation(predict="fresh", update="available", learner=False, backlog=0, rounds=0))
    assert found.headline == "Ready: nothing learned yet"


@pytest.mark.parametrize(("failed", "times"), [(1, "once"), (2, "2 times")])
def test_a_few_failures_of_a_few_requests_are_no_alarm(failed: int, times: str) -> None:
    said = verdict(replace(HEALTHY, rates=replace(HEALTHY.rates, failures=failed / 3, failed=failed)))
    assert (said.level, said.headline) == ("watch", f"Failed {times} in the last minute")


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
    assert right.text == f"Predicts 1.010 × the clicks, {over}"


def test_the_whole_stream_is_not_the_last_of_anything() -> None:
    right = verdict(replace(HEALTHY, windows={"all": CALIBRATED})).checks[3]
    assert right.text == "Predicts 1.010 × the clicks, over the whole stream."


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
