"""One round for the coordinates of one example: the margin, and the step to the state after it.

The implicit (exact) step for log loss is one scalar equation.

The step's gradient is r theta with one unknown r, so the new weights are x_j(r) = prox(z^-_j + r theta_j) and

    h(r) = r - weight (sigmoid(M(r)) - y) = 0,    M(r) = offset + sum_j theta_j x_j(r).

M never increases, so h increases with slope >= 1: one root, and it lies between 0 and -h(0).
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.kernels.numerics import residual, sigmoid
from model_core.learning.coordinates import Scratch
from model_core.learning.update import (
    Coefficients,
    Psi,
    Units,
    curvature,
    keeps_gradients,
    linear,
    prox,
    psi_of_coordinate,
    psi_of_round,
    state_of_point,
)

_TOLERANCE = 1e-13
# More than bisection needs through all exponents and digits of a float64.
_MOST_STEPS = 2200


@njit(cache=True, error_model="numpy")
def read_margin(
    rows: NDArray[np.float64], c: Coefficients, psi: Psi, units: Units, s: Scratch, k: int
) -> float:
    """The margin; leaves state, curvature and weight of every coordinate in s."""
    for j in range(k):
        s.z[j] = rows[s.slots[j], 0]
        s.n[j] = rows[s.slots[j], 1]
    if units.z != 1.0:
        for j in range(k):
            s.z[j] *= units.z
            s.n[j] *= units.n
    for j in range(k):
        s.q[j] = curvature(c, psi, s.n[j])
        s.x[j] = prox(s.z[j], s.q[j], psi_of_coordinate(c, psi, j))
    margin = c.offset
    for j in range(k):
        margin += s.theta[j] * s.x[j]
    return margin


@njit(cache=True, error_model="numpy")
def step(
    c: Coefficients,
    t: int,
    psi_next: Psi,
    units: Units,
    s: Scratch,
    k: int,
    margin: float,
    label: int,
    weight: float,
) -> bool:
    """Round t for the coordinates in s: fills s.z_new and s.n_new, in the units of rows, and says whether all
    of it is finite.
    """
    psi = psi_of_round(c, t)
    r = weight * residual(margin, label)
    for j in range(k):
        g = r * s.theta[j]
        s.n_new[j] = s.n[j] + g * g
        s.q_new[j] = curvature(c, psi, s.n_new[j])
        own = psi_of_coordinate(c, psi, j)
        s.z_new[j] = linear(c.family, s.z[j], s.x[j], s.q[j], s.q_new[j], own.l2)
    if c.implicit:
        r = implicit_residual(c, psi, s, k, label, weight)
    finite = weight >= 0.0 and abs(margin) < math.inf
    for j in range(k):
        s.z_new[j] = (s.z_new[j] + r * s.theta[j]) * units.to_z
        s.n_new[j] *= units.to_n
        finite &= abs(s.z_new[j]) < math.inf and s.n_new[j] < math.inf
    if not keeps_gradients(c.family):
        for j in range(k):
            x = prox(s.z_new[j], s.q_new[j], psi_of_coordinate(c, psi, j))
            s.z_new[j] = state_of_point(x, s.q_new[j], psi_of_coordinate(c, psi_next, j))
            finite &= abs(s.z_new[j]) < math.inf
    return finite


@njit(cache=True)
def implicit_residual(c: Coefficients, psi: Psi, s: Scratch, k: int, label: int, weight: float) -> float:
    """The root of h, for z^- in s.z_new and Q_{1:t} in s.q_new: Newton's method, kept inside a bracket."""
    margin, _ = _margin_and_slope(c, psi, s, k, 0.0)
    r = weight * residual(margin, label)
    low, high = min(r, 0.0), max(r, 0.0)
    step_before = high - low
    for _ in range(_MOST_STEPS):
        margin, slope = _margin_and_slope(c, psi, s, k, r)
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


@njit(cache=True)
def _margin_and_slope(c: Coefficients, psi: Psi, s: Scratch, k: int, r: float) -> tuple[float, float]:
    """M(r), and -M'(r) = sum of theta^2 / q over the coordinates that are neither 0 nor at the box."""
    margin, slope = c.offset, 0.0
    for j in range(k):
        own = psi_of_coordinate(c, psi, j)
        x = prox(s.z_new[j] + r * s.theta[j], s.q_new[j], own)
        margin += s.theta[j] * x
        if x != 0.0 and abs(x) < own.box:
            slope += s.theta[j] * s.theta[j] / (s.q_new[j] + own.l2 + own.psi_l2)
    return margin, slope
