"""What it does to predictions when clicks are learned at once, and labels 0 only when their windows close."""

from itertools import count
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.criteo import FILE, LOGS_FILE, Row, rows
from bench.result import Options, Result
from model_core.examples import ExampleBatch
from model_core.hashing import FeatureEncoder, Limits
from model_core.state import ModelState
from service.model_config import ModelConfig

WINDOW = 10_000
"""Rows from an impression to the close of its window."""
CLICK_KEPT = 10
"""Of the display ads, whose click rate is 22 %, every tenth click stays: then it is 3 %."""
CONFIG = ModelConfig.from_json({"hashing": {"prior_probability": 0.03}})
LearnAt = Literal["arrival", "window_close"]


class Impressions(NamedTuple):
    """`examples`: one a row, as the kernels take it; `labels` uint8[r]."""

    examples: list[ExampleBatch]
    labels: npt.NDArray[np.uint8]


def measure(_: Options) -> list[Result]:
    """No figure of speed: it is the same in every round."""
    clicks = count()
    thinned = [row for row in rows(name=FILE) if not row.label or next(clicks) % CLICK_KEPT == 0]
    return [
        *_compared("display ads, every tenth click", thinned),
        *_compared("click logs", list(rows(name=LOGS_FILE))),
    ]


def _compared(what: str, source: list[Row]) -> list[Result]:
    impressions = _encoded(source)
    arrival, close = (_served(impressions, learn_at) for learn_at in ("arrival", "window_close"))
    spans = [("first", slice(WINDOW))]
    if len(source) > WINDOW:
        spans.append(("later", slice(WINDOW, None)))
    return [
        Result(
            "label-delay",
            f"{what}, {name} rows: predictions over clicks",
            "",
            (_calibration(close, impressions, span),),
            (_calibration(arrival, impressions, span),),
            "clicks learned at once",
            notes=(
                f"{len(source):,} rows, {int(impressions.labels.sum()):,} clicks, windows of {WINDOW:,} rows",
            ),
        )
        for name, span in spans
    ]


def _encoded(source: list[Row]) -> Impressions:
    encoder = FeatureEncoder(CONFIG.hashing, Limits(value_magnitude=1e9))
    examples = [ExampleBatch.from_encoded([encoder.encode(row.features)], [row.label]) for row in source]
    return Impressions(examples, np.array([row.label for row in source], np.uint8))


def _served(impressions: Impressions, learn_at: LearnAt) -> npt.NDArray[np.float64]:
    """float64[r]: what is predicted of each row when it comes, from the labels that are known by then."""
    state = ModelState.empty(CONFIG.hashing.bits)
    served = np.empty(len(impressions.labels))
    clicked = impressions.labels.tolist()
    for number, example in enumerate(impressions.examples):
        closing = number - WINDOW
        if closing >= 0 and not (learn_at == "arrival" and clicked[closing]):
            CONFIG.learn(state, impressions.examples[closing])
        served[number] = CONFIG.predict(state, example)[0]
        if learn_at == "arrival" and clicked[number]:
            CONFIG.learn(state, example)
    return served


def _calibration(served: npt.NDArray[np.float64], impressions: Impressions, span: slice) -> float:
    return float(served[span].mean() / impressions.labels[span].mean())
