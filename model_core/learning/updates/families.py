"""The four families: the lines by which the table of the unified update tells them apart.

On round t every coordinate of the example takes

    z'      = linear(z, x) + r theta
    x_{t+1} = prox(z', Q_{1:t}, Psi weighted by A_t (ftrl, rda) or by alpha_t (comid, aogd))

What is kept is z' where the penalties of all past rounds stay in force (ftrl, rda).  Where only the point
counts (comid, aogd) it is the z that the same reading turns into x_{t+1}: one routine reads all four, and
weights that no example touches shrink as they should.
"""

from numba import njit

from model_core.learning.updates.coefficients import COMID, FTRL, RDA


@njit(cache=True)
def keeps_gradients(family: int) -> bool:
    """Is the state a sum of gradients (ftrl, rda), and not a point (comid, aogd)?"""
    return family in (FTRL, RDA)


@njit(cache=True)
def linear(family: int, z: float, x: float, q_old: float, q_new: float, l2: float) -> float:
    """z^-, the linear coefficient before the gradient; q_old, q_new: Q_{1:t-1}, Q_{1:t}."""
    if family == FTRL:
        return z - (q_new - q_old) * x
    if family == RDA:
        return z
    if family == COMID:
        return -(q_new + l2) * x
    return -(q_old + l2) * x
