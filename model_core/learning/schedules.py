"""The weight alpha_t of Psi on round t, and its running sum A_t = alpha_1 + ... + alpha_t, A_0 = 0.

A_t is a function of t alone, so that a weight that no example touches is still read rightly at any round.
It comes from a closed form or a compensated sum, never from a running total: batching cannot change its bits.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.kernels.compiled import kernel

_CONSTANT, _OVER_T, _ONCE, _INV_SQRT, _XIAO, _CUSTOM = range(6)

_ZETA_HALF = -1.4603545088095868
# sum of 1 / sqrt(s) for s <= t < 64; from 64 on the Euler-Maclaurin expansion is good to 1e-14.
_INV_SQRT_SUMS = np.array([math.fsum(1.0 / math.sqrt(s) for s in range(1, t + 1)) for t in range(64)])
_NO_TABLE: NDArray[np.float64] = np.zeros((2, 1))


class ScheduleTerms(NamedTuple):
    """A schedule as the kernels take it.

    parameter: T of over_T, rho of xiao.
    table float64[2, m+1]: alpha_t and A_t of a custom schedule, t = 0 .. m.
    """

    kind: int
    parameter: float
    table: NDArray[np.float64]


@dataclass(frozen=True)
class Constant:
    """alpha_t = 1."""

    def terms(self) -> ScheduleTerms:
        return ScheduleTerms(_CONSTANT, 1.0, _NO_TABLE)


@dataclass(frozen=True)
class OverT:
    """alpha_t = 1 / T, for a stream of about T rounds; after T rounds A_t goes on growing."""

    T: int

    def terms(self) -> ScheduleTerms:
        return ScheduleTerms(_OVER_T, float(self.T), _NO_TABLE)


@dataclass(frozen=True)
class Once:
    """alpha_1 = 1, then 0: Psi counts once, like a prior."""

    def terms(self) -> ScheduleTerms:
        return ScheduleTerms(_ONCE, 1.0, _NO_TABLE)


@dataclass(frozen=True)
class InvSqrt:
    """alpha_t = 1 / sqrt(t)."""

    def terms(self) -> ScheduleTerms:
        return ScheduleTerms(_INV_SQRT, 1.0, _NO_TABLE)


@dataclass(frozen=True)
class Xiao:
    """A_t = t + rho sqrt(t) (Xiao 2009)."""

    rho: float

    def terms(self) -> ScheduleTerms:
        return ScheduleTerms(_XIAO, self.rho, _NO_TABLE)


@dataclass(frozen=True)
class Custom:
    """alpha_t = values[t - 1]; 0 beyond the list (our choice: the only continuation that never increases)."""

    values: tuple[float, ...]

    def terms(self) -> ScheduleTerms:
        alphas = [0.0, *self.values]
        return ScheduleTerms(_CUSTOM, 1.0, np.array([alphas, _compensated_sums(alphas)]))


Schedule = Constant | OverT | Once | InvSqrt | Xiao | Custom


@kernel
def alpha_sum(schedule: ScheduleTerms, t: int) -> float:
    """A_t, for t >= 0 completed rounds."""
    kind = schedule.kind
    if kind == _ONCE:
        return 1.0 if t >= 1 else 0.0
    if kind == _CONSTANT:
        return float(t)
    if kind == _OVER_T:
        return t / schedule.parameter
    if kind == _XIAO:
        return t + schedule.parameter * math.sqrt(t)
    if kind == _CUSTOM:
        return float(schedule.table[1, min(t, schedule.table.shape[1] - 1)])
    if t < 64:
        return float(_INV_SQRT_SUMS[t])
    root = math.sqrt(t)
    cube = t * root
    return 2.0 * root + _ZETA_HALF + 1.0 / (2.0 * root) - 1.0 / (24.0 * cube) + 1.0 / (384.0 * t * t * cube)


@kernel
def alpha_at(schedule: ScheduleTerms, t: int) -> float:
    """alpha_t of round t >= 1, without the cancellation of A_t - A_{t-1}."""
    kind = schedule.kind
    if kind == _ONCE:
        return 1.0 if t == 1 else 0.0
    if kind == _CONSTANT:
        return 1.0
    if kind == _OVER_T:
        return 1.0 / schedule.parameter
    if kind == _XIAO:
        return 1.0 + schedule.parameter / (math.sqrt(t) + math.sqrt(t - 1))
    if kind == _CUSTOM:
        return float(schedule.table[0, t]) if t < schedule.table.shape[1] else 0.0
    return 1.0 / math.sqrt(t)


def _compensated_sums(values: list[float]) -> list[float]:
    """Prefix sums after Neumaier, each within an ulp or two of the exact sum."""
    sums, total, lost = [], 0.0, 0.0
    for value in values:
        grown = total + value
        lost += (total - grown) + value if abs(total) >= abs(value) else (value - grown) + total
        total = grown
        sums.append(total + lost)
    return sums
