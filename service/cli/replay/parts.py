"""Figures of parts of a replay (stretches of the file, values of a feature), and the file of predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from mmh3 import mmh3_32_uintdigest as murmur

from model_core.evaluation.figures import entropy_of_rate
from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import FeatureEncoder
from model_core.kernels.numerics import log_losses, sigmoids
from service.cli.replay.summary import Predicted
from service.errors import CommandFailure

CURVE_PARTS = 20
MAX_SLICES = 20
_OTHERS = "(other values)"
_SUMS = 5
BLOCK_ROWS = 65_536

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """Figures by weight; None where undefined.

    rows: the examples of the part that have a prediction, whatever they weigh.
    log_loss_so_far: of all rows up to the end of the part, in a curve only.
    """

    name: str
    rows: int
    click_rate: float | None
    log_loss: float | None
    normalized_entropy: float | None
    calibration_ratio: float | None
    log_loss_so_far: float | None = None


def curve_of(rows: Predicted) -> tuple[Part, ...]:
    """Up to CURVE_PARTS parts of equally many rows, in the order of the file."""
    bounds = np.unique(np.linspace(0, rows.margins.size, CURVE_PARTS + 1).astype(np.int64))
    parts: list[Part] = []
    total = np.zeros(_SUMS)
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        sums = _columns(_cut(rows, first, last)).sum(axis=1)
        total += sums
        parts.append(_part(f"{first + 1:,}-{last:,}", sums, _part("", total).log_loss))
    return tuple(parts)


class Slices:
    """Figures of each value of some features, from the hashes of the examples.

    `encoder` has to encode every example: it records which hash belongs to which value. An example with
    several values of a feature counts in the slice of each.
    """

    def __init__(self, features: Sequence[str], contract: HashContract, limits: Limits) -> None:
        self._features = features
        self._prefixes = {f"{name}=".encode(): name for name in features}
        self._values: dict[int, tuple[str, str]] = {}
        self._sums: dict[int, Floats] = {}
        self.encoder = FeatureEncoder(contract, limits, hash_text=self._hash_text)

    def add(self, margins: Floats, batch: ExampleBatch) -> None:
        """Add examples that the encoder has encoded, with their margins float64[r]."""
        known = np.array(sorted(self._values), np.uint32)
        if not known.size:
            return
        found = np.minimum(np.searchsorted(known, batch.hashes), known.size - 1)
        places = np.flatnonzero(known[found] == batch.hashes)
        rows = np.searchsorted(batch.row_ptr, places, "right") - 1
        weights = batch.weights if batch.weights.size else None
        columns = _columns(Predicted(margins, batch.labels, weights))[:, rows]
        hashes, groups = np.unique(batch.hashes[places], return_inverse=True)
        by_value = np.stack([np.bincount(groups, column, hashes.size) for column in columns], axis=1)
        for value, sums in zip(hashes.tolist(), by_value, strict=True):
            self._sums[value] = self._sums.get(value, np.zeros(_SUMS)) + sums

    def parts(self) -> tuple[Part, ...]:
        """The most frequent values of each feature, then the sum over its other values.

        Raises CommandFailure if no example has a value of one of the features.
        """
        return tuple(part for feature in self._features for part in self._parts_of(feature))

    def _parts_of(self, feature: str) -> Iterator[Part]:
        mine = [(self._values[h][1], sums) for h, sums in self._sums.items() if self._values[h][0] == feature]
        if not mine:
            raise CommandFailure(
                f"--slices {feature}: no example has a category of this feature; numbers have slices where"
                ' the model encodes them as "bucket" or as categories'
            )
        mine.sort(key=lambda pair: (-pair[1][0], pair[0]))
        for value, sums in mine[:MAX_SLICES]:
            yield _part(f"{feature}={value}", sums)
        if len(mine) > MAX_SLICES:
            yield _part(f"{feature} {_OTHERS}", np.sum([sums for _, sums in mine[MAX_SLICES:]], axis=0))

    def _hash_text(self, text: bytes, seed: int) -> int:
        hashed = murmur(text, seed)
        name, equals, value = text.partition(b"=")
        feature = self._prefixes.get(name + equals)
        if feature is not None:
            self._values.setdefault(hashed, (feature, value.decode()))
        return hashed


def _cut(rows: Predicted, first: int, last: int) -> Predicted:
    margins, labels, weights = rows
    return Predicted(
        margins[first:last], labels[first:last], None if weights is None else weights[first:last]
    )


def _columns(rows: Predicted) -> Floats:
    """float64[5, r]: 1, weight, click, loss and predicted click by weight; 0 without a prediction."""
    finite = np.isfinite(rows.margins)
    m = np.where(finite, rows.margins, 0.0)
    w = np.where(finite, 1.0 if rows.weights is None else rows.weights, 0.0)
    losses = log_losses(m, rows.labels.astype(np.float64))
    return np.stack([finite.astype(np.float64), w, w * rows.labels, w * losses, w * sigmoids(m)])


def _part(name: str, sums: Floats, so_far: float | None = None) -> Part:
    rows, weight, clicks, loss, predicted = sums.tolist()
    if weight <= 0.0:
        return Part(name, int(rows), None, None, None, None, so_far)
    entropy = entropy_of_rate(clicks / weight)
    return Part(
        name,
        int(rows),
        clicks / weight,
        loss / weight,
        loss / weight / entropy if entropy > 0.0 else None,
        predicted / clicks if clicks > 0.0 else None,
        so_far,
    )


def write_predictions(path: Path, learned: Predicted, held_out: Predicted | None) -> None:
    """Write a table with a line for each example, in the order of the file. Raises CommandFailure."""
    try:
        with path.open("w") as file:
            file.write("row,label,weight,probability,held_out\n")
            file.writelines(_prediction_lines(learned, 1, 0))
            if held_out is not None:
                file.writelines(_prediction_lines(held_out, learned.labels.size + 1, 1))
    except OSError as failure:
        raise CommandFailure(f"--predictions {path}: {failure.strerror}") from failure


def _prediction_lines(rows: Predicted, number: int, held_out: int) -> Iterator[str]:
    """Lines that count from `number`; a skipped example has no probability."""
    for first in range(0, rows.labels.size, BLOCK_ROWS):
        margins, labels, weights = _cut(rows, first, first + BLOCK_ROWS)
        finite = np.isfinite(margins)
        probabilities = np.where(finite, sigmoids(np.where(finite, margins, 0.0)), np.nan).tolist()
        w = [1.0] * labels.size if weights is None else weights.tolist()
        for row, found in enumerate(zip(labels.tolist(), w, probabilities, strict=True), number + first):
            label, weight, p = found
            yield f"{row},{label:.17g},{weight:.17g},{'' if math.isnan(p) else repr(p)},{held_out}\n"


def print_parts(title: str, parts: Sequence[Part], write: Callable[[str], object]) -> None:
    """Print a table of parts; a curve has a column more."""
    is_curve = any(part.log_loss_so_far is not None for part in parts)
    headings = ["rows", "click rate", "log loss", "norm. entropy", "calibration", "log loss so far"]
    width = max(len(title), *(len(part.name) for part in parts)) + 2
    lines = [[title, *headings]]
    for part in parts:
        figures = (part.click_rate, part.log_loss, part.normalized_entropy, part.calibration_ratio)
        shown = ["-" if f is None else f"{f:.5f}" for f in (*figures, part.log_loss_so_far)]
        lines.append([part.name, f"{part.rows:,}", *shown])
    write("\n")
    for name, *cells in lines:
        padded = (c.rjust(len(h) + 2) for c, h in zip(cells, headings, strict=True))
        write(name.ljust(width) + "".join(list(padded)[: None if is_curve else -1]) + "\n")
