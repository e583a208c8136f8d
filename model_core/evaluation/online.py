"""The running evaluation of one source of predictions."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model_core.evaluation import layout
from model_core.evaluation.buckets import (
    AHEAD,
    LATE,
    NEWEST,
    STREAM,
    WEIGHTED,
    add_examples,
    empty_buckets,
)
from model_core.evaluation.figures import (
    FEWEST_CLICKS,
    Figures,
    Weighting,
    Window,
    figures_of,
    histogram_of,
)
from model_core.examples.batch import ExampleBatch

BINS = 16_384


class OnlineEvaluation:
    """The quality of a stream of predictions: all of it, and its last 15 minutes, half hour, hour and day.

    Its state is a function of the examples in their order, whatever the batches, and all_fields or the fields
    of every take_changes hold it exactly.  Predictions of different sources need one each.
    """

    def __init__(self, bins: int = BINS) -> None:
        self._buckets = empty_buckets(bins)

    @classmethod
    def from_fields(cls, fields: Mapping[bytes, bytes], bins: int = BINS) -> "OnlineEvaluation":
        """Restore a stored evaluation; from no fields, a new one.  Raises FormatError."""
        evaluation = cls(bins)
        layout.restore(evaluation._buckets, fields)
        return evaluation

    def add(self, margins: NDArray[np.float64], examples: ExampleBatch, log_time: int) -> None:
        """Add predictions, as margins float64[r], with their labels: the examples of one log entry.

        log_time: the entry's, in milliseconds since the epoch.  An example counts at its event time, but not
        later than it was logged; without one, at the log time.  If it is a day older than the newest, it
        counts in the whole stream alone.  Without a finite margin, when learning skips it, it does not count.
        """
        add_examples(
            *self._buckets, margins, examples.labels, examples.weights, examples.event_times, log_time
        )

    def take_changes(self, prefix: bytes) -> layout.Changes:
        """The fields to write and to delete since the last call; prefix: one byte before each name."""
        return layout.take_changes(self._buckets, prefix)

    def all_fields(self) -> dict[bytes, bytes]:
        """The whole state."""
        return layout.all_fields(self._buckets)

    def figures(
        self, window: Window, weighting: Weighting = "weight", fewest_clicks: int = FEWEST_CLICKS
    ) -> Figures:
        """A window ends at the newest time among the examples; with fewer clicks it has no figures."""
        histogram = histogram_of(self._buckets, window, weighting)
        return figures_of(window, weighting, histogram, fewest_clicks=fewest_clicks)

    @property
    def log_loss(self) -> float | None:
        """The mean log loss of the whole stream by weight, as in its figures; None without any weight."""
        examples, _, _, log_loss = self._buckets.sums[STREAM, :4].tolist()
        return log_loss / examples if examples > 0.0 else None

    @property
    def newest(self) -> int | None:
        """The newest time among the examples, in milliseconds since the epoch."""
        return int(self._buckets.clock[NEWEST]) if self._buckets.clock[NEWEST] >= 0 else None

    @property
    def weighted(self) -> bool:
        """True if any example had a weight other than 1; otherwise both weightings give the same figures."""
        return bool((self._buckets.marks[:, :-1] & WEIGHTED).any())

    @property
    def late(self) -> int:
        """The number of examples that were older than a day when they arrived."""
        return int(self._buckets.clock[LATE])

    @property
    def ahead(self) -> int:
        """The number of examples that claimed an event more than a minute after they were logged."""
        return int(self._buckets.clock[AHEAD])


def warm_up() -> None:
    """Compile every kernel of an evaluation on one example, or load it from the cache."""
    evaluation = OnlineEvaluation()
    evaluation.add(np.zeros(1), ExampleBatch.from_encoded([([1], None)], [1]), 0)
    evaluation.take_changes(b"-")
    OnlineEvaluation.from_fields(evaluation.all_fields()).figures("15m")
