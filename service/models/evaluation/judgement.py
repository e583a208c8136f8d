"""The rule by which a model is right or wrong: the one that the page shows and the alerts use.

Right is a model that predicts better than the constant click rate, and whose predictions are calibrated: in
total, in the buckets of the reliability curve, and in the slices. Each check allows for chance, and where
many parts are compared, for the worst of so many (Bonferroni): a model that is right fails a check in 0.27 %
of windows. docs/mathematics.md has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

from model_core.evaluation.figures import WINDOWS, Figures, Window

Check = Literal["total", "constant", "slice", "bucket"]
CHECKS: tuple[Check, ...] = ("total", "constant", "slice", "bucket")

JUDGED_OVER: tuple[Window, ...] = ("30m", "1h", "24h", "all")
"""The shortest window that holds enough clicks is judged."""
STANDARD_ERRORS = 3.0
FAMILY_ERROR = 2.0 * NormalDist().cdf(-STANDARD_ERRORS)
PART_MARGIN = 1.25
"""By which factor the calibration of a part may be off, whatever chance allows."""
MIN_PART_CLICKS = 10.0
"""Clicks that a part has or should have at least, to be compared."""


class Part(NamedTuple):
    """Some examples of a window: predictions of a bucket, or the value of a sliced feature.

    examples: their number; with weights, the number whose click rate is as uncertain.
    """

    where: str
    examples: float
    mean_prediction: float
    click_rate: float

    @property
    def standard_errors(self) -> float:
        """How far predictions and clicks are apart, in standard errors of the latter if the former are right.

        On the scale of the arcsine, on which the error of a rate does not depend on the rate (Anscombe 1948).
        """
        predicted, clicked = (
            math.asin(math.sqrt((self.examples * rate + 0.375) / (self.examples + 0.75)))
            for rate in (self.mean_prediction, self.click_rate)
        )
        return 2.0 * math.sqrt(self.examples) * (predicted - clicked)

    @property
    def is_comparable(self) -> bool:
        return self.examples * max(self.mean_prediction, self.click_rate) >= MIN_PART_CLICKS

    @property
    def is_off(self) -> bool:
        low, high = sorted((self.mean_prediction, self.click_rate))
        return high > PART_MARGIN * low


class Weighing(NamedTuple):
    """`other`: the mean weight of examples without a click over that of clicks; 10 if a tenth is sampled."""

    other: float

    @classmethod
    def of(cls, clicks: float, examples: float, rate: float) -> Weighing:
        """From the numbers of clicks and of examples, and the click rate by weight."""
        others = examples - clicks
        return cls((1.0 - rate) / rate * clicks / others if others > 0.0 else 1.0)

    def equivalent(self, examples: float, prediction: float) -> float:
        """The number of examples of weight 1 whose click rate is as uncertain, if the prediction is right.

        `examples`: their weight over that of a click. Each is off by its weight times the difference of label
        and prediction: the variance is p(1 − p)((1 − p) + p `other`) for each.
        """
        return examples / (1.0 - prediction + prediction * self.other)


class Finding(NamedTuple):
    """The result of a check. `wrong`: None if it may be chance whether it is right.

    total: `ratio` is predicted clicks over clicks, and right if within `tolerance` of 1.
    constant: `ratio` is the normalized entropy, and `tolerance` three standard errors of it.
    slice, bucket: `ratio` is predicted clicks over clicks of the worst part, `where`; None without a click.
    """

    check: Check
    wrong: bool | None
    ratio: float | None
    tolerance: float | None = None
    where: str = ""


class Judgement(NamedTuple):
    """The findings over a window, in the order of CHECKS; parts that cannot be compared have none."""

    window: Window
    source: str
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        findings = [finding._asdict() for finding in self.findings]
        return {"window": self.window, "source": self.source, "findings": findings}


def judgement_of(
    sources: Mapping[str, Sequence[tuple[Figures, Figures]]], slices: Mapping[Window, Sequence[Part]]
) -> Judgement | None:
    """Judge the probabilities that were served if these are evaluated, else the progressive ones; None if no
    window holds enough clicks. `sources`: for each, the figures of all windows by weight and unweighted.
    """
    source = "served" if "served" in sources else "progressive"
    windows = dict(zip(WINDOWS, sources[source], strict=True))
    for window in JUDGED_OVER:
        by_weight, plain = windows[window]
        if by_weight.calibration_ratio is not None:
            findings = (
                _total(by_weight),
                _better_than_constant(by_weight, plain),
                _worst("slice", slices.get(window, ())),
                _worst("bucket", list(_buckets(by_weight, plain))),
            )
            return Judgement(window, source, tuple(one for one in findings if one is not None))
    return None


def slice_part(feature: str, value: str, figures: Figures) -> Part | None:
    """Return a slice as a part, from its figures by weight; None if it has too few clicks."""
    rate, prediction = figures.base_rate, figures.mean_prediction
    if not rate or prediction is None:
        return None
    weighing = Weighing.of(figures.clicks, figures.examples, rate)
    examples = weighing.equivalent(figures.clicks / rate, prediction)
    return Part(f"{feature} = {value}", examples, prediction, rate)


def _total(figures: Figures) -> Finding:
    ratio, tolerance = figures.calibration_ratio or 0.0, figures.calibration_tolerance or 0.0
    return Finding("total", abs(ratio - 1.0) > tolerance, ratio, tolerance)


def _better_than_constant(by_weight: Figures, plain: Figures) -> Finding | None:
    """Compare the log loss with that of the window's own click rate."""
    entropy_ratio, log_loss, rate = by_weight.normalized_entropy, by_weight.log_loss, by_weight.base_rate
    if not entropy_ratio or not log_loss or not rate:
        return None
    entropy = log_loss / entropy_ratio
    tolerance = STANDARD_ERRORS * _error_of_gain(by_weight, plain, rate, log_loss - entropy) / entropy
    wrong = None if abs(entropy_ratio - 1.0) <= tolerance else entropy_ratio > 1.0
    return Finding("constant", wrong, entropy_ratio, tolerance)


def _error_of_gain(by_weight: Figures, plain: Figures, rate: float, mean: float) -> float:
    """Standard error of the mean difference between the loss of the predictions and that of the click rate.

    The predictions of a bucket are taken as equal, and so are the weights of its clicks, and of the others.
    """
    numbers = {row.low: row for row in plain.reliability}
    variance = total = 0.0
    for row in by_weight.reliability:
        number = numbers[row.low]
        p = min(max(row.mean_prediction, 1e-12), 1.0 - 1e-12)
        for share, share_of_number, loss in (
            (row.click_rate, number.click_rate, math.log(rate / p)),
            (1.0 - row.click_rate, 1.0 - number.click_rate, math.log((1.0 - rate) / (1.0 - p))),
        ):
            weight, count = row.examples * share, number.examples * share_of_number
            if count > 0.0:
                variance += weight**2 / count * (loss - mean) ** 2
        total += row.examples
    return math.sqrt(variance) / total


def _buckets(by_weight: Figures, plain: Figures) -> Iterator[Part]:
    """A bucket without a click, or of clicks alone, is taken to be weighed like the whole window."""
    numbers = {row.low: row for row in plain.reliability}
    weight = sum(row.examples for row in by_weight.reliability)
    rate = by_weight.base_rate or 1.0
    of_all = Weighing.of(by_weight.clicks, by_weight.examples, rate)
    weight_of_a_click = weight * rate / by_weight.clicks
    for row in by_weight.reliability:
        number = numbers[row.low]
        clicks = number.examples * number.click_rate
        examples, weighing = row.examples / weight_of_a_click, of_all
        if 0.0 < row.click_rate < 1.0:
            examples = clicks / row.click_rate
            weighing = Weighing.of(clicks, number.examples, row.click_rate)
        equivalent = weighing.equivalent(examples, row.mean_prediction)
        yield Part(f"{row.low:g} to {row.high:g}", equivalent, row.mean_prediction, row.click_rate)


def _worst(check: Check, parts: Sequence[Part]) -> Finding | None:
    """The part that is off by the most standard errors, if any is, else the one that is the most apart."""
    compared = [part for part in parts if part.is_comparable]
    if not compared:
        return None
    allowed = -NormalDist().inv_cdf(FAMILY_ERROR / 2.0 / len(compared))
    wrong = [part for part in compared if part.is_off and abs(part.standard_errors) > allowed]
    worst = max(wrong or compared, key=lambda part: abs(part.standard_errors))
    ratio = worst.mean_prediction / worst.click_rate if worst.click_rate > 0.0 else None
    return Finding(check, bool(wrong), ratio, where=worst.where)
