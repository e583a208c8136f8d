"""The state of a model: two numbers per feature, the number of rounds, and the memory that holds them."""

import contextlib
import hashlib
import mmap
import sys
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.errors import FormatError
from model_core.examples.records import NO_TIME
from model_core.kernels.compiled import kernel, prefetch_row
from model_core.learning.hyperparameters import Hyperparameters
from model_core.learning.update import (
    FOLD,
    Coefficients,
    Psi,
    Units,
    coefficients,
    curvature,
    prox,
    psi_in_force,
    units_of,
    without_penalty,
)

SEEN, CHANGED = 1, 2
AHEAD = 16
"""Slots between a row that is prefetched and the row in use: access in random order waits for memory."""

FULL_FROM = 1024
"""Slots for each feature seen, below which large pages pay: a fifth of the small ones is in use by then."""

_COLLAPSE = 25  # MADV_COLLAPSE of Linux 6.1, for which Python has no name

_FOLD_OF_Z, _FOLD_OF_N = 2.0**-FOLD, 2.0 ** (-2 * FOLD)
_SMALLEST_NORMAL = 2.0**-1022
_MOST_FOLDS = 12  # after which every float64 is 0


class Discount(NamedTuple):
    """What a model that forgets has beside rows and t.

    scale: E, the product of all discounts: a row (z', n') means z = E z', n = E^2 n'.  folds: how many times
    2^-FOLD of that product was moved into the rows.  time: of the newest example, in milliseconds since the
    epoch; NO_TIME before the first, and where the model does not forget by seconds.
    """

    scale: float = 1.0
    folds: int = 0
    time: int = NO_TIME

    def text(self) -> str:
        """The form that is stored, exact to the last bit; empty where nothing was ever forgotten."""
        return f"{self.scale.hex()} {self.folds} {self.time}" if self != NOTHING_FORGOTTEN else ""

    @classmethod
    def parse(cls, text: str) -> "Discount":
        """Raises FormatError."""
        if not text:
            return NOTHING_FORGOTTEN
        try:
            scale, folds, time = text.split(" ")
            found = cls(float.fromhex(scale), int(folds), int(time))
        except ValueError as wrong:
            raise FormatError(f"{text!r} is not the discount of a model") from wrong
        if not (0.0 < found.scale <= 1.0 and found.folds >= 0):
            raise FormatError(f"{text!r} is not the discount of a model")
        return found


NOTHING_FORGOTTEN = Discount()


class ModelState:
    """The arrays of a model of 2**bits slots.

    rows float64[2**bits + 1, 2]: z and n of every slot, in one cache line.  The last row is the bias.
        z: the linear coefficient that a weight is read from, x = prox(z, Q(n), A_t Psi).
        n: the sum of squared gradients, which sets the learning rate.
        Both are in the units of `discount`.
    marks uint8[2**bits + 1]: SEEN, the feature occurred, with a value; CHANGED since take_changed.
    t: completed rounds.
    features_seen: slots marked SEEN, without the bias.
    changed uint32[], changes: the slots marked CHANGED, each once, in the order of change, and their number.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._memory = TableMemory(2**bits)
        self.rows: NDArray[np.float64] = self._memory.rows
        self.marks: NDArray[np.uint8] = self._memory.marks
        self.t = 0
        self.discount = NOTHING_FORGOTTEN
        self.features_seen = 0
        self.changed: NDArray[np.uint32] = np.empty(1024, np.uint32)
        self.changes = 0

    @classmethod
    def empty(cls, bits: int) -> "ModelState":
        """The state before the first round."""
        return cls(bits)

    def use_large_pages(self) -> None:
        """Prepare for much learning: memory is touched in fewer, larger pieces."""
        self._memory.use_large_pages()

    @property
    def size(self) -> int:
        """The number of slots, and the index of the bias's row."""
        return self.marks.size - 1

    def apply_rows(self, slots: NDArray[np.uint32], rows: NDArray[np.float64]) -> None:
        """Take over rows float64[k, 2] of slots uint32[k] that were stored elsewhere; marks them SEEN."""
        self.now_seen(
            self.features_seen + _take_over(self.rows, self.marks, np.ascontiguousarray(slots), rows)
        )

    def forget_until(self, discount: Discount) -> None:
        """Take over a later discount; rows are folded as often as those of the state that it comes from."""
        if discount.folds > self.discount.folds:
            fold_rows(self.rows, self.marks, discount.folds - self.discount.folds)
        self.discount = discount

    def now_seen(self, features: int) -> None:
        """Note how many slots are marked SEEN."""
        self.features_seen = features
        self._memory.settle(features)

    def make_room_for_changes(self, more: int) -> None:
        """Let `changed` take this many more slots: it grows by doubling, to the size of the model at most."""
        needed = min(self.changes + more, self.marks.size)
        if needed > self.changed.size:
            grown = np.empty(min(max(needed, 2 * self.changed.size), self.marks.size), np.uint32)
            grown[: self.changes] = self.changed[: self.changes]
            self.changed = grown

    def take_changed(self) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
        """slots uint32[k] changed since the last call, each once, and their rows float64[k, 2]."""
        slots = self.changed[: self.changes].copy()
        rows = np.empty((slots.size, 2))
        _take_out(self.rows, self.marks, slots, rows)
        self.changes = 0
        return slots, rows

    def seen_slots(self) -> NDArray[np.uint32]:
        """uint32[k]: all slots marked SEEN, ascending; the bias's comes last."""
        return np.flatnonzero(self.marks & SEEN).astype(np.uint32)

    def weights(self, slots: NDArray[np.uint32], hyper: Hyperparameters) -> NDArray[np.float64]:
        """float64[k]: the weights of these slots after t rounds; the bias's slot is read without penalty."""
        return self.readings(slots, hyper)[0]

    def readings(self, slots: NDArray[np.uint32], hyper: Hyperparameters) -> NDArray[np.float64]:
        """float64[2, k]: weight and curvature Q_{1:t}, the inverse learning rate, of these slots."""
        return _readings(self.rows, slots, coefficients(hyper, False, 0.0), self.t, self.discount.scale)

    def nonzero(self, hyper: Hyperparameters) -> int:
        """Count the features with a non-zero weight after t rounds, without the bias.  Reads every row."""
        c = coefficients(hyper, False, 0.0)
        return _count_nonzero(self.rows, self.marks, c, self.t, self.discount.scale)

    def density(self, hyper: Hyperparameters) -> float:
        """nonzero / features_seen; 0 before the first feature."""
        return self.nonzero(hyper) / self.features_seen if self.features_seen else 0.0

    def digest(self) -> str:
        """Hex digest of t, discount and the seen slots with their z and n: equal states, equal digests."""
        slots = self.seen_slots()
        content = hashlib.sha256(self.t.to_bytes(8, "little") + self.discount.text().encode())
        content.update(slots.astype("<u4").tobytes())
        content.update(self.rows[slots].astype("<f8").tobytes())
        return content.hexdigest()


class TableMemory:
    """rows float64[slots + 1, 2] and marks uint8[slots + 1], zeroed, in one piece.

    Small pages while a model is sparse, large ones once it would fill them anyway: few features in random
    slots touch every large page (2 MiB on x86) of a table, and the first touch of each waits until all of it
    is zeroed.  With small pages a model of few features costs what it uses.  A full one is read faster
    through large pages, since the processor remembers where more of it is.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._large = False
        length = slots + 1
        self._memory = mmap.mmap(-1, 17 * length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if sys.platform == "linux":
            self._advise(mmap.MADV_NOHUGEPAGE)
        self.rows: NDArray[np.float64] = np.frombuffer(self._memory, np.float64, 2 * length).reshape(-1, 2)
        self.marks: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8, length, 16 * length)

    def use_large_pages(self) -> None:
        """Use large pages for memory that is touched from now on, before it is filled."""
        self._large = True
        if sys.platform == "linux":
            self._advise(mmap.MADV_HUGEPAGE)

    def settle(self, features_seen: int) -> None:
        """Change to large pages once there are enough features, which copies the memory in use."""
        if not self._large and features_seen * FULL_FROM >= self._slots:
            self.use_large_pages()
            if sys.platform == "linux":
                self._advise(_COLLAPSE)

    def _advise(self, advice: int) -> None:
        # A kernel without large pages, or none free: it is advice, and all works without.
        with contextlib.suppress(OSError):
            self._memory.madvise(advice)


@kernel
def _take_over(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    slots: NDArray[np.uint32],
    stored: NDArray[np.float64],
) -> int:
    """Returns how many features had not been seen before."""
    bias, fresh = marks.size - 1, 0
    for j in range(slots.size):
        if j + AHEAD < slots.size:
            prefetch_row(rows, slots[j + AHEAD])
        slot = slots[j]
        if not marks[slot] & SEEN and slot != bias:
            fresh += 1
        rows[slot, 0] = stored[j, 0]
        rows[slot, 1] = stored[j, 1]
        marks[slot] |= SEEN
    return fresh


@kernel
def _take_out(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    slots: NDArray[np.uint32],
    taken: NDArray[np.float64],
) -> None:
    for j in range(slots.size):
        if j + AHEAD < slots.size:
            prefetch_row(rows, slots[j + AHEAD])
        slot = slots[j]
        taken[j, 0] = rows[slot, 0]
        taken[j, 1] = rows[slot, 1]
        marks[slot] &= SEEN


@njit(cache=True)
def _folded(value: float, power: float, folds: int) -> float:
    """value power^folds, or 0 where that is subnormal: so it does not matter how many folds come at once."""
    for _ in range(min(folds, _MOST_FOLDS)):
        value *= power
    return value if abs(value) >= _SMALLEST_NORMAL else 0.0


@njit(nogil=True, cache=True)
def fold_rows(rows: NDArray[np.float64], marks: NDArray[np.uint8], folds: int) -> None:
    """Multiply z and n of every slot that was seen with what left the scale in so many folds."""
    for slot in range(marks.size):
        if marks[slot] & SEEN:
            rows[slot, 0] = _folded(rows[slot, 0], _FOLD_OF_Z, folds)
            rows[slot, 1] = _folded(rows[slot, 1], _FOLD_OF_N, folds)


@njit(nogil=True, cache=True)
def fold_stored(rows: NDArray[np.float64], folds: NDArray[np.int64]) -> None:
    """The same for rows float64[k, 2] that were stored before so many folds each, int64[k]."""
    for j in range(folds.size):
        if folds[j] > 0:
            rows[j, 0] = _folded(rows[j, 0], _FOLD_OF_Z, folds[j])
            rows[j, 1] = _folded(rows[j, 1], _FOLD_OF_N, folds[j])


@njit(nogil=True, cache=True)
def _readings(
    rows: NDArray[np.float64], slots: NDArray[np.uint32], c: Coefficients, t: int, scale: float
) -> NDArray[np.float64]:
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
def _count_nonzero(
    rows: NDArray[np.float64], marks: NDArray[np.uint8], c: Coefficients, t: int, scale: float
) -> int:
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
