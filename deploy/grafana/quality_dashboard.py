"""The dashboard *Model quality*: how good the predictions are."""

from __future__ import annotations

from challenger_panels import CHALLENGERS
from events import EVENTS
from panels import (
    GREEN,
    RED,
    YELLOW,
    Json,
    choice,
    dashboard,
    graph,
    panel,
    stat,
    table,
    thresholds,
    variable,
)
from quality_queries import BUCKETS, FEW_CLICKS, MODEL, headline, interval, margin, of_model, online
from slice_panels import SLICES
from state_panels import DRIFT, STATE

TOLERANCE = f'ftrl:calibration_tolerance{{{MODEL}, window="30m"}}'
OFF = thresholds(RED, (0.9, YELLOW), (0.95, GREEN), (1.05, YELLOW), (1.1, RED))
HEADLINES = [
    stat(
        "AUC",
        "Chance that a click was predicted higher than a non-click, over the last hour.",
        "none",
        headline("auc"),
        "{{source}}",
        margin=margin("auc"),
        decimals=4,
        empty=FEW_CLICKS,
    ),
    stat(
        "Normalized entropy",
        "Log loss over that of always predicting the click rate; below 1 is better than that.",
        "none",
        headline("normalized_entropy"),
        decimals=4,
        limits=thresholds(GREEN, (1, RED)),
        empty=FEW_CLICKS,
    ),
    stat(
        "Calibration",
        "Predicted clicks over clicks of the last half hour. 1 is right; prices are off by this factor.",
        "none",
        headline("calibration_ratio", "30m"),
        margin=margin("calibration_ratio", "30m"),
        decimals=3,
        limits=OFF,
        empty=FEW_CLICKS,
    ),
    stat(
        "Off by",
        "How far calibration is from 1, over what is tolerated: 5 %, or three standard errors.",
        "none",
        f"abs({headline('calibration_ratio', '30m')} - 1) / {TOLERANCE}",
        decimals=2,
        limits=thresholds(GREEN, (0.7, YELLOW), (1, RED)),
        empty=FEW_CLICKS,
    ),
    stat(
        "Log loss",
        "Mean of the last hour, in nats.",
        "none",
        headline("log_loss"),
        margin=margin("log_loss"),
        decimals=4,
        empty=FEW_CLICKS,
    ),
    stat(
        "Click rate",
        "Of the last hour.",
        "percentunit",
        headline("base_rate_ratio"),
        margin=margin("base_rate_ratio"),
        decimals=2,
        empty=FEW_CLICKS,
    ),
    stat(
        "Clicks",
        "Of the last hour: what the figures rest on.",
        "short",
        headline("clicks"),
        limits=thresholds(RED, (50, YELLOW), (300, GREEN)),
    ),
    stat(
        "Density",
        "Non-zero weights over features seen.",
        "percentunit",
        of_model("density_ratio"),
        decimals=1,
    ),
]

AUC = [
    graph(
        "AUC",
        "With its 95 % interval: chance, and the rounding of scores to a histogram.",
        "none",
        (online("auc"), "{{source}}"),
        *interval("auc"),
        decimals=4,
        width=12,
        empty=FEW_CLICKS,
    ),
    graph(
        "AUC against yesterday",
        "Over an hour. An alert where it is lower by 0.02 and by more than chance.",
        "none",
        (headline("auc"), "now"),
        (f"{headline('auc')} offset 1d", "yesterday"),
        decimals=4,
        width=12,
        empty=FEW_CLICKS,
    ),
]

LOSS = [
    graph(
        "Normalized entropy",
        "Comparable across click rates, as log loss is not. Above 1 a constant would be better.",
        "none",
        (online("normalized_entropy"), "{{source}}"),
        limits=thresholds(GREEN, (1, RED)),
        decimals=4,
        empty=FEW_CLICKS,
    ),
    graph(
        "Log loss",
        "Mean of the window, in nats, with its 95 % interval.",
        "none",
        (online("log_loss"), "{{source}}"),
        *interval("log_loss"),
        decimals=4,
        empty=FEW_CLICKS,
    ),
    graph(
        "Log loss against yesterday",
        "Over an hour, beside the same hour of yesterday. An alert at 1.1 times that.",
        "none",
        (headline("log_loss"), "now"),
        (f"{headline('log_loss')} offset 1d", "yesterday"),
        decimals=4,
        empty=FEW_CLICKS,
    ),
]

CALIBRATION = [
    graph(
        "Calibration",
        "Predicted clicks over clicks of half an hour, and what is tolerated: 5 %, or three standard errors.",
        "none",
        (headline("calibration_ratio", "30m"), "ratio"),
        (f"1 + {TOLERANCE}", "tolerated, high"),
        (f"1 - {TOLERANCE}", "tolerated, low"),
        decimals=3,
        empty=FEW_CLICKS,
    ),
    graph(
        "Mean prediction and click rate",
        "They lie on each other where the model is calibrated.",
        "percentunit",
        (online("mean_prediction_ratio"), "{{source}} predicted"),
        (online("base_rate_ratio"), "{{source}} clicked"),
        empty=FEW_CLICKS,
    ),
    graph(
        "Calibration by source",
        "progressive: predicted just before learning. served: what was answered, where that is kept."
        " With their 95 % intervals.",
        "none",
        (online("calibration_ratio"), "{{source}}"),
        *interval("calibration_ratio"),
        limits=OFF,
        decimals=3,
        empty=FEW_CLICKS,
    ),
]

RELIABILITY = [
    panel(
        "barchart",
        "Reliability",
        "Mean prediction and click rate of each bucket of predictions: a pair of one height is right.",
        "percentunit",
        (online("reliability_predicted_ratio", BUCKETS), "predicted"),
        (online("reliability_observed_ratio", BUCKETS), "clicked"),
        instant=True,
        width=12,
        height=9,
        options={
            "xField": "bucket",
            "orientation": "vertical",
            "legend": {"displayMode": "list", "placement": "bottom"},
        },
        empty=FEW_CLICKS,
    ),
    table(
        "Reliability by bucket",
        "The same as figures, with the number of examples behind each row.",
        "none",
        (online("reliability_predicted_ratio", BUCKETS), ""),
        (online("reliability_observed_ratio", BUCKETS), ""),
        (online("reliability_examples", BUCKETS), ""),
        join="bucket",
        width=12,
        height=9,
        decimals=5,
        empty=FEW_CLICKS,
    ),
]

QUALITY: Json = dashboard(
    "ftrl-quality",
    "Model quality",
    "AUC, loss, calibration and density of one model, as it learns.",
    [
        variable("model", "Model", "label_values(ftrl_model_rounds, model)", many=False),
        choice("window", "Window", "1h", "15m", "30m", "24h", "all"),
        choice("weighting", "Weighting", "importance", "none"),
        variable(
            "source",
            "Source of reliability",
            'label_values(ftrl_online_examples{model="$model"}, source)',
            many=False,
        ),
        choice("reliability", "Window of reliability and slices", "1h", "24h"),
        variable(
            "feature",
            "Sliced feature",
            'label_values(ftrl_slice_examples{model="$model"}, feature)',
            many=True,
        ),
    ],
    rows={
        "Now": HEADLINES,
        "AUC": AUC,
        "Loss": LOSS,
        "Calibration": CALIBRATION,
    },
    details={
        "Challengers": CHALLENGERS,
        "Reliability": RELIABILITY,
        "Slices": SLICES,
        "Drift": DRIFT,
        "State": STATE,
    },
    events=EVENTS,
)
