"""The coordinates of one example of a batch: slots, each once, with the value of its features."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.kernels.compiled import prefetch_row
from model_core.learning.update import Coefficients


class Features(NamedTuple):
    """The features of a batch, as in ExampleBatch."""

    row_ptr: NDArray[np.int64]
    hashes: NDArray[np.uint32]
    values: NDArray[np.float64]


class Scratch(NamedTuple):
    """Room for the coordinates of one example, kept in the first-level cache.

    slots uint32[c]; theta, z, n, q, x float64[c]: value, state, curvature and weight of each coordinate;
    z_new, n_new, q_new float64[c]: the same after the round.
    places int64[2^m]: open addressing from slot to coordinate.  An entry is stamp << 32 | coordinate
    and needs no clearing.
    """

    slots: NDArray[np.uint32]
    theta: NDArray[np.float64]
    z: NDArray[np.float64]
    n: NDArray[np.float64]
    q: NDArray[np.float64]
    x: NDArray[np.float64]
    z_new: NDArray[np.float64]
    n_new: NDArray[np.float64]
    q_new: NDArray[np.float64]
    places: NDArray[np.int64]


@njit(cache=True)
def scratch_for(row_ptr: NDArray[np.int64], at_least: int) -> Scratch:
    """Room for the longest example, and for `at_least` coordinates."""
    longest = at_least
    for i in range(row_ptr.size - 1):
        longest = max(longest, row_ptr[i + 1] - row_ptr[i])
    room = 2
    while room < 2 * longest:
        room *= 2
    f = np.empty((8, longest + 1))
    places = np.zeros(room, np.int64)
    return Scratch(np.empty(longest + 1, np.uint32), f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], places)


@njit(cache=True)
def prefetch_example(features: Features, i: int, rows: NDArray[np.float64]) -> None:
    """Start loading the rows of example i, if there is one, while the example before it is computed."""
    if i + 1 < features.row_ptr.size:
        for j in range(features.row_ptr[i], features.row_ptr[i + 1]):
            prefetch_row(rows, features.hashes[j] & (rows.shape[0] - 2))


@njit(cache=True)
def gather(features: Features, i: int, size: int, c: Coefficients, s: Scratch) -> int:
    """Fill s.slots and s.theta with the coordinates of example i, and return how many there are.

    The bias, if any, comes first, then features in the order of their first occurrence.  Features that share
    a slot add up; exact zeros vanish.
    """
    k = 0
    if c.bias:
        s.slots[0] = size
        s.theta[0] = 1.0
        k = 1
    added = False
    unit = features.values.size == 0
    mask, stamp = size - 1, (2 * i + 1) << 32
    for j in range(features.row_ptr[i], features.row_ptr[i + 1]):
        value = 1.0 if unit else features.values[j]
        if value == 0.0:
            continue
        slot = np.uint32(features.hashes[j] & mask)
        place = _place(s, slot, stamp, k)
        if place == k:
            s.slots[k] = slot
            s.theta[k] = value
            k += 1
        else:
            s.theta[place] += value
            added = True
    return _without_zeros(s, k) if added else k


@njit(cache=True)
def _place(s: Scratch, slot: np.uint32, stamp: int, k: int) -> int:
    """The coordinate that holds `slot`, or k, newly entered."""
    last = s.places.size - 1
    at = int(slot) & last
    while s.places[at] >= stamp:
        place = int(s.places[at] - stamp)
        if s.slots[place] == slot:
            return place
        at = (at + 1) & last
    s.places[at] = stamp | k
    return k


@njit(cache=True)
def _without_zeros(s: Scratch, k: int) -> int:
    kept = 0
    for j in range(k):
        if s.theta[j] != 0.0:
            s.slots[kept] = s.slots[j]
            s.theta[kept] = s.theta[j]
            kept += 1
    return kept


@njit(cache=True)
def gather_untouched(marks: NDArray[np.uint8], i: int, s: Scratch, k: int) -> int:
    """Add all other coordinates ever seen, with value 0: some updates move every weight on every round."""
    stamp = (2 * i + 2) << 32  # the places of gather do not know which coordinates have vanished
    for j in range(k):
        _place(s, s.slots[j], stamp, j)
    for slot in range(marks.size - 1):
        if marks[slot] and _place(s, np.uint32(slot), stamp, k) == k:
            s.slots[k] = slot
            s.theta[k] = 0.0
            k += 1
    return k
