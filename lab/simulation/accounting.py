"""Compares the examples that a model should have learned, given the replies to clients, with its counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lab.simulation.figures import Accounts
from lab.simulation.traffic import Answer
from service.example_log.ids import is_sampled, packed_id

TAKEN = {"waiting", "learned", "appended", "duplicate"}
ROUNDED_UP = 1 / 30  # of a window, but at least a second
SWEPT_SECONDS = 2.0  # max time from the end of a window until it is closed, with the latency of the request


class Expected(NamedTuple):
    """Labels 0, min `least` and max `most`: they differ by the clicks that arrived close to the end of their
    windows if late clicks are learned at arrival, since the replies do not show which of them were late.
    """

    clicks: int
    least: int
    most: int


def expected_examples(answers: Mapping[str, Sequence[Answer]], feedback: Mapping[str, Any]) -> Expected:
    """Count expected examples after all windows. `answers`: by prediction id; `feedback`: the model's."""
    clicks = least = most = 0
    for text, known in answers.items():
        if not any(one.verb == "impressions" and one.status != "unknown" for one in known):
            continue
        clicked = any(one.verb == "update" and one.status in TAKEN for one in known)
        clicks += clicked
        if is_sampled(packed_id(text), feedback["negative_sample_rate"]):
            surely, perhaps = _was_late(known, feedback) if clicked else (True, True)
            least += surely
            most += perhaps
    return Expected(clicks, least, most)


def _was_late(answers: Sequence[Answer], feedback: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether a click was learned in addition to a label 0: certainly, and possibly."""
    if feedback["late"] != "append":
        return False, False
    taken = [one for one in answers if one.verb == "update" and one.status in TAKEN]
    if feedback["learn_at"] == "window_close":
        late = any(one.status in ("learned", "appended") for one in taken)
        return late, late
    shown = next(one for one in answers if one.verb == "impressions")
    delay, window = taken[0].seconds - shown.seconds, feedback["window_seconds"]
    slack = max(1.0, window * ROUNDED_UP) + SWEPT_SECONDS
    return delay > window + slack, delay > window - SWEPT_SECONDS


def accounts_of(expected: Expected, sources: Mapping[str, Any]) -> Accounts:
    """Compare with an evaluation's `sources`: `served` has only the predictions that awaited their labels. An
    event that is lost and one of the same label that is doubled cancel out.
    """
    examples, _ = _all_of(sources["progressive"])
    joined, clicks = _all_of(sources["served"])
    zeros = joined - clicks
    lost_clicks, doubled_clicks = max(0, expected.clicks - clicks), max(0, clicks - expected.clicks)
    return Accounts(
        "counts",
        examples,
        lost_clicks + max(0, expected.least - zeros),
        lost_clicks,
        doubled_clicks + max(0, zeros - expected.most),
        doubled_clicks,
        examples - joined,
    )


def _all_of(source: Mapping[str, Any] | None) -> tuple[int, int]:
    """Examples and clicks that were ever evaluated."""
    if source is None:
        return 0, 0
    figures = source["windows"]["all"]
    return figures["examples"], figures["clicks"]
