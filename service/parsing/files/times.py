"""The times of a table's rows, in any unit or form, and the parts of them that are features."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from model_core.errors import InvalidInput
from service.parsing.event_time import milliseconds_of
from service.parsing.files.rows import TimePart, TimeRule

UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMAL = re.compile(r"-?[0-9]{1,19}(?:\.[0-9]+)?")
_REMEMBERED_TEXTS = 4096  # neighbouring rows often have the same time
_CATEGORIES: dict[TimePart, Callable[[datetime], str]] = {
    "hour": lambda local: str(local.hour),
    "weekday": lambda local: WEEKDAYS[local.weekday()],
}
_SEASONS: dict[TimePart, Callable[[datetime], float]] = {
    "day_sin": lambda local: math.sin(_day_angle(local)),
    "day_cos": lambda local: math.cos(_day_angle(local)),
    "week_sin": lambda local: math.sin(_week_angle(local)),
    "week_cos": lambda local: math.cos(_week_angle(local)),
}
CATEGORIES, SEASONS = tuple(_CATEGORIES), tuple(_SEASONS)


class TimeReader:
    """Reads the values of the column that a rule names. Raises InvalidInput for an unknown zone."""

    def __init__(self, rule: TimeRule) -> None:
        self._rule = rule
        self._zone = zone_of(rule.zone)
        self._units = UNITS_PER_SECOND.get(rule.form)
        self._of_text = lru_cache(_REMEMBERED_TEXTS)(self._read_text)
        self.parts = lru_cache(_REMEMBERED_TEXTS)(self._parts)

    def milliseconds(self, value: Any) -> int:
        """Return milliseconds since 1970 of a text, a number or a datetime. Raises InvalidInput."""
        if isinstance(value, str):
            return self._of_text(value)
        if isinstance(value, datetime):
            return self._checked(value)
        if self._units is None:
            raise self._wrong(value)
        return milliseconds_of(value / self._units, (self._rule.column,))

    def _read_text(self, text: str) -> int:
        if self._units is not None:
            if not _DECIMAL.fullmatch(text):
                raise self._wrong(text)
            number = float(text) if "." in text else int(text)
            return milliseconds_of(number / self._units, (self._rule.column,))
        try:
            time = self._parsed(text)
        except ValueError:
            raise self._wrong(text) from None
        return self._checked(time)

    def _parsed(self, text: str) -> datetime:
        if self._rule.form == "iso":
            return datetime.fromisoformat(text)
        return datetime.strptime(text, self._rule.form)  # noqa: DTZ007 (the rule has the zone)

    def _checked(self, time: datetime) -> int:
        if time.tzinfo is None:
            time = time.replace(tzinfo=self._zone)
        milliseconds = (time - _EPOCH) // timedelta(milliseconds=1)
        return milliseconds_of(milliseconds / 1000, (self._rule.column,))

    def _parts(self, milliseconds: int) -> dict[str, str | float]:
        """The features of a time, by their names; numbers have six decimals."""
        local = (_EPOCH + timedelta(milliseconds=milliseconds)).astimezone(self._zone)
        return {
            part: _CATEGORIES[part](local) if part in _CATEGORIES else round(_SEASONS[part](local), 6)
            for part in self._rule.parts
        }

    def _wrong(self, value: object) -> InvalidInput:
        form = self._rule.form
        unit = {"iso": "a time in ISO 8601"} | {
            name: f"a number of {name} since 1970" for name in UNITS_PER_SECOND
        }
        return InvalidInput(
            (self._rule.column,), f"{str(value)[:60]!r} is not {unit.get(form, f'a time {form}')}"
        )


def _day_angle(local: datetime) -> float:
    return 2.0 * math.pi * (local.hour + local.minute / 60 + local.second / 3600) / 24


def _week_angle(local: datetime) -> float:
    return (2.0 * math.pi * local.weekday() + _day_angle(local)) / 7


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name such as Asia/Shanghai. Raises InvalidInput."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(
            ("zone",), f"{name!r} is no time zone known here, such as UTC or Asia/Shanghai"
        ) from None
