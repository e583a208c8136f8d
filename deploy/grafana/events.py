"""Events that the dashboards mark in time."""

from __future__ import annotations

from panels import YELLOW, event
from queries import OF_MODEL

RECENT = "< bool $__interval_ms / 1000 + 15"
"""Of an age in seconds: since the point before, of which a scrape may have been 15 s old."""
ACTIVE = f"ftrl_learner_active{{{OF_MODEL}}}"
BLUE, PURPLE = "blue", "purple"


def counted(metric: str) -> str:
    """1 where a counter of a model rose."""
    return f"sum by (model) (increase({metric}{{{OF_MODEL}}}[$__rate_interval])) > bool 0 == 1"


EVENTS = [
    event(
        "Starts",
        BLUE,
        f'(time() - process_start_time_seconds{{job=~"ftrl-.+"}} {RECENT}) == 1',
        "Start",
        "{{job}} {{instance}}",
    ),
    event(
        "Takeovers",
        YELLOW,
        f"({ACTIVE} > {ACTIVE} offset $__rate_interval) == 1",
        "Another learner",
        "{{model}} {{instance}}",
    ),
    event(
        "Snapshots",
        PURPLE,
        f"(time() - max by (model) (ftrl_snapshot_success_timestamp_seconds{{{OF_MODEL}}}) {RECENT}) == 1",
        "Snapshot",
        "{{model}}",
    ),
    event("Restores", YELLOW, counted("ftrl_restores_total"), "Restore", "{{model}}"),
    event("Rollbacks", YELLOW, counted("ftrl_rollbacks_total"), "Rollback", "{{model}}"),
    event("Promotions", YELLOW, counted("ftrl_promotions_total"), "Challenger promoted", "{{model}}"),
]
