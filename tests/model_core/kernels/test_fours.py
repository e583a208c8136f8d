"""Reading and writing rows in random order, four at a time."""

import numpy as np
from numpy.typing import NDArray

from model_core.kernels.compiled import kernel
from model_core.kernels.fours import load_pairs4, store4, store_pairs4

Floats = NDArray[np.float64]
PLACES = np.array([9, 4, 0, 7, 2, 4], np.uint32)


@kernel
def _load(rows: Floats, places: NDArray[np.uint32], first: int, columns: Floats) -> None:
    a, b = load_pairs4(rows, places, first)
    store4(columns, 0, 0, a)
    store4(columns, 1, 0, b)


@kernel
def _move(rows: Floats, places: NDArray[np.uint32], first: int, to: Floats) -> None:
    a, b = load_pairs4(rows, places, first)
    store_pairs4(to, places, first, b, a)


def test_rows_are_read_as_columns() -> None:
    rows, columns = np.random.default_rng(1).normal(size=(10, 2)), np.empty((2, 4))
    for first in range(3):
        _load(rows, PLACES, first, columns)
        assert (columns == rows[PLACES[first : first + 4]].T).all()


def test_columns_are_written_to_their_rows_alone() -> None:
    rows, to = np.random.default_rng(2).normal(size=(10, 2)), np.zeros((10, 2))
    _move(rows, PLACES, 1, to)
    written = PLACES[1:5]
    assert (to[written] == rows[written][:, ::-1]).all()
    assert not np.delete(to, written, axis=0).any()
