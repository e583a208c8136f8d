"""Kernels on the rows of a state: what goes in and out, folds, and the weights that are read from them.

A row has `lanes` numbers z, then as many n: one of each, or those of a mixture's experts side by side.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.kernels.compiled import kernel, prefetch_row
from model_core.learning.update import (
    BETA,
    FOLD,
    INVERSE_ALPHA,
    L1,
    Coefficients,
    MixtureTerms,
    Psi,
    Units,
    curvature,
    prox,
    psi_in_force,
    units_of,
    without_penalty,
)

SEEN, CHANGED = 1, 2
AHEAD = 16
"""Slots between a row that is prefetched and the row in use: access in random order waits for memory."""

_FOLD_OF_Z, _FOLD_OF_N = 2.0**-FOLD, 2.0 ** (-2 * FOLD)
_SMALLEST_NORMAL = 2.0**-1022
_MOST_FOLDS = 12  # after which every float64 is 0


@kernel
def take_over(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    slots: NDArray[np.uint32],
    stored: NDArray[np.float64],
) -> int:
    """Put stored float64[k, 2 K] into the rows of slots uint32[k]; returns how many features are new."""
    bias, fresh = marks.size - 1, 0
    lanes, experts = rows.shape[1] // 2, stored.shape[1] // 2
    for j in range(slots.size):
        if j + AHEAD < slots.size:
            prefetch_row(rows, slots[j + AHEAD])
        slot = slots[j]
        if not marks[slot] & SEEN and slot != bias:
            fresh += 1
        rows[slot, 0] = stored[j, 0]
        rows[slot, lanes] = stored[j, experts]
        for e in range(1, experts):
            rows[slot, e] = stored[j, e]
            rows[slot, lanes + e] = stored[j, experts + e]
        marks[slot] |= SEEN
    return fresh


@kernel
def take_out(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    slots: NDArray[np.uint32],
    taken: NDArray[np.float64],
) -> None:
    """Put the rows of slots uint32[k] into taken float64[k, 2 K]; their marks forget that they changed."""
    lanes, experts = rows.shape[1] // 2, taken.shape[1] // 2
    for j in range(slots.size):
        if j + AHEAD < slots.size:
            prefetch_row(rows, slots[j + AHEAD])
        slot = slots[j]
        taken[j, 0] = rows[slot, 0]
        taken[j, experts] = rows[slot, lanes]
        for e in range(1, experts):
            taken[j, e] = rows[slot, e]
            taken[j, experts + e] = rows[slot, lanes + e]
        marks[slot] &= SEEN


@njit(cache=True)
def _folded(value: float, power: float, folds: int) -> float:
    """value power^folds, or 0 where that is subnormal: so it does not matter how many folds come at once."""
    for _ in range(min(folds, _MOST_FOLDS)):
        value *= power
    return value if abs(value) >= _SMALLEST_NORMAL else 0.0


@kernel
def fold_rows(rows: NDArray[np.float64], marks: NDArray[np.uint8], expert: int, folds: int) -> None:
    """Multiply an expert's z and n of every slot that was seen with what left its scale in so many folds."""
    n = rows.shape[1] // 2 + expert
    for slot in range(marks.size):
        if marks[slot] & SEEN:
            rows[slot, expert] = _folded(rows[slot, expert], _FOLD_OF_Z, folds)
            rows[slot, n] = _folded(rows[slot, n], _FOLD_OF_N, folds)


@njit(nogil=True, cache=True)
def fold_stored(rows: NDArray[np.float64], folds: NDArray[np.int64]) -> None:
    """The same for rows float64[k, 2 K] that were stored before so many folds of each expert, int64[k, K]."""
    experts = folds.shape[1]
    for j in range(folds.shape[0]):
        for e in range(experts):
            if folds[j, e] > 0:
                rows[j, e] = _folded(rows[j, e], _FOLD_OF_Z, folds[j, e])
                rows[j, experts + e] = _folded(rows[j, experts + e], _FOLD_OF_N, folds[j, e])


@njit(nogil=True, cache=True)
def readings(
    rows: NDArray[np.float64], slots: NDArray[np.uint32], c: Coefficients, t: int, scale: float
) -> NDArray[np.float64]:
    """float64[2, k]: weight and curvature."""
    out = np.empty((2, slots.size))
    units = units_of(scale)
    penalised = psi_in_force(c, t)
    free = without_penalty(penalised)
    for j in range(slots.size):
        psi = free if slots[j] == rows.shape[0] - 1 else penalised
        out[0, j] = _weight(rows[slots[j]], c, psi, units)
        out[1, j] = curvature(c, psi, rows[slots[j], 1] * units.n)
    return out


@njit(nogil=True, cache=True)
def count_nonzero(
    rows: NDArray[np.float64], marks: NDArray[np.uint8], c: Coefficients, t: int, scale: float
) -> int:
    """Count the weights that are not 0, without the bias."""
    units = units_of(scale)
    psi = psi_in_force(c, t)
    count = 0
    for slot in range(marks.size - 1):
        if marks[slot] & SEEN and _weight(rows[slot], c, psi, units) != 0.0:
            count += 1
    return count


@njit(cache=True)
def _weight(row: NDArray[np.float64], c: Coefficients, psi: Psi, units: Units) -> float:
    return prox(row[0] * units.z, curvature(c, psi, row[1] * units.n), psi)


@njit(nogil=True, cache=True)
def readings_of_experts(
    rows: NDArray[np.float64], slots: NDArray[np.uint32], m: MixtureTerms, scales: NDArray[np.float64]
) -> NDArray[np.float64]:
    """float64[2, K, k]: weight and curvature of each expert."""
    out = np.empty((2, m.experts, slots.size))
    for e in range(m.experts):
        for j in range(slots.size):
            out[0, e, j], out[1, e, j] = read_expert(rows, slots[j], m, e, scales[e])
    return out


@njit(nogil=True, cache=True)
def count_nonzero_in_any(
    rows: NDArray[np.float64], marks: NDArray[np.uint8], m: MixtureTerms, scales: NDArray[np.float64]
) -> int:
    """Count the features whose weight is not 0 for some expert, without the bias."""
    count = 0
    for slot in range(marks.size - 1):
        if marks[slot] & SEEN:
            for e in range(m.experts):
                if read_expert(rows, slot, m, e, scales[e])[0] != 0.0:
                    count += 1
                    break
    return count


@njit(cache=True, error_model="numpy")
def read_expert(
    rows: NDArray[np.float64], slot: int, m: MixtureTerms, expert: int, scale: float
) -> tuple[float, float]:
    """Weight and curvature of a slot for an expert."""
    units = units_of(scale)
    z, n = rows[slot, expert] * units.z, rows[slot, rows.shape[1] // 2 + expert] * units.n
    q = (m.table[BETA, expert] + math.sqrt(n)) * m.table[INVERSE_ALPHA, expert]
    psi = Psi(0.0, m.table[L1, expert], m.first.l2, m.first.psi_l2, m.first.box)
    return prox(z, q, without_penalty(psi) if slot == rows.shape[0] - 1 else psi), q
