"""Rows of the dashboard *Model quality* on drift over the day and on the state."""

from __future__ import annotations

from panels import GREEN, RED, YELLOW, graph, thresholds
from quality_queries import MODEL, of_model, online

DRIFT = [
    graph(
        "Click rate, short against long",
        "15 minutes against 24 hours. If they diverge, the traffic has changed.",
        "percentunit",
        (online("base_rate_ratio", f'{MODEL}, window="15m", weighting="$weighting"'), "15m {{source}}"),
        (online("base_rate_ratio", f'{MODEL}, window="24h", weighting="$weighting"'), "24h {{source}}"),
    ),
    graph(
        "AUC, short against long",
        "15 minutes against 24 hours.",
        "none",
        (online("auc", f'{MODEL}, window="15m", weighting="$weighting"'), "15m {{source}}"),
        (online("auc", f'{MODEL}, window="24h", weighting="$weighting"'), "24h {{source}}"),
        decimals=4,
    ),
    graph(
        "Examples and clicks",
        "Unweighted counts of the window, on which the figures are based.",
        "short",
        (online("examples"), "{{source}} examples"),
        (online("clicks"), "{{source}} clicks"),
    ),
]

STATE = [
    graph(
        "Features",
        "Features seen, and those with a non-zero weight.",
        "short",
        (of_model("features_seen"), "seen"),
        (of_model("nonzero_features"), "non-zero"),
        min=0,
    ),
    graph(
        "Density",
        "Non-zero weights over features seen: the effect of l1.",
        "percentunit",
        (of_model("density_ratio"), "density"),
        min=0,
        max=1,
    ),
    graph(
        "Slots",
        "Share of slots in use, and of features expected to share a slot. More `bits` reduce both.",
        "percentunit",
        (of_model("slot_load_ratio"), "in use"),
        (of_model("expected_collision_ratio"), "collisions"),
        min=0,
        limits=thresholds(GREEN, (0.2, YELLOW)),
    ),
    graph(
        "Weight norm",
        "Euclidean norm of the weights. It levels off; a jump means that the data changed.",
        "none",
        (of_model("weight_norm"), "norm"),
    ),
    graph("Rounds", "Examples learned since the model was created.", "short", (of_model("rounds"), "t")),
    graph(
        "Slots that are not finite",
        "Always 0.",
        "none",
        (of_model("nonfinite_slots"), "slots"),
        limits=thresholds(GREEN, (1, RED)),
        min=0,
    ),
]
