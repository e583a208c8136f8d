"""How many examples a model has to have learned, told by what its clients were answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from service.feedback.identity import is_sampled, packed_id
from service.simulation.traffic import Answer

TAKEN = {"waiting", "learned", "appended", "duplicate"}
ROUNDED_UP = 1 / 30  # of a window, but at least a second
SWEPT_SECONDS = 2.0  # from the end of a window until it is closed, at most, and the way there


class Expected(NamedTuple):
    """Differ by the clicks that came about when their windows closed, where the answers do not tell whether
    they were late: learned at arrival, late ones too.
    """

    least: int
    most: int


def expected_examples(answers: Mapping[str, Sequence[Answer]], feedback: Mapping[str, Any]) -> Expected:
    """Once all windows are closed. `answers`: by prediction id; `feedback`: of the model's configuration."""
    least = most = 0
    for text, known in answers.items():
        if not any(one.verb == "impressions" and one.status != "unknown" for one in known):
            continue
        clicked = any(one.verb == "update" and one.status in TAKEN for one in known)
        negative = is_sampled(packed_id(text), feedback["negative_sample_rate"])
        least += clicked or negative
        most += clicked or negative
        if clicked and negative and feedback["late"] == "append":
            surely, perhaps = _was_late(known, feedback)
            least += surely
            most += perhaps
    return Expected(least, most)


def _was_late(answers: Sequence[Answer], feedback: Mapping[str, Any]) -> tuple[bool, bool]:
    """Surely, and perhaps."""
    taken = [one for one in answers if one.verb == "update" and one.status in TAKEN]
    if feedback["learn_at"] == "window_close":
        late = any(one.status in ("learned", "appended") for one in taken)
        return late, late
    shown = next(one for one in answers if one.verb == "impressions")
    delay, window = taken[0].seconds - shown.seconds, feedback["window_seconds"]
    slack = max(1.0, window * ROUNDED_UP) + SWEPT_SECONDS
    return delay > window + slack, delay > window - SWEPT_SECONDS
