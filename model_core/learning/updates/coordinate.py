"""One coordinate: its learning rate, and the weight that its state stands for."""

import math
from typing import NamedTuple

from numba import njit

from model_core.learning.schedules import alpha_at, alpha_sum
from model_core.learning.updates.coefficients import Coefficients
from model_core.learning.updates.families import keeps_gradients


class Psi(NamedTuple):
    """The penalties of a coordinate, with their weights: L |x|_1 + ((l2 + psi_l2) / 2) |x|^2 on |x| <= box.

    floor: the least Q_{1:t} of the round.
    """

    floor: float
    L: float
    l2: float
    psi_l2: float
    box: float


@njit(cache=True)
def psi_in_force(c: Coefficients, t: int) -> Psi:
    """What a weight is read with after t completed rounds: A_t Psi."""
    return _psi(c, t, alpha_sum(c.schedule, t))


@njit(cache=True)
def psi_of_round(c: Coefficients, t: int) -> Psi:
    """What x_{t+1} is found with: A_t Psi where past penalties stay in force (ftrl, rda), or alpha_t Psi."""
    return _psi(c, t, alpha_sum(c.schedule, t) if keeps_gradients(c.family) else alpha_at(c.schedule, t))


@njit(cache=True)
def _psi(c: Coefficients, t: int, alpha: float) -> Psi:
    return Psi(c.floor + c.growth * math.sqrt(2.0 * t), c.l1 * alpha, c.l2, c.psi_l2 * alpha, c.box)


@njit(cache=True)
def without_penalty(psi: Psi) -> Psi:
    """What the bias is read and updated with."""
    return Psi(psi.floor, 0.0, 0.0, 0.0, math.inf)


@njit(cache=True)
def psi_of_coordinate(c: Coefficients, psi: Psi, j: int) -> Psi:
    """Coordinate 0 of an example is the bias, where there is one."""
    return without_penalty(psi) if c.bias and j == 0 else psi


@njit(cache=True)
def curvature(c: Coefficients, psi: Psi, n: float) -> float:
    """Q_{1:t}, the inverse learning rate of a coordinate."""
    return max(psi.floor, (c.beta + math.sqrt(n)) * c.inverse_alpha)


@njit(cache=True)
def prox(z: float, q: float, psi: Psi) -> float:
    """argmin of z x + (q / 2) x^2 + psi(x); 0 where nothing is known of the coordinate (q = 0, so z = 0)."""
    excess = abs(z) - psi.L
    total = q + psi.l2 + psi.psi_l2
    if excess <= 0.0 or total == 0.0:
        return 0.0
    x = min(excess / total, psi.box)
    return -x if z > 0.0 else x


@njit(cache=True)
def state_of_point(x: float, q: float, psi: Psi) -> float:
    """The z that prox(z, q, psi) turns into x."""
    return -math.copysign((q + psi.l2 + psi.psi_l2) * abs(x) + psi.L, x) if x != 0.0 else 0.0
