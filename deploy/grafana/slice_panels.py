"""The row *Slices* of the dashboard *Model quality*: figures by the values of sliced features."""

from __future__ import annotations

from panels import graph, table, thresholds
from quality_queries import of_slice

EMPTY = "no data yet: a slice needs 50 clicks, and a model whose `evaluation` names slices"
OF_SLICE = "{{feature}} = {{value}}"
OFF = thresholds("red", (0.9, "yellow"), (0.95, "green"), (1.05, "yellow"), (1.1, "red"))

SLICES = [
    graph(
        "AUC by slice",
        "By the values that the model's `evaluation` names; `other` is the rest.",
        "none",
        (of_slice("auc"), OF_SLICE),
        decimals=4,
        empty=EMPTY,
    ),
    graph(
        "Calibration by slice",
        "Predicted clicks over clicks. A slice that is off is mispriced even if the total is right.",
        "none",
        (of_slice("calibration_ratio"), OF_SLICE),
        limits=OFF,
        decimals=3,
        empty=EMPTY,
    ),
    graph(
        "Log loss by slice",
        "Mean, in nats. It follows the slice's click rate.",
        "none",
        (of_slice("log_loss"), OF_SLICE),
        decimals=4,
        empty=EMPTY,
    ),
    table(
        "Slices",
        "Number of examples and clicks behind the figures of each slice.",
        "short",
        (of_slice("examples"), ""),
        (of_slice("clicks"), ""),
        join="value",
        width=24,
        height=9,
        empty=EMPTY,
    ),
]
