"""Judges what a column of a log is: a time, an id, a leak of the label, a list, a number or a category.

A number becomes a bucket of its size and a category one feature for each value; of the two, the column is
what predicts the label better, by the progressive log loss of a model of this column alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from model_core.errors import InvalidInput
from model_core.hashing.feature_text import bucket_text
from model_core.kernels.number_text import DECIMAL
from service.parsing.files.columns import NULL
from service.parsing.files.rows import TimeRule
from service.parsing.files.times import UNITS_PER_SECOND, TimeReader

Kind = Literal[
    "label",
    "time",
    "id",
    "leak",
    "list",
    "number",
    "category",
    "json",
    "text",
    "weight",
    "sample rate",
    "empty",
    "unusable",
]
Labels = npt.NDArray[np.float64]

UNIQUE = "unique"
"""The detail of an id that no two rows share."""
LIST_SEPARATORS = ("|", ";", ",", " ", "^", "~")
NULL_WORDS = ("NULL", "null", "None", "NaN", "nan", "NA", "N/A", "n/a", "(null)")

_FEW_CLICKS = 5
_LEAKS = 0.1  # of the entropy of the labels: with less loss, the column gives the label away
_SAME = 1e-3  # of the entropy of the labels: a difference of losses that decides nothing
_GAIN = 2e-3  # of the entropy of the labels: with less, the column says too little to be judged by it
_FEW_VALUES = 100
_ALL, _NONE = 0.99, 0.01
_UNIQUE = 0.9  # share of different values of an id
_PSEUDO_COUNT = 2.0
_TRIED_TIMES = 500
_FORMS_OF_DIGITS = {
    8: ("%y%m%d%H", "%Y%m%d"),
    10: ("s", "%Y%m%d%H", "%y%m%d%H%M"),
    12: ("%Y%m%d%H%M",),
    13: ("ms",),
    14: ("%Y%m%d%H%M%S",),
    16: ("us",),
    17: ("%Y%m%d%H%M%S%f",),
    19: ("ns",),
}
_OTHER_FORMS = ("iso", "%d/%b/%Y:%H:%M:%S %z", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S", "%Y/%m/%d %H:%M:%S")
_NAMES_OF_TIMES = re.compile(r"time|date|hour|stamp|(^|_)(ts|day|at|dt)$", re.IGNORECASE)
_NAMES_OF_IDS = re.compile(r"id$|uuid|guid|key$", re.IGNORECASE)
_LEADING_ZERO = re.compile(r"-?0[0-9]")


@dataclass
class Column:
    """A column: its values as they were read, and as texts, None for a missing one.

    codes int64[r]: equal for equal values. distinct: the number of different values.
    """

    name: str
    values: Sequence[Any]
    texts: list[str | None]
    codes: npt.NDArray[np.int64]
    distinct: int

    @classmethod
    def of(cls, name: str, values: Sequence[Any], nulls: frozenset[str]) -> Column:
        texts = [_text(value, nulls) for value in values]
        table: dict[str | None, int] = {}
        codes = np.fromiter((table.setdefault(text, len(table)) for text in texts), np.int64, len(texts))
        return cls(name, values, texts, codes, len(table) - (None in table))

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        return np.fromiter((text is None for text in self.texts), bool, len(self.texts))

    @property
    def present(self) -> list[str]:
        return [text for text in self.texts if text is not None]

    def most_frequent(self, count: int) -> list[tuple[str, int]]:
        """The most frequent values with their counts; items of lists are values."""
        if any(isinstance(value, list) for value in self.values):
            return Counter(str(i) for value in self.values for i in value or ()).most_common(count)
        return Counter(self.present).most_common(count)


@dataclass(frozen=True)
class Verdict:
    """The kind of a column, and the reason. detail: the form of a time, or the separator of a list."""

    kind: Kind
    reason: str = ""
    detail: str = ""


def _text(value: Any, nulls: frozenset[str]) -> str | None:
    if value is None or (isinstance(value, str) and (value in ("", NULL) or value in nulls)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return value if isinstance(value, str) else str(value)


def judge(column: Column, labels: Labels) -> Verdict:
    """Return what a column is that is not the label. labels float64[r]: those of its rows."""
    if not column.distinct:
        return Verdict("empty", "no row has a value")
    if (leak := _leak_by_absence(column.missing, labels)) is not None:
        return Verdict("leak", leak)
    if (form := time_form(column)) is not None:
        return Verdict("time", "each value is a time", form)
    if (found := _id(column)) is not None:
        return found
    entropy = entropy_of(labels)
    loss = progressive_loss(column.codes, labels)
    if min(labels.sum(), labels.size - labels.sum()) >= 4 * _FEW_CLICKS and loss < _LEAKS * entropy:
        return Verdict(
            "leak", f"its value gives the label away: log loss {loss:.4f} instead of {entropy:.4f}"
        )
    if any(isinstance(value, list) for value in column.values):
        return Verdict("list", "a list in each row")
    others = [text for text in column.present if not _is_decimal(text)]
    if len(others) > _NONE * len(column.present):
        return list_of(column) or Verdict("text", "texts")
    verdict = _number_or_category(column, labels, loss, entropy)
    if others and verdict.kind == "number":
        return Verdict("json", f"{len(others):,} texts among numbers; {verdict.reason}")
    return verdict


def _leak_by_absence(missing: npt.NDArray[np.bool_], labels: Labels) -> str | None:
    """Explain how the absence of values gives the label away, if it does."""
    clicks = labels == 1
    if min(clicks.sum(), (~clicks).sum()) < _FEW_CLICKS:
        return None
    of_clicks, of_others = float(missing[clicks].mean()), float(missing[~clicks].mean())
    if of_others >= _ALL and of_clicks <= _NONE:
        return "empty exactly where the label is 0: it is known after the click only"
    if of_clicks >= _ALL and of_others <= _NONE:
        return "empty exactly where the label is 1"
    return None


def _id(column: Column) -> Verdict | None:
    """Distinguish ids, of which nearly each row has its own, from numbers with as many values."""
    present = column.present
    if column.distinct < _UNIQUE * len(present) or len(present) < 20:
        return None
    whole = [text for text in present if text.isascii() and text.isdigit()]
    if len(whole) == len(present):
        steps = np.diff(np.array([float(text) for text in present]))
        if (steps == 1.0).all():
            return Verdict("id", "the number of the row")
        if not _NAMES_OF_IDS.search(column.name) and min(map(len, whole)) < 9:
            return None
    elif all(map(_is_decimal, present)) or list_of(column) is not None:
        return None
    unique = column.distinct == len(present) == len(column.texts)
    return Verdict(
        "id",
        "each row has its own value" if unique else "nearly each row has its own value",
        UNIQUE if unique else "",
    )


def _number_or_category(column: Column, labels: Labels, as_category: float, entropy: float) -> Verdict:
    present = column.present
    if any(map(_LEADING_ZERO.match, present)) and all(len(t) == len(present[0]) for t in present):
        return Verdict("category", "codes with leading zeros")
    if any("." in text and _is_decimal(text) and not float(text).is_integer() for text in present):
        return Verdict("number", "numbers with fractions")
    if column.distinct <= 2:
        return Verdict("category", f"{column.distinct} value{'s' * (column.distinct > 1)}")
    as_number = progressive_loss(_codes(_bucket(text) for text in column.texts), labels)
    losses = f"log loss {as_number:.4f} as a number, {as_category:.4f} as a category"
    if min(as_number, as_category) < (1 - _GAIN) * entropy and abs(as_number - as_category) > _SAME * entropy:
        return Verdict("number" if as_number < as_category else "category", losses)
    if column.distinct <= _FEW_VALUES:
        return Verdict("category", f"few values; {losses}")
    if _are_like_counts(column):
        return Verdict("number", "the most frequent values are the smallest, as of counts")
    return Verdict("category", "no counts: the most frequent values are not the smallest, as of ids")


def _are_like_counts(column: Column) -> bool:
    sizes = sorted({abs(float(text)) for text in column.present if _is_decimal(text)})
    frequent = [text for text, _ in column.most_frequent(2) if _is_decimal(text)]
    return all(abs(float(text)) in sizes[:3] for text in frequent)


def progressive_loss(codes: npt.NDArray[np.int64], labels: Labels) -> float:
    """Mean log loss when each row is predicted by the click rate of the earlier rows with the same code."""
    order = np.argsort(codes, kind="stable")
    sorted_codes, y = codes[order], labels[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_codes[1:] != sorted_codes[:-1]]))
    lengths = np.diff(np.concatenate([starts, [codes.size]]))
    rows_before = np.arange(codes.size) - np.repeat(starts, lengths)
    clicks = np.cumsum(y) - y
    clicks_before = clicks - np.repeat(clicks[starts], lengths)
    rate = float(np.clip(y.mean(), 1e-6, 1 - 1e-6))
    p = (clicks_before + _PSEUDO_COUNT * rate) / (rows_before + _PSEUDO_COUNT)
    return float(-(y * np.log(p) + (1.0 - y) * np.log1p(-p)).mean())


def entropy_of(labels: Labels) -> float:
    """The log loss of the click rate itself."""
    rate = float(np.clip(labels.mean(), 1e-6, 1 - 1e-6))
    return -rate * math.log(rate) - (1 - rate) * math.log1p(-rate)


def _is_decimal(text: str) -> bool:
    return DECIMAL.fullmatch(text) is not None and math.isfinite(float(text))


def _bucket(text: str | None) -> str:
    return bucket_text(float(text)) if text and _is_decimal(text) else text or ""


def _codes(texts: Iterable[str]) -> npt.NDArray[np.int64]:
    table: dict[str, int] = {}
    return np.array([table.setdefault(text, len(table)) for text in texts], np.int64)


def time_form(column: Column) -> str | None:
    """Return the form of TimeRule in which all values are times; None if they are hardly any."""
    values = [value for value in column.values[: 20 * _TRIED_TIMES] if isinstance(value, datetime)]
    if values:
        return "iso"
    present = column.present[:_TRIED_TIMES]
    for form in _forms_of(present[0]):
        if _fits(column.name, form, present) and (not present[0].isdigit() or _is_like_a_time(column)):
            return form
    return None


def _forms_of(text: str) -> Sequence[str]:
    digits = text.partition(".")[0]
    if digits.isascii() and digits.isdigit():
        forms = _FORMS_OF_DIGITS.get(len(digits), ())
        return [form for form in forms if form in UNITS_PER_SECOND] if "." in text else forms
    return _OTHER_FORMS if len(text) >= len("2024-01-01") else ()


def _fits(name: str, form: str, texts: Sequence[str]) -> bool:
    reader = TimeReader(TimeRule(name, form))
    try:
        for text in texts:
            reader.milliseconds(text)
    except InvalidInput:
        return False
    return len({len(text) for text in texts}) == 1 or not texts[0].isdigit()


def _is_like_a_time(column: Column) -> bool:
    """Test whether the name says so, or the values hardly ever go back, since digits may mean anything."""
    if _NAMES_OF_TIMES.search(column.name):
        return True
    steps = np.diff(np.array([float(text) for text in column.present]))
    return column.distinct > 2 and bool((steps >= 0).mean() > _ALL)


def list_of(column: Column) -> Verdict | None:
    """Find what separates the items of the values, if these are made of far fewer items."""
    values = set(column.present)
    for separator in LIST_SEPARATORS:
        lists = [value.split(separator) for value in values if separator in value]
        items = {item for value in values for item in value.split(separator)}
        lengths = {len(one) for one in lists}
        if len(lists) >= 0.2 * len(values) and len(items) < 0.5 * len(values) and len(lengths) > 1:
            return Verdict("list", f"{len(values):,} values are made of {len(items):,} items", separator)
    return None


def label_values(column: Column) -> tuple[list[str], list[str]] | None:
    """Return the texts of clicks and of others, if the column can be the label."""
    values = sorted(set(column.present))
    if not values or len(values) > 2 or None in column.texts:
        return None
    for positive, negative in _SPELLINGS:
        if set(values) <= {positive, negative}:
            return [positive], [negative]
    return None


def is_part_of_a_click(column: Column) -> bool:
    """Test for numbers from 0 to 1 in every row."""
    texts = set(column.texts)
    return all(text is not None and _is_decimal(text) and 0.0 <= float(text) <= 1.0 for text in texts)


def _spellings() -> Iterator[tuple[str, str]]:
    pairs = (
        ("1", "0"),
        ("1", "-1"),
        ("true", "false"),
        ("yes", "no"),
        ("y", "n"),
        ("t", "f"),
        ("click", "view"),
    )
    forms: tuple[Callable[[str], str], ...] = (str.lower, str.capitalize, str.upper)
    for positive, negative in (*pairs, ("click", "no_click"), ("click", "impression"), ("clicked", "shown")):
        yield from dict.fromkeys((form(positive), form(negative)) for form in forms)


_SPELLINGS = tuple(_spellings())
