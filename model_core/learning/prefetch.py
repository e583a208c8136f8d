"""Prefetching of the rows and marks of an example while the one before it is computed.

They are in random order, so that each may have to come from memory.

All functions do nothing for an example beyond the last.
"""

import numpy as np
from numpy.typing import NDArray

from model_core.kernels.compiled import inlined_kernel, prefetch_item, prefetch_place, prefetch_row
from model_core.learning.step import Features

_DOUBLES_A_LINE = 8


@inlined_kernel
def prefetch_rows(features: Features, i: int, rows: NDArray[np.float64]) -> None:
    """Start loading the rows float64[2] of example i."""
    if i + 1 < features.row_ptr.size:
        mask = np.uint32(rows.shape[0] - 2)
        for j in range(features.row_ptr[i], features.row_ptr[i + 1]):
            prefetch_row(rows, features.hashes[np.uint64(j)] & mask)


@inlined_kernel
def prefetch_marked_rows(
    features: Features, i: int, rows: NDArray[np.float64], marks: NDArray[np.uint8]
) -> None:
    """Start loading the rows float64[2] of example i, and their marks."""
    if i + 1 < features.row_ptr.size:
        mask = np.uint32(rows.shape[0] - 2)
        for j in range(features.row_ptr[i], features.row_ptr[i + 1]):
            slot = features.hashes[np.uint64(j)] & mask
            prefetch_row(rows, slot)
            prefetch_item(marks, slot)


@inlined_kernel
def prefetch_wide_rows(features: Features, i: int, rows: NDArray[np.float64]) -> None:
    """Start loading the rows of example i, all their lines."""
    if i + 1 < features.row_ptr.size:
        mask = np.uint32(rows.shape[0] - 2)
        for j in range(features.row_ptr[i], features.row_ptr[i + 1]):
            slot = features.hashes[np.uint64(j)] & mask
            for column in range(0, rows.shape[1], _DOUBLES_A_LINE):
                prefetch_place(rows, slot, column)


@inlined_kernel
def prefetch_marks(features: Features, i: int, marks: NDArray[np.uint8]) -> None:
    """Start loading the marks of example i."""
    if i + 1 < features.row_ptr.size:
        mask = np.uint32(marks.size - 2)
        for j in range(features.row_ptr[i], features.row_ptr[i + 1]):
            prefetch_item(marks, features.hashes[np.uint64(j)] & mask)
