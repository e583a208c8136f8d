"""Reads the time of an event, in seconds since 1970 or as RFC 3339.

Positions and REFUSED are those of scan.py.
"""

import numpy as np

from model_core.examples.records import NO_TIME
from model_core.hashing.columns import Bytes
from model_core.json.fields import LAST_SECOND
from model_core.json.scan import MINUS, QUOTE, REFUSED, at, read_number
from model_core.kernels.compiled import inlined_kernel, kernel

_PATTERN = np.frombuffer(b"dddd-dd-ddTdd:dd:dd", np.uint8)
_OFFSET = np.frombuffer(b"dd:dd", np.uint8)
_TWO_TO_52 = 2.0**52


@kernel
def read_time(text: Bytes, i: int) -> tuple[int, int]:
    """Return (its end, milliseconds since 1970); leap seconds and lower-case letters are not ordinary."""
    if at(text, i) == QUOTE:
        return _read_date(text, i + 1)
    i, seconds = read_number(text, i)
    if i == REFUSED or not 0.0 <= seconds <= LAST_SECOND:
        return REFUSED, NO_TIME
    # To the nearest integer, halves to even: there are no digits beyond the point from 2**52 on.
    return i, int((seconds * 1000.0 + _TWO_TO_52) - _TWO_TO_52)


@inlined_kernel
def _read_date(text: Bytes, i: int) -> tuple[int, int]:
    for j in range(_PATTERN.size):
        if not _matches(at(text, i + j), _PATTERN[j]):
            return REFUSED, NO_TIME
    day = _day(_number(text, i, 4), _number(text, i + 5, 2), _number(text, i + 8, 2))
    hour, minute, second = _number(text, i + 11, 2), _number(text, i + 14, 2), _number(text, i + 17, 2)
    i, milliseconds = _read_milliseconds(text, i + _PATTERN.size)
    i, offset = _read_offset(text, i)
    since = 60 * (60 * (24 * day + hour) + minute - offset) + second
    if i == REFUSED or day < 0 or hour > 23 or minute > 59 or second > 59 or since < 0:
        return REFUSED, NO_TIME
    return i, 1000 * since + milliseconds


@inlined_kernel
def _matches(byte: int, pattern: int) -> bool:
    return byte == pattern if pattern != ord("d") else ord("0") <= byte <= ord("9")


@inlined_kernel
def _number(text: Bytes, i: int, digits: int) -> int:
    number = 0
    for j in range(i, i + digits):
        number = 10 * number + at(text, j) - ord("0")
    return number


@inlined_kernel
def _day(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01, or -1 for a day before it or one that does not exist."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if year < 1970 or not 1 <= month <= 12:
        return -1
    length = 30 + (month + month // 8) % 2 if month != 2 else 28 + leap
    if not 1 <= day <= length:
        return -1
    before = year - 1
    years = 365 * (year - 1970) + before // 4 - before // 100 + before // 400 - 477
    months = (367 * month - 362) // 12 - (0 if month <= 2 else 2 - leap)
    return years + months + day - 1


@inlined_kernel
def _read_milliseconds(text: Bytes, i: int) -> tuple[int, int]:
    """Read the first three digits of an optional fraction."""
    if at(text, i) != ord("."):
        return i, 0
    first, milliseconds, unit = i + 1, 0, 100
    i = first
    while ord("0") <= at(text, i) <= ord("9"):
        milliseconds += unit * (at(text, i) - ord("0"))
        unit //= 10
        i += 1
    return (i if i > first else REFUSED), milliseconds


@inlined_kernel
def _read_offset(text: Bytes, i: int) -> tuple[int, int]:
    """Read the offset from UTC, in minutes, and the closing quote."""
    if i == REFUSED:
        return REFUSED, 0
    sign, offset = at(text, i), 0
    i += 1
    if sign == MINUS or sign == ord("+"):
        for j in range(5):
            if not _matches(at(text, i + j), _OFFSET[j]):
                return REFUSED, 0
        hours, minutes = _number(text, i, 2), _number(text, i + 3, 2)
        i += 5
        if hours > 23 or minutes > 59:
            return REFUSED, 0
        offset = 60 * hours + minutes
        if sign == MINUS:
            offset = -offset
    elif sign != ord("Z"):
        return REFUSED, 0
    return (i + 1 if at(text, i) == QUOTE else REFUSED), offset
