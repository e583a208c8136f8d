"""One round for the coordinates of one example: gathering them, the margin, the step to the state after it.

A coordinate is a slot that features of the example have, once, with the sum of their values.

The implicit (exact) step for log loss is one scalar equation.  Its gradient is r theta with one unknown r, so
the new weights are x_j(r) = prox(z^-_j + r theta_j) and

    h(r) = r - weight (sigmoid(M(r)) - y) = 0,    M(r) = offset + sum_j theta_j x_j(r).

M never increases, so h increases with slope >= 1: one root, and it lies between 0 and -h(0).
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.kernels.compiled import inlined_kernel, kernel
from model_core.kernels.fours import abs4, load4, load_pairs4, spread4, sqrt4, store4, where_positive
from model_core.kernels.numerics import log1p, residual, sigmoid
from model_core.learning.update import (
    COMID,
    FTRL,
    RDA,
    Coefficients,
    MixtureTerms,
    Psi,
    Units,
    keeps_gradients,
    linear,
    prox,
    psi_of_coordinate,
    psi_of_round,
    state_of_point,
    without_penalty,
)

_TOLERANCE = 1e-13
# More than bisection needs through all exponents and digits of a float64.
_MOST_STEPS = 2200


class Prior(NamedTuple):
    """The first examples of a model whose prior probability is taken from its log.

    clicks, others: sums of weight times label, and of weight times 1 - label.  clicked: the sum of the
    labels; learned: how many examples they are.  Those of weight 0 do not count.  From FIRST_EXAMPLES on
    nothing changes, so FIXED adds nothing to the margin of any other model.
    """

    clicks: float
    others: float
    clicked: float
    learned: int


FIRST_EXAMPLES = 1000
FIXED = Prior(0.0, 0.0, 0.0, FIRST_EXAMPLES)
NOTHING_LEARNED = Prior(0.0, 0.0, 0.0, 0)


@njit(cache=True, error_model="numpy")
def offset_from(prior: Prior) -> float:
    """Return log((c + s) / (d + s)), pulled towards 0 by two standard errors, but not beyond.

    c, d: the weights of clicks and of others; s: half the mean weight of an example.  The error is that of
    k clicks and l others, sqrt(1 / (k + 1/2) + 1 / (l + 1/2)), whatever they weigh.
    """
    total = prior.clicks + prior.others
    if total == 0.0:
        return 0.0
    half = 0.5 * total / prior.learned
    clicks, others = prior.clicks + half, prior.others + half
    logit = log1p((clicks - others) / others) if clicks > others else -log1p((others - clicks) / clicks)
    error = math.sqrt(1.0 / (prior.clicked + 0.5) + 1.0 / (prior.learned - prior.clicked + 0.5))
    return math.copysign(max(abs(logit) - 2.0 * error, 0.0), logit)


@njit(cache=True)
def prior_after(prior: Prior, label: float, weight: float) -> Prior:
    """Return the prior after one more example that was learned."""
    if prior.learned >= FIRST_EXAMPLES or not 0.0 < weight < math.inf:
        return prior
    clicks, others = prior.clicks + weight * label, prior.others + weight * (1.0 - label)
    return Prior(clicks, others, prior.clicked + label, prior.learned + 1)


class Features(NamedTuple):
    """The features of a batch, as in ExampleBatch."""

    row_ptr: NDArray[np.int64]
    hashes: NDArray[np.uint32]
    values: NDArray[np.float64]


THETA, Z, N, Q, X, Z_NEW, N_NEW, Q_NEW, TERM = range(9)
"""The rows of Scratch.table.  TERM: what a coordinate adds to the margin."""


class Scratch(NamedTuple):
    """Room for the coordinates of one example, kept in the first-level cache.

    slots uint32[c]; theta, z, n, q, x float64[c]: value, state, curvature and weight of each coordinate;
    z_new, n_new, q_new float64[c]: the same after the round.
    table float64[9, c]: these columns in one array, from which four coordinates at a time are read; beyond
    the last one, up to three have some slot of the example and value 0.
    places int64[2^m]: open addressing from slot to coordinate, most of it free.  An entry is
    stamp << 32 | coordinate and needs no clearing.
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
    table: NDArray[np.float64]
    places: NDArray[np.int64]


_ROOMY = 1024


@njit(cache=True)
def scratch_for(row_ptr: NDArray[np.int64], at_least: int) -> Scratch:
    """Room for the longest example, and for `at_least` coordinates."""
    longest = at_least
    for i in range(row_ptr.size - 1):
        longest = max(longest, row_ptr[i + 1] - row_ptr[i])
    room = 2
    while room < 2 * longest or (room < 16 * longest and room < _ROOMY):
        room *= 2
    f = np.empty((9, longest + 4))
    places = np.zeros(room, np.int64)
    return Scratch(
        *(np.empty(longest + 4, np.uint32), f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7], f, places)
    )


@inlined_kernel
def gather(features: Features, i: int, size: int, c: Coefficients | MixtureTerms, s: Scratch) -> int:
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
    mask, last = np.uint32(size - 1), np.uint32(s.places.size - 1)
    stamp = (2 * i + 1) << 32
    for j in range(features.row_ptr[i], features.row_ptr[i + 1]):
        value = 1.0 if unit else features.values[np.uint64(j)]
        if value == 0.0:
            continue
        slot = np.uint32(features.hashes[np.uint64(j)] & mask)
        at = np.uint32(slot & last)
        if s.places[at] < stamp:
            s.places[at] = stamp | k
        else:
            place = _place(s, slot, stamp, k)
            if place < k:
                s.theta[place] += value
                added = True
                continue
        s.slots[np.uint64(k)] = slot
        s.theta[np.uint64(k)] = value
        k += 1
    return _without_zeros(s, k) if added else k


@kernel
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


@kernel
def _without_zeros(s: Scratch, k: int) -> int:
    kept = 0
    for j in range(k):
        if s.theta[j] != 0.0:
            s.slots[kept] = s.slots[j]
            s.theta[kept] = s.theta[j]
            kept += 1
    return kept


@kernel
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


@inlined_kernel
def read_margin(
    rows: NDArray[np.float64],
    c: Coefficients,
    offset: float,
    psi: Psi,
    units: Units,
    s: Scratch,
    k: int,
) -> float:
    """The margin, with the offset that the log adds; leaves state, curvature and weight of every coordinate
    in s.
    """
    for j in range(k, k + 3):
        s.slots[j], s.theta[j] = s.slots[0], 0.0
    from_z, from_n = spread4(units.z), spread4(units.n)
    zero, floor = spread4(0.0), spread4(psi.floor)
    beta, inverse_alpha = spread4(c.beta), spread4(c.inverse_alpha)
    l1, l2, psi_l2, box = spread4(psi.L), spread4(psi.l2), spread4(psi.psi_l2), spread4(psi.box)
    for j in range(0, k, 4):
        z, n = load_pairs4(rows, s.slots, j)
        z, n = z * from_z, n * from_n
        q = (beta + sqrt4(n)) * inverse_alpha
        q = where_positive(floor - q, floor, q)
        # As prox does.
        excess, total = abs4(z) - l1, q + l2 + psi_l2
        x = excess / total
        x = where_positive(x - box, box, x)
        x = where_positive(excess, where_positive(total, x, zero), zero)
        x = where_positive(z, zero - x, x)
        store4(s.table, Z, j, z)
        store4(s.table, N, j, n)
        store4(s.table, Q, j, q)
        store4(s.table, X, j, x)
        store4(s.table, TERM, j, load4(s.table, THETA, j) * x)
    if c.bias:
        s.x[0] = prox(s.z[0], s.q[0], without_penalty(psi))
        s.table[TERM, 0] = s.theta[0] * s.x[0]
    margin = c.offset + offset
    for j in range(k):
        margin += s.table[TERM, j]
    return margin


@inlined_kernel
def step(
    c: Coefficients,
    offset: float,
    t: int,
    psi_next: Psi,
    units: Units,
    s: Scratch,
    k: int,
    margin: float,
    label: float,
    weight: float,
) -> bool:
    """Round t for the coordinates in s: fills s.z_new and s.n_new, in the units of rows, and says whether all
    of it is finite.
    """
    psi = psi_of_round(c, t)
    r = weight * residual(margin, label)
    _read_linear(c, psi, s, k, r)
    if c.implicit:
        r = implicit_residual(c, offset, psi, s, k, label, weight)
    finite = weight >= 0.0 and 0.0 <= label <= 1.0 and abs(margin) < math.inf
    residuals, to_z, to_n = spread4(r), spread4(units.to_z), spread4(units.to_n)
    differences = spread4(0.0)  # of numbers with themselves: NaN where one is not finite
    for j in range(0, k, 4):
        z = (load4(s.table, Z_NEW, j) + residuals * load4(s.table, THETA, j)) * to_z
        n = load4(s.table, N_NEW, j) * to_n
        differences = differences + (z - z) + (n - n)
        store4(s.table, Z_NEW, j, z)
        store4(s.table, N_NEW, j, n)
    store4(s.table, TERM, 0, differences)
    for j in range(4):
        finite &= s.table[TERM, j] == 0.0
    if not keeps_gradients(c.family):
        for j in range(k):
            x = prox(s.z_new[j], s.q_new[j], psi_of_coordinate(c, psi, j))
            s.z_new[j] = state_of_point(x, s.q_new[j], psi_of_coordinate(c, psi_next, j))
            finite &= abs(s.z_new[j]) < math.inf
    return finite


@inlined_kernel
def _read_linear(c: Coefficients, psi: Psi, s: Scratch, k: int, r: float) -> None:
    """Fill s.n_new, s.q_new, and s.z_new with z^-, the linear coefficient before the gradient r theta."""
    floor, beta, inverse_alpha = spread4(psi.floor), spread4(c.beta), spread4(c.inverse_alpha)
    residuals, l2, minus = spread4(r), spread4(psi.l2), spread4(-1.0)
    for j in range(0, k, 4):
        z, q, x = load4(s.table, Z, j), load4(s.table, Q, j), load4(s.table, X, j)
        g = residuals * load4(s.table, THETA, j)
        n_new = load4(s.table, N, j) + g * g
        q_new = (beta + sqrt4(n_new)) * inverse_alpha
        q_new = where_positive(floor - q_new, floor, q_new)
        if c.family == FTRL:
            z = z - (q_new - q) * x
        elif c.family != RDA:
            z = minus * ((q_new if c.family == COMID else q) + l2) * x
        store4(s.table, Z_NEW, j, z)
        store4(s.table, N_NEW, j, n_new)
        store4(s.table, Q_NEW, j, q_new)
    if c.bias:
        s.z_new[0] = linear(c.family, s.z[0], s.x[0], s.q[0], s.q_new[0], 0.0)


@kernel
def implicit_residual(
    c: Coefficients, offset: float, psi: Psi, s: Scratch, k: int, label: float, weight: float
) -> float:
    """The root of h, for z^- in s.z_new and Q_{1:t} in s.q_new: Newton's method, kept inside a bracket."""
    margin, _ = _margin_and_slope(c, offset, psi, s, k, 0.0)
    r = weight * residual(margin, label)
    low, high = min(r, 0.0), max(r, 0.0)
    step_before = high - low
    for _ in range(_MOST_STEPS):
        margin, slope = _margin_and_slope(c, offset, psi, s, k, r)
        h = r - weight * residual(margin, label)
        if h > 0.0:
            high = r
        else:
            low = r
        p = sigmoid(margin)
        newton = r - h / (1.0 + weight * p * (1.0 - p) * slope)
        # Bisect where Newton leaves the bracket, or does not at least halve its step.
        if not low <= newton <= high or abs(newton - r) > 0.5 * step_before:
            newton = low + 0.5 * (high - low)
        step_before = abs(newton - r)
        r = newton
        if not step_before > _TOLERANCE * abs(r):
            break
    return r


@kernel
def _margin_and_slope(
    c: Coefficients, offset: float, psi: Psi, s: Scratch, k: int, r: float
) -> tuple[float, float]:
    """M(r), and -M'(r) = sum of theta^2 / q over the coordinates that are neither 0 nor at the box."""
    margin, slope = c.offset + offset, 0.0
    for j in range(k):
        own = psi_of_coordinate(c, psi, j)
        x = prox(s.z_new[j] + r * s.theta[j], s.q_new[j], own)
        margin += s.theta[j] * x
        if x != 0.0 and abs(x) < own.box:
            slope += s.theta[j] * s.theta[j] / (s.q_new[j] + own.l2 + own.psi_l2)
    return margin, slope
