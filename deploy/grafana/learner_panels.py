"""Rows of the dashboard *Service* on the learner, the mirrors and snapshots."""

from __future__ import annotations

from panels import GREEN, ONE_IS_BAD, RED, ZERO_IS_BAD, graph, thresholds
from queries import OF_MODEL, mean, quantiles, rate, worst

LEARNER = [
    graph(
        "Lag",
        "Age of the oldest example that is not yet learned.",
        "s",
        (worst("ftrl_learner_lag_seconds"), "{{model}}"),
        limits=thresholds(GREEN, (30, RED)),
    ),
    graph(
        "Pending",
        "Examples in the log that are not yet learned; entries are estimated from their mean size.",
        "none",
        (worst("ftrl_learner_lag_examples"), "{{model}} examples"),
        (worst("ftrl_learner_lag_entries"), "{{model}} entries"),
    ),
    graph(
        "Log length",
        "Entries in the example log; learned ones remain for their retention.",
        "none",
        (worst("ftrl_log_entries"), "{{model}}"),
    ),
    graph(
        "Commit",
        "Duration of a commit, from sending it to the reply of Redis.",
        "s",
        *quantiles("ftrl_commit_duration_seconds", OF_MODEL),
    ),
    graph(
        "Commit size",
        "Mean number of slots that a commit changed and of examples that it learned.",
        "none",
        (mean("ftrl_commit_slots"), "{{model}} slots"),
        (mean("ftrl_commit_examples"), "{{model}} examples"),
    ),
    graph(
        "Checkpoint age",
        "Age of the oldest commit that is not yet written into the state; until then Redis keeps the commit.",
        "s",
        (worst("ftrl_checkpoint_behind_seconds"), "{{model}}"),
        limits=thresholds(GREEN, (300, RED)),
    ),
    graph(
        "Checkpoint size",
        "Slots written into the state per second, each once per checkpoint.",
        "none",
        (rate("ftrl_checkpoint_slots_total", "model"), "{{model}}"),
    ),
    graph(
        "Append",
        "Duration of an append to the log.",
        "s",
        *quantiles("ftrl_append_duration_seconds", OF_MODEL),
    ),
    graph(
        "Event age",
        "Age of the newest event when it was learned, if events have a time: the delay of the feedback.",
        "s",
        (worst("ftrl_event_age_seconds"), "{{model}}"),
    ),
    graph(
        "Active learners",
        "Processes that hold the lease of a model: should be 1.",
        "none",
        (f"sum by (model) (ftrl_learner_active{{{OF_MODEL}}})", "{{model}}"),
        limits=ZERO_IS_BAD,
    ),
    graph(
        "Stopped and skipped",
        "blocked: the log has an unreadable entry. skipped: updates that would make the state infinite.",
        "none",
        (worst("ftrl_learner_blocked"), "{{model}} blocked"),
        (rate("ftrl_examples_skipped_total", "model"), "{{model}} skipped"),
        limits=ONE_IS_BAD,
    ),
]

MIRRORS = [
    graph(
        "Age",
        "Time since Redis last confirmed the copy that predictions use; the oldest of all processes.",
        "s",
        (worst("ftrl_mirror_age_seconds"), "{{model}}"),
        limits=thresholds(GREEN, (30, RED)),
    ),
    graph(
        "Rounds behind",
        "Examples that the learner has learned and the slowest mirror has not yet applied.",
        "none",
        (
            f"clamp_min({worst('ftrl_model_rounds')} - min by (model) (ftrl_mirror_rounds{{{OF_MODEL}}}), 0)",
            "{{model}}",
        ),
    ),
    graph(
        "Reloads",
        "Full copies loaded in the last hour: at a start, or when a mirror cannot follow.",
        "none",
        (f"sum by (model) (increase(ftrl_mirror_loads_total{{{OF_MODEL}}}[1h]))", "{{model}}"),
    ),
]

NO_SNAPSHOT = "no data yet: no snapshot"
SNAPSHOTS = [
    graph(
        "Age of the newest snapshot",
        "Time since the model was last saved. It also rises while nothing is learned.",
        "s",
        (f"time() - max by (model) (ftrl_snapshot_success_timestamp_seconds{{{OF_MODEL}}})", "{{model}}"),
        limits=thresholds(GREEN, (3600, RED)),
        empty=NO_SNAPSHOT,
    ),
    graph(
        "Snapshot duration",
        "Mean total, and mean of the copy, during which the learner pauses.",
        "s",
        (mean("ftrl_snapshot_duration_seconds"), "{{model}}"),
        (mean("ftrl_snapshot_copy_duration_seconds"), "{{model}} copy"),
        empty=NO_SNAPSHOT,
    ),
    graph(
        "Snapshot size",
        "Size of the newest file.",
        "bytes",
        (worst("ftrl_snapshot_bytes"), "{{model}}"),
        empty=NO_SNAPSHOT,
    ),
    graph(
        "Failures, restores, rollbacks",
        "Snapshots that could not be written, states that were replaced, and automatic rollbacks.",
        "none",
        (f"sum by (model, reason) (ftrl_snapshot_failures_total{{{OF_MODEL}}})", "{{model}} {{reason}}"),
        (f"sum by (model) (ftrl_restores_total{{{OF_MODEL}}})", "{{model}} restores"),
        (f"sum by (model) (ftrl_rollbacks_total{{{OF_MODEL}}})", "{{model}} rollbacks"),
        min=0,
    ),
]
