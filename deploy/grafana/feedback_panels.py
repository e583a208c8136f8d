"""Panels of logged predictions that await their labels."""

from __future__ import annotations

from panels import graph
from queries import OF_MODEL, quantiles, rate, worst

EMPTY = "no data yet: predictions with `log` are recorded"

FEEDBACK = [
    graph(
        "Fates of logged predictions",
        "joined: with a label. negative: closed without one. never shown, late, orphan (labelled, not shown):"
        " not learned. duplicate, conflict, unknown: labels without effect. refused: no space.",
        "cps",
        (rate("ftrl_feedback_predictions_total", "model, fate"), "{{model}} {{fate}}"),
        empty=EMPTY,
    ),
    graph(
        "Pending predictions",
        "unshown: not yet shown. early: labelled, not yet shown. open: awaiting a label. closed: ids only.",
        "none",
        (f"max by (model, stage) (ftrl_feedback_waiting{{{OF_MODEL}}})", "{{model}} {{stage}}"),
        min=0,
        empty=EMPTY,
    ),
    graph(
        "Memory of pending predictions",
        "At the limit predictions are served and not logged.",
        "bytes",
        (worst("ftrl_feedback_bytes"), "{{model}}"),
        (worst("ftrl_feedback_limit_bytes"), "{{model}} limit"),
        min=0,
        empty=EMPTY,
    ),
    graph(
        "Oldest open impression",
        "Above the window, windows are not being closed: the backlog is full. No line: no learner runs.",
        "s",
        (worst("ftrl_feedback_oldest_seconds"), "{{model}}"),
        min=0,
        empty=EMPTY,
    ),
    graph(
        "Label delay",
        "Time from an impression to its label, 1 s or more. The window should exceed nearly all of them.",
        "s",
        *quantiles("ftrl_feedback_label_delay_seconds", OF_MODEL),
        empty=EMPTY,
    ),
    graph(
        "Served, not logged",
        "away: Redis did not answer, or refused. full: it is nearly full, or the model is at its own limit."
        " pending: queued with `wait` false, faster than Redis stored them.",
        "cps",
        (rate("ftrl_feedback_unlogged_total", "model, reason"), "{{model}} {{reason}}"),
        empty=EMPTY,
    ),
]
