"""Two models on the same examples, each of which both predicted before they learned it.

Of the differences of their log losses there is a confidence sequence, so that the comparison may be looked at
at any time; another one is of the clicks, for their calibrations.  docs/mathematics.md has the definitions.

A comparison is stored as one value: u8 version, then its sums and the points of its course, little-endian
float64.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.errors import FormatError
from model_core.evaluation.buckets import counts_as_example, see
from model_core.evaluation.confidence_sequence import ENOUGH, evidence, radius
from model_core.evaluation.intervals import Interval
from model_core.examples.batch import ExampleBatch
from model_core.kernels.compiled import inlined_kernel, kernel
from model_core.kernels.number_text import plain_number

Verdict = Literal["better", "worse", "undecided"]
"""What the challenger is."""

LARGEST_DIFFERENCE = 1.0
"""Where the difference of an example is clipped: in nats, if it weighs as much as a click."""
LARGEST_RESIDUAL = 8.0
"""Where a click less its prediction is clipped: in clicks."""
PAIRS_A_LOOK = 64
"""After how many pairs the verdict is given again, however the log is cut into commits."""

POINTS = 64
"""How many points of its course are remembered: at first one each PAIRS_A_LOOK; when they are full, half of
them go and the distance doubles."""

VERSION = 1

# The sums: numbers and weights of examples; then sums of what counts by the weight over the unit of before.
SUMS = 23
PAIRS, UNPAIRED, CLICKS, CLICK_WEIGHT, OTHER_WEIGHT = 0, 1, 2, 3, 4
WEIGHT, CLICKED, CHAMPION_LOSS, CHALLENGER_LOSS, CHAMPION_CLICKS, CHALLENGER_CLICKS = 5, 6, 7, 8, 9, 10
DIFFERENCES, DIFFERENCES_SQUARED, CLIPPED = 11, 12, 13  # shares of LARGEST_DIFFERENCE
RESIDUALS, RESIDUALS_SQUARED = 14, 15  # shares of LARGEST_RESIDUAL
MORE_CLICKS, MORE_CLICKS_SQUARED = 16, 17  # the challenger's prediction less the champion's
VERDICT, VERDICT_PAIRS, VERDICT_TIME = 18, 19, 20  # 1: better; -1: worse
DISTANCE, COURSE = 21, 22  # pairs between two points of the course, and how many points it has

_OF_A_POINT = (PAIRS, WEIGHT, CHAMPION_LOSS, DIFFERENCES, DIFFERENCES_SQUARED)
_VERDICTS: dict[int, Verdict] = {1: "better", -1: "worse", 0: "undecided"}


@dataclass(frozen=True)
class ModelFigures:
    """Log loss in nats and predicted clicks over clicks, of the paired examples; None where undefined."""

    log_loss: float | None
    calibration_ratio: float | None
    calibration_interval: Interval | None


class Point(NamedTuple):
    """Where a comparison stood after `pairs`: `difference` and its interval."""

    pairs: int
    champion_log_loss: float
    difference: float
    interval: Interval


@dataclass(frozen=True)
class ComparisonFigures:
    """pairs: examples that both models predicted; unpaired: that only one of them did; clicks: the sum of
    the labels of the pairs.

    difference: mean log loss of the champion minus that of the challenger, each example clipped; above 0 the
        challenger is better.  clipped: how many examples were.
    verdict: better or worse once the interval of the difference excludes 0.
    calibration_difference: the challenger's calibration ratio minus the champion's.
    calibration: better if the challenger's predicted clicks are closer to the clicks than the champion's: if
        they differ, and the clicks are on its side of the middle.
    since_pairs, since_milliseconds: the number of pairs, and the time in the log, when the verdict came to be
        what it is; of "undecided" from the first on both are 0.
    """

    pairs: int
    unpaired: int
    clicks: float
    champion: ModelFigures
    challenger: ModelFigures
    difference: float | None
    difference_interval: Interval | None
    clipped: int
    verdict: Verdict
    since_pairs: int
    since_milliseconds: int
    calibration_difference: float | None
    calibration_difference_interval: Interval | None
    calibration: Verdict

    @property
    def relative_difference(self) -> float | None:
        """The difference over the champion's log loss: 0.01 if the challenger's is 1 % lower."""
        loss = self.champion.log_loss
        return self.difference / loss if self.difference is not None and loss else None


class PairedComparison:
    """The comparison of a challenger with its champion since it began.

    Its state is a function of the examples in their order, whatever the batches; to_bytes holds it exactly.
    """

    def __init__(self) -> None:
        self._sums = np.zeros(SUMS)
        self._sums[DISTANCE] = PAIRS_A_LOOK
        self._course = np.zeros((POINTS, len(_OF_A_POINT)))

    @classmethod
    def from_bytes(cls, stored: bytes) -> "PairedComparison":
        """Restore a stored comparison.  Raises FormatError."""
        comparison = cls()
        numbers = np.frombuffer(stored[1:], "<f8") if len(stored) % 8 == 1 else np.empty(0)
        points = numbers[SUMS:].reshape(-1, len(_OF_A_POINT)) if len(numbers) >= SUMS else None
        if points is None or stored[0] != VERSION or len(points) != numbers[COURSE]:
            raise FormatError(f"not a comparison of version {VERSION}")
        comparison._sums[:] = numbers[:SUMS]
        comparison._course[: len(points)] = points
        return comparison

    def to_bytes(self) -> bytes:
        points = self._course[: int(self._sums[COURSE])]
        return bytes([VERSION]) + self._sums.astype("<f8").tobytes() + points.astype("<f8").tobytes()

    def add(
        self,
        champion: NDArray[np.float64],
        challenger: NDArray[np.float64],
        examples: ExampleBatch,
        log_time: int,
    ) -> None:
        """Add the examples of one log entry, from the margins float64[r] of both models.

        log_time: the entry's, in milliseconds since the epoch.  An example whose margins are not both finite
        is unpaired: one of the models skips it.
        """
        _add_pairs(
            self._sums, self._course, champion, challenger, examples.labels, examples.weights, log_time
        )

    def add_unpaired(self, examples: int) -> None:
        """Count examples of which the champion's predictions are unknown."""
        self._sums[UNPAIRED] += examples

    def course(self) -> list[Point]:
        """At most POINTS points from the first on, at equal distances, but for the last: that is now."""
        course = self._course[: int(self._sums[COURSE])]
        points = [_point(*row) for row in course.tolist()]
        if self._sums[WEIGHT] > 0.0 and self._sums[PAIRS] % self._sums[DISTANCE]:
            points.append(self._now())
        return points

    def _now(self) -> Point:
        return _point(*self._sums[list(_OF_A_POINT)].tolist())

    def figures(self) -> ComparisonFigures:
        sums = self._sums
        weight, clicked = sums[[WEIGHT, CLICKED]].tolist()
        now = self._now() if weight > 0.0 else None
        more = self._interval(MORE_CLICKS, MORE_CLICKS_SQUARED)
        expected = self._expected_clicks()
        by_clicks = 1.0 / clicked if clicked > 0.0 else None
        return ComparisonFigures(
            int(sums[PAIRS]),
            int(sums[UNPAIRED]),
            plain_number(float(sums[CLICKS])),
            self._model(CHAMPION_LOSS, CHAMPION_CLICKS, expected),
            self._model(CHALLENGER_LOSS, CHALLENGER_CLICKS, expected),
            now.difference if now else None,
            now.interval if now else None,
            int(sums[CLIPPED]),
            _VERDICTS[int(sums[VERDICT])],
            int(sums[VERDICT_PAIRS]),
            int(sums[VERDICT_TIME]),
            float(sums[MORE_CLICKS]) * by_clicks if by_clicks else None,
            Interval(more.low * by_clicks, more.high * by_clicks) if by_clicks else None,
            self._closer(expected, more),
        )

    def _interval(self, total: int, squares: int) -> Interval:
        middle, reach = float(self._sums[total]), radius(float(self._sums[squares]))
        return Interval(middle - reach, middle + reach)

    def _expected_clicks(self) -> Interval:
        """The bounds of the clicks that were to be expected, each given all that happened before it."""
        middle = float(self._sums[CHAMPION_CLICKS] + self._sums[CHALLENGER_CLICKS]) / 2.0
        residuals = self._interval(RESIDUALS, RESIDUALS_SQUARED)
        low, high = (middle + LARGEST_RESIDUAL * bound for bound in residuals)
        return Interval(max(0.0, low), high)

    def _model(self, loss: int, predicted: int, expected: Interval) -> ModelFigures:
        weight, clicked, clicks = self._sums[[WEIGHT, CLICKED, predicted]].tolist()
        if clicked == 0.0:
            return ModelFigures(float(self._sums[loss]) / weight if weight > 0.0 else None, None, None)
        most = clicks / expected.low if expected.low > 0.0 else math.inf
        interval = Interval(clicks / expected.high, most)
        return ModelFigures(float(self._sums[loss]) / weight, clicks / clicked, interval)

    def _closer(self, expected: Interval, more: Interval) -> Verdict:
        middle = float(self._sums[CHAMPION_CLICKS] + self._sums[CHALLENGER_CLICKS]) / 2.0
        if more.low <= 0.0 <= more.high or expected.low <= middle <= expected.high:
            return "undecided"
        return "better" if (more.low > 0.0) == (expected.low > middle) else "worse"


def _point(pairs: float, weight: float, loss: float, total: float, squares: float) -> Point:
    scale = LARGEST_DIFFERENCE / weight
    difference, reach = total * scale, radius(squares) * scale
    return Point(int(pairs), loss / weight, difference, Interval(difference - reach, difference + reach))


@kernel
def _add_pairs(
    sums: NDArray[np.float64],
    course: NDArray[np.float64],
    champion: NDArray[np.float64],
    challenger: NDArray[np.float64],
    labels: NDArray[np.float64],
    weights: NDArray[np.float64],
    log_time: int,
) -> None:
    for i in range(labels.size):
        weight = weights[i] if weights.size else 1.0
        if counts_as_example(champion[i], labels[i], weight) and abs(challenger[i]) < math.inf:
            _add_pair(sums, champion[i], challenger[i], labels[i], weight)
            if sums[PAIRS] % PAIRS_A_LOOK == 0.0:
                _give_verdict(sums, log_time)
                if sums[PAIRS] % sums[DISTANCE] == 0.0 and sums[WEIGHT] > 0.0:
                    _add_point(sums, course)
        else:
            sums[UNPAIRED] += 1.0


@inlined_kernel
def _unit(sums: NDArray[np.float64]) -> float:
    """The mean weight of a click, or that of another example times the click rate if it is more.

    So what a typical example adds to the sums, of either label, is of the size of an error in the log-odds.
    """
    of_click = sums[CLICK_WEIGHT] / sums[CLICKS]
    others = sums[PAIRS] - sums[CLICKS]
    if others == 0.0:
        return of_click
    rate = sums[CLICK_WEIGHT] / (sums[CLICK_WEIGHT] + sums[OTHER_WEIGHT])
    return max(of_click, sums[OTHER_WEIGHT] / others * rate)


@inlined_kernel
def _add_pair(
    sums: NDArray[np.float64], champion: float, challenger: float, label: float, weight: float
) -> None:
    count = weight / _unit(sums) if sums[CLICK_WEIGHT] > 0.0 else min(weight, 1.0)
    sums[PAIRS] += 1.0
    sums[CLICK_WEIGHT] += weight * label
    sums[OTHER_WEIGHT] += weight * (1.0 - label)
    sums[CLICKS] += label
    sums[CLICKED] += count * label
    one, other = see(champion, label, weight, 1), see(challenger, label, weight, 1)
    sums[WEIGHT] += count
    sums[CHAMPION_LOSS] += count * one.loss
    sums[CHALLENGER_LOSS] += count * other.loss
    sums[CHAMPION_CLICKS] += count * one.p
    sums[CHALLENGER_CLICKS] += count * other.p
    difference = count * (one.loss - other.loss) / LARGEST_DIFFERENCE
    sums[CLIPPED] += abs(difference) > 1.0
    difference = min(max(difference, -1.0), 1.0)
    sums[DIFFERENCES] += difference
    sums[DIFFERENCES_SQUARED] += difference * difference
    residual = count * (label - (one.p + other.p) / 2.0) / LARGEST_RESIDUAL
    residual = min(max(residual, -1.0), 1.0)
    sums[RESIDUALS] += residual
    sums[RESIDUALS_SQUARED] += residual * residual
    more = min(max(count * (other.p - one.p), -1.0), 1.0)
    sums[MORE_CLICKS] += more
    sums[MORE_CLICKS_SQUARED] += more * more


@inlined_kernel
def _give_verdict(sums: NDArray[np.float64], log_time: int) -> None:
    """A difference that only its clipped examples make is none: the sum without clipping must agree."""
    verdict, gained = 0.0, sums[CHAMPION_LOSS] - sums[CHALLENGER_LOSS]
    if gained > 0.0 and evidence(sums[DIFFERENCES], sums[DIFFERENCES_SQUARED]) >= ENOUGH:
        verdict = 1.0
    elif gained < 0.0 and evidence(-sums[DIFFERENCES], sums[DIFFERENCES_SQUARED]) >= ENOUGH:
        verdict = -1.0
    if verdict != sums[VERDICT]:
        sums[VERDICT], sums[VERDICT_PAIRS], sums[VERDICT_TIME] = verdict, sums[PAIRS], float(log_time)


@inlined_kernel
def _add_point(sums: NDArray[np.float64], course: NDArray[np.float64]) -> None:
    at = int(sums[COURSE])
    for j in range(len(_OF_A_POINT)):
        course[at, j] = sums[_OF_A_POINT[j]]
    at += 1
    if at == POINTS:
        sums[DISTANCE] *= 2.0
        at = 0
        for i in range(POINTS):
            if course[i, 0] % sums[DISTANCE] == 0.0:
                for j in range(len(_OF_A_POINT)):
                    course[at, j] = course[i, j]
                at += 1
    sums[COURSE] = at


def warm_up() -> None:
    """Compile the kernel of a comparison, or load it from the cache."""
    PairedComparison().add(np.zeros(1), np.zeros(1), ExampleBatch.from_encoded([([1], None)], [1]), 0)
