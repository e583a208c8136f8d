"""The logs on which defaults are compared: the data sets in several orders and forms, and a simulated one."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from lab.experiments.datasets import Dataset, dataset_of
from model_core.examples.batch import ExampleBatch
from model_core.kernels.numerics import sigmoids

Half = Literal["choosing", "held out", "simulated"]

SIMULATED_ROWS = 200_000
_COLUMNS = {
    "app": (400, 2.2),
    "channel": (150, 1.2),
    "os": (120, 0.7),
    "device": (300, 0.7),
    "ip": (20_000, 0.5),
}
_CLICK_RATE = 0.002
_POPULARITY = 1.1  # exponent of the power laws of the values
_RARE = 10  # one of so many clicks stays in a log of rare clicks


class Log(NamedTuple):
    """A log, and the half that it belongs to: the experts were chosen on one, and are checked on the other.

    data: the name of its data set. order: of its rows, as in the file, by time, or shuffled once.
    """

    name: str
    data: str
    half: Half
    order: Literal["file", "time", "shuffled"] = "file"
    without_values: bool = False
    rare_clicks: bool = False


# Halves of the sources, not of the logs: no row of a held-out log is in a log of the other half.
LOGS = (
    Log("Criteo Kaggle", "criteo", "choosing"),
    Log("Criteo Kaggle, a tenth of the clicks", "criteo", "choosing", rare_clicks=True),
    Log("news20, words", "news20", "choosing", "shuffled", without_values=True),
    Log("news20, words by date", "news20", "choosing", "time", without_values=True),
    Log("news20, unit length", "news20", "choosing", "shuffled"),
    Log("books, words", "books", "choosing", "shuffled", without_values=True),
    Log("books, unit length", "books", "choosing", "shuffled"),
    Log("Criteo 1TB", "criteo-1tb", "held out"),
    Log("Avazu", "avazu", "held out"),
    Log("rcv1, words", "rcv1", "held out", without_values=True),
    Log("rcv1, unit length", "rcv1", "held out"),
    Log("dvd, words", "dvd", "held out", "shuffled", without_values=True),
    Log("electronics, words", "electronics", "held out", "shuffled", without_values=True),
    Log("kitchen, unit length", "kitchen", "held out", "shuffled"),
)
SIMULATED = Log("simulated, 0.2 % clicks", "simulated", "simulated")


def arranged(log: Log, data: Dataset) -> Dataset:
    """The log, made of its data set: the rows in the order in which they are learned."""
    rows = _rows(log, data)
    batch = data.in_order(rows) if rows is not None else data.batch
    if log.without_values:
        batch = ExampleBatch(batch.row_ptr, batch.hashes, np.empty(0), batch.labels)
    return Dataset(log.name, batch, data.features)


def _rows(log: Log, data: Dataset) -> npt.NDArray[np.int64] | None:
    if log.order == "shuffled":
        return np.random.default_rng(1).permutation(data.rows)
    if log.order == "time":
        return np.array(sorted(range(data.rows), key=data.times.__getitem__), np.int64)
    if log.rare_clicks:
        clicked = data.batch.labels == 1
        return np.flatnonzero(~clicked | (np.cumsum(clicked) % _RARE == 0))
    return None


def simulated(rows: int = SIMULATED_ROWS, seed: int = 1) -> Dataset:
    """Rare clicks of strong features: of most values nearly nothing is clicked, of a few much."""
    random = np.random.default_rng(seed)
    columns, logits, first = [], np.zeros(rows), 0
    for size, strength in _COLUMNS.values():
        shares = np.arange(1, size + 1) ** -_POPULARITY
        drawn = random.choice(size, rows, p=shares / shares.sum())
        columns.append(first + drawn)
        logits += random.normal(0.0, strength, size)[drawn]
        first += size
    chosen = random.uniform(size=rows) < sigmoids(logits + _offset(logits, _CLICK_RATE))
    row_ptr = len(columns) * np.arange(rows + 1)
    return dataset_of(
        SIMULATED.name, row_ptr, np.stack(columns, axis=1).ravel(), np.empty(0), chosen.astype(np.uint8)
    )


def _offset(logits: npt.NDArray[np.float64], rate: float) -> float:
    """Find the shift of the logits at which the mean probability is `rate`."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sigmoids(logits + middle).mean() < rate else (low, middle)
    return low
