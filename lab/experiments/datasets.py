"""Data sets in memory: one slot for each feature, and the orders in which examples are learned."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from model_core.evaluation.measures import Labels, compact
from model_core.examples.batch import ExampleBatch

SMALLEST_BITS = 10


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples whose `hashes` are the ranks of features by frequency, so that no two share a slot.

    The most frequent features are neighbours in memory, which suits caches. The result of learning does not
    depend on the numbers of the features, as long as they differ.
    """

    name: str
    batch: ExampleBatch
    features: int
    times: tuple[str, ...] = ()
    """The time of each row as a text that sorts, where the file has one."""

    @property
    def rows(self) -> int:
        return len(self.batch)

    @cached_property
    def bits(self) -> int:
        """The smallest number of bits with a slot for every feature."""
        return max(SMALLEST_BITS, (self.features - 1).bit_length())

    @cached_property
    def digest(self) -> str:
        """Digest of the content, so that results of different data are never mixed."""
        content = hashlib.sha256()
        for column in (self.batch.row_ptr, self.batch.hashes, self.batch.values, compact(self.batch.labels)):
            content.update(column.astype(column.dtype.newbyteorder("<")).tobytes())
        return content.hexdigest()[:16]

    def in_order(self, rows: npt.NDArray[np.int64]) -> ExampleBatch:
        """The examples `rows` int64[r] in that order, copied."""
        return take_rows(self.batch, rows)


def dataset_of(
    name: str,
    row_ptr: npt.NDArray[np.int64],
    features: npt.NDArray[np.integer],
    values: npt.NDArray[np.float64],
    labels: Labels,
    times: Sequence[str] = (),
) -> Dataset:
    """Build from rows of arbitrary feature numbers, integer[k]; `values` float64[k], or empty (all 1)."""
    distinct, numbers, counts = np.unique(features, return_inverse=True, return_counts=True)
    rank = np.empty(distinct.size, np.uint32)
    rank[np.argsort(-counts, kind="stable")] = np.arange(distinct.size, dtype=np.uint32)
    batch = ExampleBatch(row_ptr, rank[numbers], values, labels.astype(np.float64))
    return Dataset(name, batch, distinct.size, tuple(times))


def take_rows(batch: ExampleBatch, rows: npt.NDArray[np.int64]) -> ExampleBatch:
    """The examples `rows` int64[r] of a batch, in that order; without their times and event ids."""
    lengths = np.diff(batch.row_ptr)[rows]
    row_ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    # The position of feature j of the result in the batch: j plus the shift of its row.
    moved = np.repeat(batch.row_ptr[rows] - row_ptr[:-1], lengths)
    places = moved + np.arange(row_ptr[-1])
    return ExampleBatch(
        row_ptr,
        batch.hashes[places],
        batch.values[places] if batch.values.size else batch.values,
        batch.labels[rows],
        batch.weights[rows] if batch.weights.size else batch.weights,
    )


def unit_length(row_ptr: npt.NDArray[np.int64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """values float64[k] divided by the Euclidean norm of their row; every row has a value other than 0."""
    norms = np.sqrt(np.add.reduceat(values * values, row_ptr[:-1]))
    scaled: npt.NDArray[np.float64] = values / np.repeat(norms, np.diff(row_ptr))
    return scaled
