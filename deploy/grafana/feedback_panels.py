"""Panels of predictions that wait for their labels."""

from __future__ import annotations

from panels import graph
from queries import OF_MODEL, quantiles, rate, worst

FEEDBACK = [
    graph(
        "Fates of logged predictions",
        "joined: with a label. negative: closed without one. never shown, late, orphan (labelled, not shown):"
        " not learned. duplicate, conflict, unknown: labels that changed nothing. refused: no room.",
        "cps",
        (rate("ftrl_feedback_predictions_total", "model, fate"), "{{model}} {{fate}}"),
    ),
    graph(
        "Waiting predictions",
        "unshown: to be shown. early: labelled before. open: for their label. closed: remembered, no more.",
        "none",
        (f"max by (model, stage) (ftrl_feedback_waiting{{{OF_MODEL}}})", "{{model}} {{stage}}"),
        min=0,
    ),
    graph(
        "Memory of waiting predictions",
        "At the limit predictions are served and not logged.",
        "bytes",
        (worst("ftrl_feedback_bytes"), "{{model}}"),
        (worst("ftrl_feedback_limit_bytes"), "{{model}} limit"),
        min=0,
    ),
    graph(
        "Oldest open impression",
        "Over its window, the sweeps do not come through: the backlog is full. No line: no learner runs.",
        "s",
        (worst("ftrl_feedback_oldest_seconds"), "{{model}}"),
        min=0,
    ),
    graph(
        "Label delay",
        "From an impression to its label, from a second on. A window should be longer than nearly all.",
        "s",
        *quantiles("ftrl_feedback_label_delay_seconds", OF_MODEL),
    ),
    graph(
        "Served, not logged",
        "away: Redis did not answer, or refused. full: it is nearly full, or the model is at its own limit."
        " pending: nobody waits for them, and more came than Redis took.",
        "cps",
        (rate("ftrl_feedback_unlogged_total", "model, reason"), "{{model}} {{reason}}"),
    ),
]
