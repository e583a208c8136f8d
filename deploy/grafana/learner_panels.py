"""Rows of the dashboard *Service*: how learning keeps up, and how the mirrors keep up with it."""

from __future__ import annotations

from panels import GREEN, ONE_IS_BAD, RED, ZERO_IS_BAD, graph, thresholds
from queries import OF_MODEL, mean, quantiles, rate, worst

LEARNER = [
    graph(
        "Lag",
        "Age of the oldest example that waits to be learned.",
        "s",
        (worst("ftrl_learner_lag_seconds"), "{{model}}"),
        limits=thresholds(GREEN, (30, RED)),
    ),
    graph(
        "Waiting",
        "What is in the log and not yet learned; entries are counted as if all were of one size.",
        "none",
        (worst("ftrl_learner_lag_examples"), "{{model}} examples"),
        (worst("ftrl_learner_lag_entries"), "{{model}} entries"),
    ),
    graph(
        "Log length",
        "Entries in the example log; learned ones stay as long as they are retained.",
        "none",
        (worst("ftrl_log_entries"), "{{model}}"),
    ),
    graph(
        "Commit",
        "Time of one commit, from sending to the server's reply.",
        "s",
        *quantiles("ftrl_commit_duration_seconds", OF_MODEL),
    ),
    graph(
        "Commit size",
        "Mean of the slots that a commit changed and of the examples that it learned.",
        "none",
        (mean("ftrl_commit_slots"), "{{model}} slots"),
        (mean("ftrl_commit_examples"), "{{model}} examples"),
    ),
    graph(
        "Append",
        "Time of one append of examples to the log.",
        "s",
        *quantiles("ftrl_append_duration_seconds", OF_MODEL),
    ),
    graph(
        "Event age",
        "Age of the newest event when it was learned, where events have a time: the delay of the feedback.",
        "s",
        (worst("ftrl_event_age_seconds"), "{{model}}"),
    ),
    graph(
        "Leaders",
        "Processes that hold the lease of a model: always 1.",
        "none",
        (f"sum by (model) (ftrl_learner_active{{{OF_MODEL}}})", "{{model}}"),
        limits=ZERO_IS_BAD,
    ),
    graph(
        "Stopped and skipped",
        "blocked: the log holds an entry that cannot be read. skipped: updates that would not stay finite.",
        "none",
        (worst("ftrl_learner_blocked"), "{{model}} blocked"),
        (rate("ftrl_examples_skipped_total", "model"), "{{model}} skipped"),
        limits=ONE_IS_BAD,
    ),
]

MIRRORS = [
    graph(
        "Age",
        "Since Redis last confirmed the copy from which predictions are made; the oldest of all processes.",
        "s",
        (worst("ftrl_mirror_age_seconds"), "{{model}}"),
        limits=thresholds(GREEN, (30, RED)),
    ),
    graph(
        "Rounds behind",
        "Examples that the learner has learned and the last of the mirrors has not yet applied.",
        "none",
        (
            f"clamp_min({worst('ftrl_model_rounds')} - min by (model) (ftrl_mirror_rounds{{{OF_MODEL}}}), 0)",
            "{{model}}",
        ),
    ),
    graph(
        "Reloads",
        "Whole copies loaded in the last hour: at a start, and where a mirror cannot follow.",
        "none",
        (f"sum by (model) (increase(ftrl_mirror_loads_total{{{OF_MODEL}}}[1h]))", "{{model}}"),
    ),
]

SNAPSHOTS = [
    graph(
        "Age of the newest snapshot",
        "Since the model was last saved. It rises while nothing is learned.",
        "s",
        (f"time() - max by (model) (ftrl_snapshot_success_timestamp_seconds{{{OF_MODEL}}})", "{{model}}"),
        limits=thresholds(GREEN, (3600, RED)),
    ),
    graph(
        "Time of a snapshot",
        "Mean of all of it, and of the copy, for which the learner stands still.",
        "s",
        (mean("ftrl_snapshot_duration_seconds"), "{{model}}"),
        (mean("ftrl_snapshot_copy_duration_seconds"), "{{model}} copy"),
    ),
    graph(
        "Size of a snapshot",
        "Of the newest file.",
        "bytes",
        (worst("ftrl_snapshot_bytes"), "{{model}}"),
    ),
    graph(
        "Failures, restores, rollbacks",
        "Snapshots that could not be written, states that were replaced, and those of them by the learner.",
        "none",
        (f"sum by (model, reason) (ftrl_snapshot_failures_total{{{OF_MODEL}}})", "{{model}} {{reason}}"),
        (f"sum by (model) (ftrl_restores_total{{{OF_MODEL}}})", "{{model}} restores"),
        (f"sum by (model) (ftrl_rollbacks_total{{{OF_MODEL}}})", "{{model}} rollbacks"),
        min=0,
    ),
]
