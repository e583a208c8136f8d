"""The unified update of one coordinate: its coefficients, its learning rate, the four families, the prox.

On round t every coordinate of the example takes

    z'      = linear(z, x) + r theta
    x_{t+1} = prox(z', Q_{1:t}, Psi weighted by A_t (ftrl, rda) or by alpha_t (comid, aogd))

What is kept is z' where the penalties of all past rounds stay in force (ftrl, rda).  Where only the point
counts (comid, aogd) it is the z that the same reading turns into x_{t+1}: one routine reads all four, and
weights that no example touches shrink as they should.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.kernels.compiled import kernel
from model_core.kernels.numerics import exp, power_of_two
from model_core.learning.hyperparameters import (
    MOST_EXPERTS,
    AdaptiveRate,
    GammaRate,
    HalfLife,
    Hyperparameters,
    MixtureRate,
    Rate,
    ScalarRate,
    moves_untouched_weights,
)
from model_core.learning.schedules import ScheduleTerms, alpha_at, alpha_sum

FTRL, RDA, COMID, AOGD = range(4)
_FAMILIES = {"ftrl": FTRL, "rda": RDA, "comid": COMID, "aogd": AOGD}

NEVER, BY_EXAMPLES, BY_SECONDS = range(3)
FOLD = 200
"""The power of two by which a fold changes the rows: scale is between 2^-FOLD and 1."""

_LN2 = 0.6931471805599453
_SMALLEST_SCALE = 2.0**-FOLD
_ALL_FORGOTTEN = 16.0 * FOLD  # half-lives after which no float64 is left above the subnormals


class Coefficients(NamedTuple):
    """The hyperparameters as the kernels take them: plain numbers, built once per model.

    All three learning rates are one expression of n and t,

        Q_{1:t} = max(floor + growth sqrt(2 t), (beta + sqrt(n_t)) inverse_alpha),

    with growth = 0 (adaptive, gamma), beta = 0 (gamma) or inverse_alpha = 0 (scalar).
    box is inf where there is none.  bias: is there a bias feature; it bears no penalty and no box.
    offset: a constant of the margin.  dense: every coordinate takes part in every round.
    forgets: NEVER, BY_EXAMPLES or BY_SECONDS.  discount: of one round, if by examples; half_lives: in one
    millisecond, if by seconds.
    drop_below: the n below which a feature of weight 0 is dropped; 0: none is.
    """

    family: int
    implicit: bool
    inverse_alpha: float
    beta: float
    floor: float
    growth: float
    l1: float
    l2: float
    psi_l2: float
    box: float
    bias: bool
    offset: float
    dense: bool
    forgets: int
    discount: float
    half_lives: float
    drop_below: float
    schedule: ScheduleTerms


INVERSE_ALPHA, BETA, L1, DISCOUNT, HALF_LIVES = range(5)
"""The lines of MixtureTerms.table, each as in Coefficients."""


class MixtureTerms(NamedTuple):
    """The hyperparameters of a mixture as the kernels take them.

    experts: how many there are.
    table float64[5, 8]: what is each expert's own, then what leaves a lane that no expert uses at 0.
    l2, psi_l2, box, bias, offset, forgets, drop_below: as in Coefficients, the same for all experts.
    share: what is spread evenly among the experts after each example.

    The kernels of a round take each field as an argument of its own: numba takes two microseconds to unbox
    a named tuple, as long as a small prediction takes.
    """

    experts: int
    table: NDArray[np.float64]
    l2: float
    psi_l2: float
    box: float
    bias: bool
    offset: float
    forgets: int
    drop_below: float
    share: float


Terms = Any
"""Coefficients, or MixtureTerms of a mixture: each kernel takes the one or the other."""


@lru_cache(maxsize=1024)
def coefficients(hyper: Hyperparameters, bias: bool, offset: float) -> Terms:
    """Convert hyperparameters; `bias` and `offset` come from the model's hash contract."""
    if isinstance(hyper.rate, MixtureRate):
        return _mixture_terms(hyper, hyper.rate, bias, offset)
    return _coefficients(hyper, bias, offset)


def _coefficients(hyper: Hyperparameters, bias: bool, offset: float) -> Coefficients:
    return Coefficients(
        _FAMILIES[hyper.family],
        hyper.update == "implicit",
        *_rate_terms(hyper.rate),
        float(hyper.l1),
        float(hyper.l2),
        float(hyper.psi_l2),
        math.inf if hyper.box is None else float(hyper.box),
        bool(bias),
        float(offset),
        moves_untouched_weights(hyper),
        *_forgetting_terms(hyper.forgetting),
        0.0 if hyper.drop_below is None else float(hyper.drop_below),
        hyper.schedule.terms(),
    )


def _mixture_terms(hyper: Hyperparameters, rate: MixtureRate, bias: bool, offset: float) -> MixtureTerms:
    experts = [_coefficients(one, bias, offset) for one in hyper.experts]
    table = np.ones((5, MOST_EXPERTS))
    table[:, : len(experts)] = [
        [c.inverse_alpha for c in experts],
        [c.beta for c in experts],
        [c.l1 for c in experts],
        [c.discount for c in experts],
        [c.half_lives for c in experts],
    ]
    forgets = max(c.forgets for c in experts)  # those that forget do so in the same unit
    first = experts[0]
    shared = first.l2, first.psi_l2, first.box, first.bias, first.offset
    return MixtureTerms(len(experts), table, *shared, forgets, first.drop_below, float(rate.share))


def _forgetting_terms(half_life: HalfLife | None) -> tuple[int, float, float]:
    """Return forgets, discount, half_lives."""
    if half_life is None:
        return NEVER, 1.0, 0.0
    if half_life.unit == "examples":
        return BY_EXAMPLES, float(exp(-_LN2 / half_life.length)), 0.0
    return BY_SECONDS, 1.0, 1.0 / (1000.0 * half_life.length)


def _rate_terms(rate: Rate) -> tuple[float, float, float, float]:
    """inverse_alpha, beta, floor, growth."""
    if isinstance(rate, AdaptiveRate):
        return 1.0 / rate.alpha, float(rate.beta), 0.0, 0.0
    if isinstance(rate, GammaRate):
        return 1.0 / rate.gamma, 0.0, float(rate.floor), 0.0
    assert isinstance(rate, ScalarRate)
    return 0.0, 0.0, 0.0, rate.factor * rate.G / rate.D


@njit(cache=True)
def keeps_gradients(family: int) -> bool:
    """Test whether the state is a sum of gradients (ftrl, rda), and not a point (comid, aogd)."""
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


class Psi(NamedTuple):
    """The penalties of a coordinate, with their weights: L |x|_1 + ((l2 + psi_l2) / 2) |x|^2 on |x| <= box.

    floor: the least Q_{1:t} of the round.
    """

    floor: float
    L: float
    l2: float
    psi_l2: float
    box: float


@kernel
def psi_in_force(c: Coefficients, t: int) -> Psi:
    """Penalties to read a weight with after t completed rounds: A_t Psi."""
    return _psi(c, t, alpha_sum(c.schedule, t))


@kernel
def psi_of_round(c: Coefficients, t: int) -> Psi:
    """Penalties to find x_{t+1} with: A_t Psi where past ones stay in force (ftrl, rda), or alpha_t Psi."""
    return _psi(c, t, alpha_sum(c.schedule, t) if keeps_gradients(c.family) else alpha_at(c.schedule, t))


@kernel
def _psi(c: Coefficients, t: int, alpha: float) -> Psi:
    return Psi(c.floor + c.growth * math.sqrt(2.0 * t), c.l1 * alpha, c.l2, c.psi_l2 * alpha, c.box)


@njit(cache=True)
def without_penalty(psi: Psi) -> Psi:
    """Remove the penalties, as for the bias."""
    return Psi(psi.floor, 0.0, 0.0, 0.0, math.inf)


@kernel
def psi_of_coordinate(c: Coefficients, psi: Psi, j: int) -> Psi:
    """Coordinate 0 of an example is the bias, where there is one."""
    return without_penalty(psi) if c.bias and j == 0 else psi


@kernel
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


class Units(NamedTuple):
    """The units of rows under a scale E, the product of all discounts: a row holds z / E and n / E^2.

    A discount then changes E alone, not every row.  Without forgetting E = 1, and nothing changes a bit.
    z, n: what the numbers of a row are multiplied by; to_z, to_n: their inverses.
    """

    z: float
    n: float
    to_z: float
    to_n: float


@njit(cache=True, error_model="numpy")
def units_of(scale: float) -> Units:
    """Return the units of rows under this scale."""
    inverse = 1.0 / scale
    return Units(scale, scale * scale, inverse, inverse * inverse)


@kernel
def discounted(c: Coefficients, scale: float, time: int, now: int) -> tuple[float, int, int]:
    """Discount all evidence before a round at `now` (ms, -1 for unknown); `time`: the newest before, or -1.

    Returns the scale, how many times rows are to be folded, and the newest time.  A fold moves 2^-FOLD out of
    the scale and into the rows: a power of two changes only exponents, so it is exact whenever it happens.
    """
    half_lives = 0.0
    if c.forgets == BY_EXAMPLES:
        scale *= c.discount
    elif now > time:
        if time >= 0:
            half_lives = (now - time) * c.half_lives
        time = now
    scale, folds = faded(scale, half_lives)
    return scale, folds, time


@njit(cache=True)
def faded(scale: float, half_lives: float) -> tuple[float, int]:
    """The scale so many half-lives later, and how many times rows are to be folded by then."""
    half_lives = min(half_lives, _ALL_FORGOTTEN)
    whole, folds = int(half_lives), 0
    if half_lives > 0.0:
        scale *= exp(-_LN2 * (half_lives - whole))
    while whole >= FOLD:
        whole -= FOLD
        folds += 1
    scale *= power_of_two(-whole)
    while scale < _SMALLEST_SCALE:
        scale *= power_of_two(FOLD)
        folds += 1
    return scale, folds
