"""What it does to predictions when clicks are learned at once, and labels 0 only when their windows close."""

from itertools import count
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.criteo import FILE, LOGS_FILE, Row, rows
from bench.result import Options, Result
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from service.models.config.model import ModelConfig

WINDOW = 10_000
"""Rows from an impression to the close of its window."""
CLICK_KEPT = 10
"""Of the display ads, whose click rate is 22 %, every tenth click stays: then it is 3 %."""
LearnAt = Literal["arrival", "window_close"]


class Impressions(NamedTuple):
    """`examples`: one a row, as the kernels take it; `labels` float64[r]."""

    what: str
    examples: list[ExampleBatch]
    labels: npt.NDArray[np.float64]

    @property
    def click_rate(self) -> float:
        return float(self.labels.mean())


class Start(NamedTuple):
    """How a model goes live. `learned`: how many rows it has learned before, in order, with their labels."""

    what: str
    learned: int


def measure(_: Options) -> list[Result]:
    """No figure of speed: it is the same in every round."""
    clicks = count()
    thinned = [row for row in rows(name=FILE) if not row.label or next(clicks) % CLICK_KEPT == 0]
    return [
        *_both_starts(_encoded("display ads", thinned), 10_000),
        *_both_starts(_encoded("click logs", list(rows(name=LOGS_FILE))), 5_000),
    ]


def _encoded(what: str, source: list[Row]) -> Impressions:
    encoder = FeatureEncoder(ModelConfig().hashing)
    examples = [ExampleBatch.from_encoded([encoder.encode(row.features)], [row.label]) for row in source]
    return Impressions(what, examples, np.array([row.label for row in source], np.float64))


def _both_starts(impressions: Impressions, learned: int) -> list[Result]:
    starts = (Start("empty", 0), Start(f"{learned:,} rows learned", learned))
    return [result for start in starts for result in _compared(impressions, start)]


def _compared(impressions: Impressions, start: Start) -> list[Result]:
    arrival, close = (_served(impressions, start, learn_at) for learn_at in ("arrival", "window_close"))
    return [
        Result(
            "label-delay",
            f"{impressions.what}, {start.what}, {name}: predictions over clicks",
            "",
            (_calibration(close, impressions, span),),
            (_calibration(arrival, impressions, span),),
            "clicks learned at once",
            notes=(_chance(impressions, start, span),),
        )
        for name, span in _spans(start.learned, len(impressions.labels))
    ]


def _spans(start: int, stop: int) -> list[tuple[str, slice]]:
    """The first two windows and the rest, as far as there are rows."""
    edges = [start, start + WINDOW, start + 2 * WINDOW, stop]
    names = ("first window", "second window", "after it")
    spans = zip(names, edges, edges[1:], strict=False)
    return [(name, slice(low, min(high, stop))) for name, low, high in spans if low < stop]


def _chance(impressions: Impressions, start: Start, span: slice) -> str:
    """Clicks are a matter of chance in the span, and in what was learned by its middle."""
    clicks = int(impressions.labels[span].sum())
    middle = (span.start + span.stop) // 2
    known = int(impressions.labels[: max(start.learned, middle - WINDOW)].sum())
    error = (1 / clicks + (1 / known if known else 0.0)) ** 0.5
    prior = f"prior_probability {impressions.click_rate:.4f}, as of all rows"
    return f"rows {span.start:,} to {span.stop:,}, {clicks:,} clicks: standard error {error:.1%}; {prior}"


def _served(impressions: Impressions, start: Start, learn_at: LearnAt) -> npt.NDArray[np.float64]:
    """float64[r]: what is predicted of each row when it comes, from the labels that are known by then."""
    config = ModelConfig.from_json({"hashing": {"prior_probability": impressions.click_rate}})
    state = config.empty_state()
    served = np.empty(len(impressions.labels))
    clicked = impressions.labels.tolist()
    for number, example in enumerate(impressions.examples):
        closing = number - WINDOW
        if closing >= start.learned and not (learn_at == "arrival" and clicked[closing]):
            config.learn(state, impressions.examples[closing])
        served[number] = config.predict(state, example)[0]
        if number < start.learned or (learn_at == "arrival" and clicked[number]):
            config.learn(state, example)
    return served


def _calibration(served: npt.NDArray[np.float64], impressions: Impressions, span: slice) -> float:
    return float(served[span].mean() / impressions.labels[span].mean())
