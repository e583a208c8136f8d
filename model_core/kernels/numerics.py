"""Elementary functions that give the same bits on every CPU.

libm picks its code by the CPU's features (FMA, AVX2), and its results differ between them in the last bit;
a model state that several machines must agree on cannot use it.  Everything here is made of `+ - * /` and
exact changes of the exponent: IEEE 754 fixes those results, and numba neither reorders nor fuses them as
long as `fastmath` stays off.

The reductions and coefficients are those of FreeBSD's msun (`e_exp.c`, `s_log1p.c`; Sun Microsystems 1993),
with errors below 1 ulp.  All functions but the last two take and return float64 scalars.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

_LN2_HIGH = float.fromhex("0x1.62e42feep-1")  # 32 bits: k * _LN2_HIGH is exact for every exponent k
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_INVERSE_LN2 = float.fromhex("0x1.71547652b82fep+0")
_SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")

_EXP_OVERFLOW = float.fromhex("0x1.62e42fefa39efp+9")  # above: inf
_EXP_UNDERFLOW = float.fromhex("-0x1.74910d52d3051p+9")  # below: 0


@njit(cache=True)
def power_of_two(k: int) -> float:
    """2**k for -1022 <= k <= 1023, from its bit pattern."""
    return np.int64((k + 1023) << 52).view(np.float64)


@njit(cache=True)
def exp(x: float) -> float:
    """e**x: inf above 709.78, subnormals below -708.4, 0 below -745.13, NaN for NaN."""
    if x != x:
        return x
    if x > _EXP_OVERFLOW:
        return math.inf
    if x < _EXP_UNDERFLOW:
        return 0.0
    k = int(x * _INVERSE_LN2 + (0.5 if x >= 0.0 else -0.5))
    high = x - k * _LN2_HIGH
    low = k * _LN2_LOW
    y = _exp_reduced(high, low)
    # Two exact steps where 2**k alone is no normal number; the second rounds once, to a subnormal.
    if k < -1021:
        return y * power_of_two(k + 100) * power_of_two(-100)
    if k > 1023:
        return y * 2.0 * power_of_two(k - 1)
    return y * power_of_two(k)


@njit(cache=True)
def _exp_reduced(high: float, low: float) -> float:
    """e**(high - low) for |high - low| <= ln(2) / 2, by the rational approximation of r coth(r / 2)."""
    r = high - low
    t = r * r
    c = r - t * (
        1.66666666666666019037e-01
        + t
        * (
            -2.77777777770155933842e-03
            + t
            * (
                6.61375632143793436117e-05
                + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08)
            )
        )
    )
    return 1.0 - ((low - r * c / (2.0 - c)) - high)


@njit(cache=True)
def log1p(x: float) -> float:
    """log(1 + x), accurate near 0; -inf at -1, NaN below -1 and for NaN, inf for inf."""
    if x != x or x == math.inf:
        return x
    if x <= -1.0:
        return -math.inf if x == -1.0 else math.nan
    if -1e-10 < x < 1e-10:
        return x - x * x * 0.5
    if -0.29 < x < 0.41:
        return x - _log_remainder(x, 0, 0.0)
    # log(u) with u = fl(1 + x); the lost part of the sum returns to first order as correction / u.
    u = 1.0 + x
    correction = (1.0 - (u - x)) / u if x > 1.0 else (x - (u - 1.0)) / u
    k = int(np.float64(u).view(np.int64) >> 52) - 1023
    mantissa = u * power_of_two(-k) if k < 1023 else u * 0.5 * power_of_two(1 - k)
    if mantissa > 2.0 * _SQRT_HALF:
        mantissa *= 0.5
        k += 1
    f = mantissa - 1.0
    return k * _LN2_HIGH - (_log_remainder(f, k, correction) - f)


@njit(cache=True)
def _log_remainder(f: float, k: int, correction: float) -> float:
    """f - log(1 + f) - k * _LN2_LOW - correction, for sqrt(1/2) - 1 < f < sqrt(2) - 1."""
    half_square = 0.5 * f * f
    s = f / (2.0 + f)
    w = s * s
    series = w * (
        6.666666666666735130e-01
        + w
        * (
            3.999999999940941908e-01
            + w
            * (
                2.857142874366239149e-01
                + w
                * (
                    2.222219843214978396e-01
                    + w
                    * (
                        1.818357216161805012e-01
                        + w * (1.531383769920937332e-01 + w * 1.479819860511658591e-01)
                    )
                )
            )
        )
    )
    return half_square - (s * (half_square + series) + (k * _LN2_LOW + correction))


@njit(cache=True)
def sigmoid(margin: float) -> float:
    """1 / (1 + e**-margin); may underflow to 0, cannot overflow."""
    if margin >= 0.0:
        return 1.0 / (1.0 + exp(-margin))
    e = exp(margin)
    return e / (1.0 + e)


@njit(cache=True)
def residual(margin: float, label: float) -> float:
    """p - y, the derivative of the log loss by the margin.

    For y = 1 it is -sigmoid(-margin): p - 1 would lose every digit once p rounds to 1 (margin > 37).  For
    0 < y < 1 it is the mean of both ends, (1 - y) p - y (1 - p).
    """
    if label == 0.0:
        return sigmoid(margin)
    if label == 1.0:
        return -sigmoid(-margin)
    return (1.0 - label) * sigmoid(margin) - label * sigmoid(-margin)


@njit(cache=True)
def log_loss(margin: float, label: float) -> float:
    """y log(1 + e**-margin) + (1 - y) log(1 + e**margin); finite for every finite margin.

    Computed as log(1 + e**-|margin|), and |margin| times what the label gives to the less likely outcome.
    """
    missed = 1.0 - label if margin > 0.0 else label
    tail = log1p(exp(-abs(margin)))
    return missed * abs(margin) + tail if missed > 0.0 else tail


@njit(nogil=True, cache=True)
def sigmoids(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[r]: sigmoid of each margin."""
    out = np.empty(margins.size)
    for i in range(margins.size):
        out[i] = sigmoid(margins[i])
    return out


@njit(nogil=True, cache=True)
def log_losses(margins: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[r]: log_loss of each margin float64[r] and label float64[r]."""
    out = np.empty(margins.size)
    for i in range(margins.size):
        out[i] = log_loss(margins[i], labels[i])
    return out
