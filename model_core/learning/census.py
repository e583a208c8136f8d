"""A census of a model's state: density, load, norms; counted a range of slots at a time."""

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.learning.hyperparameters import Expert, Hyperparameters, MixtureRate
from model_core.learning.rows import SEEN, read_expert
from model_core.learning.state import Mixture, ModelState
from model_core.learning.update import (
    Coefficients,
    MixtureTerms,
    coefficients,
    curvature,
    prox,
    psi_in_force,
    units_of,
)

SLOTS_A_STEP = 65_536

_SEEN, _NONZERO, _BROKEN, _SQUARES, _LARGEST, _GRADIENTS = range(6)


@dataclass(frozen=True)
class Census:
    """Totals over the features of a model; its bias counts only if it is not finite.

    t: rounds completed when the count ended.
    features_seen: slots in use.  nonzero: those whose weight is not 0.  nonfinite: those whose z or n is no
        finite number; they count as seen, and in nothing else.
        A feature of a mixture is nonzero if it is for any expert; all else is the mean of the experts by
        their weights.
    weight_norm: the Euclidean norm of the weights; largest_weight: the largest of their sizes.
    gradient_norm: the square root of the sum of all squared gradients of all rounds, discounted where the
        model forgets.
    expert_weights: of each expert of a mixture.
    """

    slots: int
    t: int
    features_seen: int
    nonzero: int
    nonfinite: int
    weight_norm: float
    largest_weight: float
    gradient_norm: float
    expert_weights: tuple[float, ...] = ()

    @property
    def density(self) -> float:
        """Non-zero weights over features seen, as in the paper's experiments; 0 before the first feature."""
        return self.nonzero / self.features_seen if self.features_seen else 0.0

    @property
    def slot_load(self) -> float:
        """The share of slots in use: also the chance that the next new feature meets another in its slot."""
        return self.features_seen / self.slots

    @property
    def expected_collision_rate(self) -> float:
        """The share of features that share their slot with another, as hashing leads to expect at this load.

        n features thrown into m slots leave m (1 - 1/m)^n of them free, and 1 - (1 - 1/m)^(n - 1) of the
        features share a slot.  With f slots in use, free m - f, the latter is (f - 1) / (m - 1).
        """
        return max(self.features_seen - 1, 0) / (self.slots - 1)


class CensusTaker:
    """Counts a model's features, `slots_a_step` slots a call, so that no caller waits for the whole.

    Each slot is read as of the call that reaches it: its weight after the rounds completed by then, under
    whatever schedule, although rounds may have made it zero without touching it.
    """

    def __init__(self, slots_a_step: int = SLOTS_A_STEP) -> None:
        self._slots_a_step = slots_a_step
        self._state: ModelState | None = None
        self._next = 0
        self._totals: NDArray[np.float64] = np.zeros(6)

    def step(self, state: ModelState, hyper: Hyperparameters) -> Census | None:
        """The census, at the step that completes it.  Starts again if the state is another object."""
        if state is not self._state:
            self._begin(state)
        stop = min(self._next + self._slots_a_step, state.size)
        c, discount, counted = (
            coefficients(hyper, False, 0.0),
            state.discount,
            (self._next, stop, self._totals),
        )
        if isinstance(discount, Mixture):
            _count_mixed(state.rows, state.marks, c, discount.scales, discount.weights, *counted)
        else:
            _count(state.rows, state.marks, c, state.t, discount.scale, *counted)
        self._next = stop
        if stop < state.size:
            return None
        census = _census(state, self._totals)
        self._begin(state)
        return census

    def _begin(self, state: ModelState) -> None:
        self._state, self._next, self._totals = state, 0, np.zeros(6)


def take_census(state: ModelState, hyper: Hyperparameters) -> Census:
    """Take the census of the whole state at once."""
    census = CensusTaker(state.size).step(state, hyper)
    assert census is not None
    return census


def warm_up() -> None:
    """Compile the kernels on tiny models, or load them from the cache."""
    for hyper in (Hyperparameters(), Hyperparameters(rate=MixtureRate((Expert(), Expert())))):
        take_census(ModelState.empty(1, len(hyper.experts)), hyper)


def _census(state: ModelState, totals: NDArray[np.float64]) -> Census:
    seen, nonzero, broken, squares, largest, gradients = totals.tolist()
    broken += not np.isfinite(state.rows[-1]).all()
    return Census(
        state.size,
        state.t,
        int(seen),
        int(nonzero),
        int(broken),
        math.sqrt(squares),
        largest,
        math.sqrt(gradients),
        tuple(state.discount.weights.tolist()) if isinstance(state.discount, Mixture) else (),
    )


@njit(nogil=True, cache=True)
def _count(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    c: Coefficients,
    t: int,
    scale: float,
    start: int,
    stop: int,
    totals: NDArray[np.float64],
) -> None:
    """Add slots start .. stop - 1 to totals float64[6]."""
    psi, units = psi_in_force(c, t), units_of(scale)
    for slot in range(start, stop):
        if not marks[slot] & SEEN:
            continue
        totals[_SEEN] += 1.0
        z, n = rows[slot, 0] * units.z, rows[slot, 1] * units.n
        if not (abs(z) < math.inf and n < math.inf):
            totals[_BROKEN] += 1.0
            continue
        x = prox(z, curvature(c, psi, n), psi)
        totals[_NONZERO] += x != 0.0
        totals[_SQUARES] += x * x
        totals[_LARGEST] = max(totals[_LARGEST], abs(x))
        totals[_GRADIENTS] += n


@njit(nogil=True, cache=True, error_model="numpy")
def _count_mixed(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    m: MixtureTerms,
    scales: NDArray[np.float64],
    weights: NDArray[np.float64],
    start: int,
    stop: int,
    totals: NDArray[np.float64],
) -> None:
    """The same for a mixture whose experts have these weights float64[K]."""
    lanes = rows.shape[1] // 2
    for slot in range(start, stop):
        if not marks[slot] & SEEN:
            continue
        totals[_SEEN] += 1.0
        x, n, nonzero, finite = 0.0, 0.0, False, True
        for e in range(m.experts):
            finite &= abs(rows[slot, e]) < math.inf and rows[slot, lanes + e] < math.inf
            own, _ = read_expert(rows, slot, m, e, scales[e])
            x += weights[e] * own
            n += weights[e] * (rows[slot, lanes + e] * scales[e] * scales[e])
            nonzero |= own != 0.0
        if not finite:
            totals[_BROKEN] += 1.0
            continue
        totals[_NONZERO] += nonzero
        totals[_SQUARES] += x * x
        totals[_LARGEST] = max(totals[_LARGEST], abs(x))
        totals[_GRADIENTS] += n
