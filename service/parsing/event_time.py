"""The time of an event: from seconds since 1970 or RFC 3339 to milliseconds, within plausible bounds.

A time in another unit (an hour written YYMMDDHH, milliseconds) would silently fall out of every window. So a
time before 2000, or more than a day ahead of this process's clock, is refused, and the likely unit named.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from model_core.errors import InvalidInput, Path
from model_core.examples.records import NO_TIME

FIRST_SECOND = 946_684_800
"""2000-01-01T00:00:00Z."""
MAX_SECONDS_AHEAD = 86_400

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:)(\d\d)((?:\.\d+)?)([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_UNITS = {
    "milliseconds since 1970": 1e-3,
    "microseconds since 1970": 1e-6,
    "nanoseconds since 1970": 1e-9,
    "days since 1970": 86_400.0,
    "hours since 1970": 3600.0,
    "minutes since 1970": 60.0,
}
# strptime takes fewer digits than it asks for, so that the number of digits is part of each form.
_CALENDAR_FORMS = {
    "YYMMDDHH": (8, "%y%m%d%H"),
    "YYYYMMDD": (8, "%Y%m%d"),
    "YYMMDD": (6, "%y%m%d"),
    "YYMMDDHHMM": (10, "%y%m%d%H%M"),
    "YYYYMMDDHH": (10, "%Y%m%d%H"),
    "YYYYMMDDHHMM": (12, "%Y%m%d%H%M"),
    "YYYYMMDDHHMMSS": (14, "%Y%m%d%H%M%S"),
}


def milliseconds_of(event_time: object, path: Path) -> int:
    """Return milliseconds since 1970 for seconds since 1970, or for an RFC 3339 text. Raises InvalidInput."""
    if isinstance(event_time, str):
        milliseconds = _milliseconds_of_text(event_time, path)
    elif isinstance(event_time, bool) or not isinstance(event_time, int | float):
        raise InvalidInput(path, "must be an RFC 3339 text or seconds since 1970", "wrong_type")
    elif not _is_plausible(event_time):
        raise InvalidInput(path, f"{_what_is_wrong(event_time)}{_likely_unit(event_time)}", "out_of_range")
    else:
        return round(event_time * 1000)
    if not _is_plausible(milliseconds / 1000):
        raise InvalidInput(path, _what_is_wrong(milliseconds / 1000), "out_of_range")
    return milliseconds


def are_plausible(event_times: NDArray[np.int64]) -> bool:
    """Test the times of a batch, in milliseconds and NO_TIME for none, against the same bounds."""
    known = event_times[event_times != NO_TIME]
    if not known.size:
        return True
    return bool(known.min() >= FIRST_SECOND * 1000 and known.max() <= _last_second() * 1000)


def _last_second() -> float:
    return time.time() + MAX_SECONDS_AHEAD


def _is_plausible(seconds: float) -> bool:
    return FIRST_SECOND <= seconds <= _last_second()


def _what_is_wrong(seconds: float) -> str:
    if seconds != seconds:
        return "must be an RFC 3339 text or seconds since 1970"
    if seconds < FIRST_SECOND:
        return "in seconds since 1970, must not be before the year 2000"
    now = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"in seconds since 1970, must not be more than a day ahead of this server's clock ({now})"


def _likely_unit(number: float) -> str:
    """Return the hint for a number that means a plausible time in another unit, or nothing."""
    if number != number or number in (float("inf"), float("-inf")):
        return ""
    for form, (digits, pattern) in _CALENDAR_FORMS.items():
        text = str(int(number))
        if len(text) == digits and number == int(number):
            try:
                meant = datetime.strptime(text, pattern).replace(tzinfo=UTC)
            except ValueError:
                continue
            if _is_plausible(meant.timestamp()):
                return f"; {text} looks like {form}: send {meant.isoformat().replace('+00:00', 'Z')!r}"
    for unit, seconds in _UNITS.items():
        if _is_plausible(number * seconds):
            return f"; {number:.15g} looks like {unit}: send seconds since 1970"
    return ""


def _milliseconds_of_text(text: str, path: Path) -> int:
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise InvalidInput(path, "must be an RFC 3339 text with its offset, such as 2024-05-01T12:00:00Z")
    day, minutes, seconds, fraction, offset = match.groups()
    leap = seconds == "60"  # RFC 3339 has leap seconds, datetime has not
    plain = f"{day}T{minutes}{'59' if leap else seconds}{fraction}{offset.upper()}"
    try:
        since = datetime.fromisoformat(plain) - _EPOCH + timedelta(seconds=leap)
    except (ValueError, OverflowError):
        raise InvalidInput(path, "there is no such date and time") from None
    return since // timedelta(milliseconds=1)
