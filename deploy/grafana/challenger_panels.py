"""Row of the dashboard *Model quality* on the challengers of the model."""

from __future__ import annotations

from panels import GREEN, RED, YELLOW, graph, thresholds
from quality_queries import challenger, relative_to_champion

NO_CHALLENGER = "no data yet: no challenger"
CHALLENGERS = [
    graph(
        "Gain of the challengers",
        "By how much the log loss of a challenger is lower than the champion's, on the same examples, with"
        " the band that holds at all times together with 95 %. A band above 0: better.",
        "percentunit",
        (relative_to_champion(challenger("log_loss_difference")), "{{model}}"),
        (relative_to_champion(challenger("log_loss_difference_bound")), "{{model}} {{bound}}"),
        decimals=2,
        width=12,
        empty=NO_CHALLENGER,
    ),
    graph(
        "Log loss of both",
        "Mean over the examples that both predicted before they learned them, in nats.",
        "none",
        (challenger("log_loss"), "{{model}}: {{of}}"),
        decimals=5,
        width=12,
        empty=NO_CHALLENGER,
    ),
    graph(
        "Verdict",
        "1: the challenger is better. -1: it is worse. 0: undecided. An alert at 1.",
        "none",
        (challenger("verdict"), "{{model}}"),
        limits=thresholds(RED, (-0.5, YELLOW), (0.5, GREEN)),
        min=-1,
        max=1,
        empty=NO_CHALLENGER,
    ),
    graph(
        "Calibration of both",
        "Predicted clicks over clicks of the same examples. 1 is right.",
        "none",
        (challenger("calibration_ratio"), "{{model}}: {{of}}"),
        decimals=3,
        empty=NO_CHALLENGER,
    ),
    graph(
        "Examples compared",
        "Paired: both models predicted them before learning. Unpaired: only one of them did.",
        "short",
        (challenger("paired_examples"), "{{model}} paired"),
        (challenger("unpaired_examples"), "{{model}} unpaired"),
        min=0,
        empty=NO_CHALLENGER,
    ),
]
