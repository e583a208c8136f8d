"""The dashboard *Service*: availability, latency and learning."""

from __future__ import annotations

from events import EVENTS
from feedback_panels import FEEDBACK
from learner_panels import LEARNER, MIRRORS, SNAPSHOTS
from panels import (
    GREEN,
    ONE_IS_BAD,
    RED,
    YELLOW,
    ZERO_IS_BAD,
    Json,
    dashboard,
    graph,
    lights,
    stat,
    table,
    thresholds,
    variable,
    words,
)
from queries import HEALTH, OF_MODEL, RATE, SECONDS, quantiles, rate

OVERVIEW = [
    stat(
        "Up",
        "Whether every process that Prometheus scrapes answers.",
        "none",
        'min(up{job=~"ftrl-.+"})',
        limits=ZERO_IS_BAD,
        mappings=words("Down", "Up"),
    ),
    stat(
        "Ready",
        "Whether every process serves predictions and accepts updates.",
        "none",
        "min(ftrl_ready)",
        limits=ZERO_IS_BAD,
        mappings=words("Not ready", "Ready"),
    ),
    stat(
        "Requests",
        "Requests per second, without health probes.",
        "reqps",
        f"sum(rate({SECONDS}_count{{{HEALTH}}}{RATE}))",
    ),
    stat(
        "Server errors",
        "Share of requests that end with 5xx. Alerts above 1 %.",
        "percentunit",
        "ftrl:http_errors:ratio_rate5m",
        limits=thresholds(GREEN, (0.001, YELLOW), (0.01, RED)),
        decimals=2,
    ),
    stat(
        "Predict p99",
        "99th percentile of the latency over 5 minutes. Alerts above 50 ms.",
        "s",
        "ftrl:predict_duration_seconds:p99_5m",
        limits=thresholds(GREEN, (0.01, YELLOW), (0.05, RED)),
    ),
    stat(
        "Learner lag",
        "Age of the oldest example that is not yet learned, of the worst model.",
        "s",
        f"max(ftrl_learner_lag_seconds{{{OF_MODEL}}})",
        limits=thresholds(GREEN, (5, YELLOW), (30, RED)),
    ),
    stat(
        "Redis",
        "Whether Redis answers every process.",
        "none",
        "min(ftrl_redis_up)",
        limits=ZERO_IS_BAD,
        mappings=words("Down", "Up"),
    ),
    stat(
        "Alerts",
        "Firing alerts; docs/runbook.md says what to do about each.",
        "none",
        'count(ALERTS{alertname=~"Ftrl.+", alertstate="firing"}) or vector(0)',
        limits=ONE_IS_BAD,
    ),
]

TRAFFIC = [
    graph(
        "Requests",
        "By route and status. Routes are templates: one line for all models.",
        "reqps",
        (f"sum by (route, status) (rate({SECONDS}_count{{{HEALTH}}}{RATE}))", "{{route}} {{status}}"),
    ),
    graph(
        "Predictions",
        "Probabilities served per second; one request may ask for many.",
        "cps",
        (rate("ftrl_predictions_total", "model"), "{{model}}"),
    ),
    graph(
        "Examples learned",
        "By label: 1 is a click. Without clicks the model learns that nothing is clicked.",
        "cps",
        (rate("ftrl_examples_learned_total", "model, label"), "{{model}} label {{label}}"),
    ),
]

LATENCY = [
    graph(
        "Predict",
        "From the first byte of the request to the last of the reply; successful requests.",
        "s",
        *quantiles(SECONDS, 'route=~".*/predict", status="200"'),
        limits=thresholds(GREEN, (0.05, RED)),
    ),
    graph(
        "Update",
        "Successful requests; by default they wait until the example is learned.",
        "s",
        *quantiles(SECONDS, 'route=~".*/update", status=~"20."'),
        limits=thresholds(GREEN, (1, RED)),
    ),
    graph(
        "In flight",
        "Requests in progress, over all workers.",
        "none",
        ("sum by (route) (ftrl_http_requests_in_progress)", "{{route}}"),
    ),
]

ERRORS = [
    graph(
        "Server errors",
        "Share of requests that end with 5xx, over 5 minutes.",
        "percentunit",
        ("ftrl:http_errors:ratio_rate5m", "5xx"),
        limits=thresholds(GREEN, (0.01, RED)),
        min=0,
    ),
    graph(
        "Refused requests",
        "4xx are errors of the caller: 422 invalid, 429 backlog or memory limit, 404 no such model.",
        "reqps",
        (
            f'sum by (status) (rate({SECONDS}_count{{status=~"4..", {HEALTH}}}{RATE})) or vector(0)',
            "{{status}}",
        ),
    ),
    graph(
        "Updates by outcome",
        "learned: with figures. appended: durable, learned later. duplicate: a repeated event id.",
        "cps",
        (rate("ftrl_update_examples_total", "model, status"), "{{model}} {{status}}"),
    ),
]

REDIS = [
    graph(
        "Memory",
        "Used, and the limit if there is one (0 is none). Above 85 % of it new examples are refused.",
        "bytes",
        ("max(ftrl_redis_memory_used_bytes)", "used"),
        ("max(ftrl_redis_memory_limit_bytes)", "limit"),
        min=0,
        width=6,
    ),
    lights(
        "Answers",
        "Whether Redis answers each kind of process.",
        words("down", "up"),
        ("min by (job) (ftrl_redis_up)", "{{job}}"),
        width=6,
    ),
    lights(
        "Safety",
        "Whether it persists, its last write to disk succeeded, it evicts nothing, and examples fit.",
        words("no", "yes"),
        ("min(ftrl_redis_persists)", "persists"),
        ("min(ftrl_redis_persistence_ok)", "writes succeed"),
        ("min(ftrl_redis_policy_ok)", "evicts nothing"),
        ("1 - max(ftrl_redis_shedding)", "has room"),
        width=6,
    ),
    graph(
        "Examples lost",
        "Acknowledged by Redis and lost by a failover or a crash in the last hour. Alerts above 0.",
        "short",
        (f"sum by (model) (increase(ftrl_examples_lost_total{{{OF_MODEL}}}[1h]))", "{{model}}"),
        limits=thresholds(GREEN, (1, RED)),
        min=0,
        width=6,
    ),
]

PROCESSES = [
    graph(
        "CPU",
        "Cores in use. A worker or a learner uses at most one for its own work.",
        "none",
        (
            f'sum by (job, instance, process) (rate(process_cpu_seconds_total{{job=~"ftrl-.+"}}{RATE}))',
            "{{instance}} {{process}}",
        ),
    ),
    graph(
        "Memory",
        "Resident memory.",
        "bytes",
        (
            'sum by (job, instance, process) (process_resident_memory_bytes{job=~"ftrl-.+"})',
            "{{instance}} {{process}}",
        ),
        min=0,
    ),
    graph(
        "Open files",
        "File descriptors in use, as a share of the limit.",
        "percentunit",
        (
            'sum by (job, instance, process) (process_open_fds{job=~"ftrl-.+"} / process_max_fds)',
            "{{instance}} {{process}}",
        ),
        min=0,
    ),
    graph(
        "Garbage collection",
        "Collections per second, by generation.",
        "cps",
        (
            f'sum by (job, generation) (rate(python_gc_collections_total{{job=~"ftrl-.+"}}{RATE}))',
            "{{job}} generation {{generation}}",
        ),
    ),
    table(
        "Builds",
        "Running versions.",
        "none",
        ("count by (job, version, python) (ftrl_build_info)", ""),
        hide=("Value",),
    ),
    table(
        "Models",
        "Loaded models; the fingerprint identifies the hash contract.",
        "none",
        (f"max by (model, hash_fingerprint, family, bits) (ftrl_model_info{{{OF_MODEL}}})", ""),
        hide=("Value",),
    ),
]

SERVICE: Json = dashboard(
    "ftrl-service",
    "Service",
    "Traffic, latency, errors, the learner's lag, mirrors and Redis.",
    [variable("model", "Model", "label_values(ftrl_mirror_rounds, model)", many=True)],
    rows={
        "Now": OVERVIEW,
        "Traffic": TRAFFIC,
        "Latency": LATENCY,
        "Errors": ERRORS,
        "Learner": LEARNER,
    },
    details={
        "Mirrors": MIRRORS,
        "Feedback": FEEDBACK,
        "Snapshots": SNAPSHOTS,
        "Redis": REDIS,
        "Processes": PROCESSES,
    },
    events=EVENTS,
)
