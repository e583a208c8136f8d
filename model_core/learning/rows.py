"""Kernels on the rows of a state: what goes in and out, folds, and the weights that are read from them.

A row has `lanes` numbers z, then as many n: one of each, or those of a mixture's experts side by side.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.kernels.compiled import inlined_kernel, kernel, prefetch_item, prefetch_place, prefetch_row
from model_core.learning.step import Features
from model_core.learning.update import (
    BETA,
    DISCOUNT,
    FOLD,
    HALF_LIVES,
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
SLOTS_A_ROUND = 4
"""Slots that are searched for features to drop, for each round: few beside those of an example.  By the time
all are searched, a new feature in every round has filled no more than a quarter of them.
"""
ROUNDS_A_SEARCH = 16
"""One round in so many searches for all of these: neighbours in memory take less time together."""

AHEAD = 16
"""Slots between a row that is prefetched and the row in use: access in random order waits for memory."""

_DOUBLES_A_LINE = 8
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
) -> int:
    """Put the rows of changed slots uint32[k] into taken float64[k, 2 K]; their marks forget the change.

    Those that were dropped have no row: they are moved behind the others.  Returns how many are before them.
    """
    lanes, experts = rows.shape[1] // 2, taken.shape[1] // 2
    kept = 0
    for j in range(slots.size):
        if j + AHEAD < slots.size:
            prefetch_row(rows, slots[j + AHEAD])
        slot = slots[j]
        marks[slot] &= SEEN
        if not marks[slot]:
            continue
        taken[kept, 0] = rows[slot, 0]
        taken[kept, experts] = rows[slot, lanes]
        for e in range(1, experts):
            taken[kept, e] = rows[slot, e]
            taken[kept, experts + e] = rows[slot, lanes + e]
        slots[j], slots[kept] = slots[kept], slot
        kept += 1
    return kept


@kernel
def clear(rows: NDArray[np.float64], marks: NDArray[np.uint8], slots: NDArray[np.uint32]) -> int:
    """Drop slots uint32[k] that were dropped elsewhere; returns how many features there were in them."""
    there = 0
    for j in range(slots.size):
        slot = slots[j]
        there += marks[slot] & SEEN
        for column in range(rows.shape[1]):
            rows[slot, column] = 0.0
        marks[slot] &= CHANGED
    return there


@njit(cache=True)
def drop_faded(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    changed: NDArray[np.uint32],
    changes: int,
    c: Coefficients,
    t: int,
    units: Units,
) -> tuple[int, int]:
    """Drop what has faded from the slots that round t searches; returns changes, and how many were dropped.

    Faded is a feature of weight 0 with n below drop_below.  It leaves as if it had never been seen, but for
    CHANGED.
    """
    dropped = 0
    for slot in _searched(marks, t):
        if rows[slot, 1] * units.n < c.drop_below and abs(rows[slot, 0] * units.z) <= c.l1:
            changes = _drop(rows, marks, changed, changes, slot)
            dropped += 1
    return changes, dropped


@njit(cache=True)
def drop_faded_of_mixture(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    changed: NDArray[np.uint32],
    changes: int,
    m: MixtureTerms,
    t: int,
    scales: NDArray[np.float64],
) -> tuple[int, int]:
    """The same for a mixture: what has faded for every expert that forgets, from all of them."""
    dropped, lanes = 0, rows.shape[1] // 2
    for slot in _searched(marks, t):
        faded = True
        for e in range(m.experts):
            if m.table[DISCOUNT, e] < 1.0 or m.table[HALF_LIVES, e] > 0.0:
                n = rows[slot, lanes + e] * (scales[e] * scales[e])
                if not (n < m.drop_below and abs(rows[slot, e] * scales[e]) <= m.table[L1, e]):
                    faded = False
                    break
        if faded:
            changes = _drop(rows, marks, changed, changes, slot)
            dropped += 1
    return changes, dropped


@njit(cache=True)
def _searched(marks: NDArray[np.uint8], t: int) -> NDArray[np.int64]:
    """The features, int64[k], in the slots that round t searches; the bias is never among them."""
    size = marks.size - 1
    slots = min(ROUNDS_A_SEARCH * SLOTS_A_ROUND, size)
    start = (t // ROUNDS_A_SEARCH - 1) * slots & (size - 1)
    found, k = np.empty(slots, np.int64), 0
    for slot in range(start, start + slots):  # without branches: half of them would be mispredicted
        found[k] = slot
        k += marks[slot] & SEEN
    return found[:k]


@njit(cache=True)
def _drop(
    rows: NDArray[np.float64], marks: NDArray[np.uint8], changed: NDArray[np.uint32], changes: int, slot: int
) -> int:
    rows[slot] = 0.0
    if not marks[slot] & CHANGED:
        changed[changes] = slot
        changes += 1
    marks[slot] = CHANGED
    return changes


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
    psi = Psi(0.0, m.table[L1, expert], m.l2, m.psi_l2, m.box)
    return prox(z, q, without_penalty(psi) if slot == rows.shape[0] - 1 else psi), q


@inlined_kernel
def prefetch_rows(features: Features, i: int, rows: NDArray[np.float64]) -> None:
    """Start loading the rows float64[2] of example i, if there is one."""
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
