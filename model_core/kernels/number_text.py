"""Decimal numbers in text, read exactly as Python's float() reads them, compiled.

Only plain decimals are numbers here: no "nan", "inf", underscores or hexadecimal.
"""

import re

import numpy as np
from numpy import uint64
from numpy.typing import NDArray

from model_core.kernels.compiled import kernel

EXACT, HARD, MALFORMED = 0, 1, 2

DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"[+-]?[0-9]+")

_MOST_DIGITS = 19  # of an integer below 2**64
_POWERS = np.array([float(10**i) for i in range(23)])  # all exact
_LOW_BITS = uint64(0x7FF)
_TEN = uint64(10)
_SPLITTER = 134217729.0  # 2**27 + 1


def plain_number(number: float) -> float:
    """Return an int if the number is whole, so that it is written without `.0`."""
    return int(number) if number.is_integer() else number


@kernel
def scan_number(text: NDArray[np.uint8], start: int, stop: int) -> tuple[int, float]:
    """Return (EXACT, the number in text[start:stop]), (HARD, 0) if it needs float(), or (MALFORMED, 0)."""
    i = start
    negative = i < stop and text[i] == ord("-")
    if negative or (i < stop and text[i] == ord("+")):
        i += 1
    first = i
    i, significand, digits = _scan_digits(text, i, stop, uint64(0))
    seen = i - first
    exponent = 0
    if i < stop and text[i] == ord("."):
        point = i + 1
        i, significand, more = _scan_digits(text, point, stop, significand)
        digits += more
        exponent = point - i
        seen += i - point
    if seen == 0:
        return MALFORMED, 0.0
    if i < stop and (text[i] == ord("e") or text[i] == ord("E")):
        i, written = _scan_exponent(text, i + 1, stop)
        exponent += written
    if i != stop:
        return MALFORMED, 0.0
    if digits > _MOST_DIGITS:
        return HARD, 0.0
    status, value = _scaled(significand, exponent)
    return status, -value if negative else value


@kernel
def _scan_digits(
    text: NDArray[np.uint8], i: int, stop: int, significand: np.uint64
) -> tuple[int, np.uint64, int]:
    """Goes on with a significand, which overflows beyond 19 digits; counts digits after leading zeros."""
    digits = 0
    while i < stop and ord("0") <= text[i] <= ord("9"):
        leading = digits == 0 and significand == 0
        significand = significand * _TEN + uint64(text[i] - ord("0"))
        digits += not leading or significand != 0
        i += 1
    return i, significand, digits


@kernel
def _scan_exponent(text: NDArray[np.uint8], i: int, stop: int) -> tuple[int, int]:
    """Return the end of the exponent, or -1 if it has no digits, and its value, cut at a million."""
    negative = i < stop and text[i] == ord("-")
    if negative or (i < stop and text[i] == ord("+")):
        i += 1
    first, exponent = i, 0
    while i < stop and ord("0") <= text[i] <= ord("9"):
        exponent = min(exponent * 10 + text[i] - ord("0"), 1_000_000)
        i += 1
    return (i if i > first else -1), (-exponent if negative else exponent)


@kernel
def _scaled(significand: np.uint64, exponent: int) -> tuple[int, float]:
    """significand * 10**exponent, rounded once."""
    if significand == 0:
        return EXACT, 0.0
    if exponent < -22 or exponent > 22:
        return HARD, 0.0
    if exponent == 0:
        return EXACT, float(significand)
    if significand < uint64(1 << 53):
        if exponent > 0:
            return EXACT, float(significand) * _POWERS[exponent]
        return EXACT, float(significand) / _POWERS[-exponent]
    if exponent > 0:
        return HARD, 0.0
    return _long_quotient(significand, _POWERS[-exponent])


@kernel
def _long_quotient(significand: np.uint64, power: float) -> tuple[int, float]:
    """significand / power in twice the precision, EXACT where both ends of its error round to one number."""
    high = float(significand & ~_LOW_BITS)
    low = float(significand & _LOW_BITS)
    quotient = high / power
    product, error = _exact_product(quotient, power)
    correction = ((high - product) - error + low) / power
    lower = quotient + correction * (1.0 - 2.0**-45)
    upper = quotient + correction * (1.0 + 2.0**-45)
    return (EXACT, lower) if lower == upper else (HARD, 0.0)


@kernel
def _exact_product(a: float, b: float) -> tuple[float, float]:
    """a * b as a rounded product and its error.  (Dekker 1971)"""
    product = a * b
    a_high = _SPLITTER * a - (_SPLITTER * a - a)
    b_high = _SPLITTER * b - (_SPLITTER * b - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
