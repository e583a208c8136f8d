"""The implicit (exact) step for log loss: one scalar equation.

The step's gradient is r theta with one unknown r, so the new weights are x_j(r) = prox(z^-_j + r theta_j) and

    h(r) = r - weight (sigmoid(M(r)) - y) = 0,    M(r) = offset + sum_j theta_j x_j(r).

M never increases, so h increases with slope >= 1: one root, and it lies between 0 and -h(0).
"""

from numba import njit

from model_core.kernels.numerics import residual, sigmoid
from model_core.learning.coordinates import Scratch
from model_core.learning.updates.coefficients import Coefficients
from model_core.learning.updates.coordinate import Psi, prox, psi_of_coordinate

_TOLERANCE = 1e-13
# More than bisection needs through all exponents and digits of a float64.
_MOST_STEPS = 2200


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
