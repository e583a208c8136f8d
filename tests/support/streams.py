"""Streams of predictions and what came of them, for the tests of the evaluation."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.evaluation.online import OnlineEvaluation
from model_core.examples.batch import ExampleBatch

MINUTE = 60_000
PREFIX = b"p"


class Store(dict):
    """What a hash of the server holds after every commit, without the prefix of the names."""

    def take(self, evaluation):
        """Apply the changes of an evaluation: what is deleted was written before."""
        written, deleted = map(strings_of, evaluation.take_changes(PREFIX))
        assert all(name[:1] == PREFIX for name in written[::2] + deleted)
        self.update(zip((name[1:] for name in written[::2]), written[1::2], strict=True))
        for name in deleted:
            del self[name[1:]]


def strings_of(packed):
    """The strings of MessagePack that follow each other."""
    strings, at = [], 0
    while at < len(packed):
        tag = packed[at]
        length_bytes = 0 if tag >> 5 == 0b101 else {0xD9: 1, 0xDA: 2, 0xDB: 4}[tag]
        start = at + 1 + length_bytes
        length = int.from_bytes(packed[at + 1 : start], "big") if length_bytes else tag & 31
        at = start + length
        assert at <= len(packed)
        strings.append(packed[start:at])
    return strings


class Stream(NamedTuple):
    """r predictions of several log entries; entries int64[r]: the log time of each, ascending."""

    margins: NDArray[np.float64]
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    event_times: NDArray[np.int64]
    log_times: NDArray[np.int64]

    def add_to(self, evaluation, start=0, stop=None):
        """As many calls as there are log entries."""
        stop = len(self.margins) if stop is None else stop
        while start < stop:
            log_time = self.log_times[start]
            end = min(stop, int(np.searchsorted(self.log_times, log_time, side="right")))
            evaluation.add(self.margins[start:end], self.examples(start, end), int(log_time))
            start = end

    def examples(self, start, stop):
        """Without features."""
        return ExampleBatch(
            np.zeros(stop - start + 1, np.int64),
            np.empty(0, np.uint32),
            np.empty(0),
            self.labels[start:stop],
            self.weights[start:stop],
            self.event_times[start:stop],
        )

    @property
    def times(self):
        """When each example counts, in milliseconds."""
        if not self.event_times.size:
            return self.log_times
        return np.where(self.event_times < 0, self.log_times, np.minimum(self.event_times, self.log_times))


def random_stream(seed, size=400, minutes=3000, click_rate=0.3):
    """Of two or three days; some examples late, some ahead of the log, some of weight 0, some in a burst.

    Half of the streams have some labels between 0 and 1.
    """
    rng = np.random.default_rng(seed)
    labels = (rng.random(size) < click_rate).astype(np.float64)
    margins = rng.normal(-1.0 + labels, rng.choice([0.01, 1.0, 12.0]), size)
    margins[rng.random(size) < 0.3] = rng.choice([-40.0, -16.0, -1.0, 0.0, 1 / 512, 16.0, 50.0])
    log_times = np.sort(rng.integers(0, minutes * MINUTE, size))
    log_times = np.repeat(log_times[::20], 20)[:size] if rng.random() < 0.5 else log_times
    delays = rng.choice([-(10**9), -30_000, 0, 10_000, 12 * MINUTE, 50 * MINUTE, 600 * MINUTE, 10**9], size)
    events = np.maximum(0, log_times - delays)
    events[rng.random(size) < 0.2] = -1
    weights = rng.choice([1.0, 1.0, 1.0, 0.0, 0.25, 3.0, 70_000.0], size)
    if rng.random() < 0.5:
        labels = np.where(rng.random(size) < 0.4, rng.random(size) ** 2, labels)
    return Stream(
        margins,
        labels,
        weights if rng.random() < 0.7 else np.empty(0),
        events if rng.random() < 0.7 else np.empty(0, np.int64),
        log_times,
    )


def evaluated(stream, **options):
    evaluation = OnlineEvaluation(**options)
    stream.add_to(evaluation)
    return evaluation
