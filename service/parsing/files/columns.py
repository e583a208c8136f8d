"""Makes examples of the values in named columns, whatever kind of file they come from.

A text is a category as it stands, so that `7` is the category `name=7`. In a column that the contract
declares a number, it is a number; in one that it declares a category, `7.0` is the category `name=7`, as in
every other format. Values that are no texts (of Parquet and Arrow) are what they are in JSON.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from model_core.errors import InvalidInput
from model_core.hashing.contract import HashContract, check_name
from model_core.hashing.feature_text import decimal_text
from model_core.json.fields import MAX_ID_LENGTH
from model_core.text.lines import read_label, read_number, read_weight
from model_core.text.problems import LineError, LineProblem, TextOptions, explain
from service.parsing.files.rows import ReadOptions, Row
from service.parsing.files.source import UnreadableFile

NULL = "\\N"
"""The mark that Hive, MySQL and PostgreSQL write for a missing value."""

_RANGE = re.compile(r"(.*?)(\d+)-(.*?)(\d+)")
_MAX_COLUMNS = 100_000
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,69})(?:\.[0-9]+)?(?:[eE][+-][0-9]{1,2})?")
_BOOLEANS = {word: word.lower() for word in ("true", "True", "TRUE", "false", "False", "FALSE")}

log = logging.getLogger(__name__)


def parse_columns(text: str) -> tuple[str, ...]:
    """Split names separated by commas; `I1-I13` stands for I1, I2, ... I13. Raises InvalidInput."""
    names = expanded(text.split(","))
    for name in names:
        check_name(name, ("columns", name))
    if (repeated := _repeated(names)) is not None:
        raise InvalidInput(("columns", repeated), "is there twice: each column needs a name of its own")
    return names


def expanded(words: Sequence[str]) -> tuple[str, ...]:
    """Return the names, with those that a range stands for in its place."""
    names: list[str] = []
    for word in words:
        match = _RANGE.fullmatch(word)
        if match and match[1] == match[3] and int(match[2]) <= int(match[4]) <= _MAX_COLUMNS:
            names.extend(f"{match[1]}{i}" for i in range(int(match[2]), int(match[4]) + 1))
        else:
            names.append(word)
    return tuple(names)


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the hint for a name that is not among the others, or nothing."""
    found = difflib.get_close_matches(name, names, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


class RowBuilder:
    """Builds the rows of one file, from the values of its columns in their order.

    Raises UnreadableFile if the columns cannot be used.
    """

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        contract: HashContract,
        options: ReadOptions,
        lines: TextOptions,
    ) -> None:
        self.width = len(names)
        self._options = options
        self._lines = lines
        roles = _roles(options)
        _check_columns(source, names, roles, options)
        positions = {name: i for i, name in enumerate(names)}
        self._label = positions[options.label_column]
        self._weight = _position(positions, options.weight_column)
        self._sample_rate = _position(positions, options.sample_rate_column)
        self._event_id = _position(positions, options.event_id_column)
        self._time = None if options.time is None else positions[options.time.column]
        self._times = None if options.time is None else _time_reader(source, options, names, roles)
        self._names = [None if name in roles else name for name in names]
        self._types = contract.types
        self._converters = dict(self._conversions(options))
        self._missing = frozenset({"", NULL}) | options.nulls
        self._keep_missing = contract.missing == "indicator"
        parts = options.time.parts if options.time is not None and self._keep_missing else ()
        self._no_parts: dict[str, str | float | None] = dict.fromkeys(parts)

    @property
    def used(self) -> list[bool]:
        """True for each column whose values are needed."""
        others = {self._label, self._weight, self._sample_rate, self._event_id, self._time}
        return [bool(name) or i in others for i, name in enumerate(self._names)]

    @property
    def feature_columns(self) -> dict[int, str]:
        """The names of the columns that are features, by their positions."""
        return {i: name for i, name in enumerate(self._names) if name}

    def row(self, number: int, values: Sequence[Any], lines: int = 1) -> Row | LineError:
        """Return the row that begins in line `number`, or what is wrong with it."""
        row = self.without_columns(number, values, lines)
        if isinstance(row, LineError):
            return row
        try:
            return row._replace(features={**self._features(values), **dict(row.features)})
        except InvalidInput as invalid:
            return LineError(number, str(invalid), lines)

    def without_columns(self, number: int, values: Sequence[Any], lines: int = 1) -> Row | LineError:
        """Return the same row, but of its features only those that are parts of its time."""
        try:
            label = self._read_label(values[self._label])
            weight = 1.0 if self._weight is None else read_weight(_text(values[self._weight]), self._lines)
            if self._sample_rate is not None:
                weight = self._sampled(values[self._sample_rate], weight)
            event_id = None if self._event_id is None else self._read_id(values[self._event_id])
            time, parts = self._read_time(values)
            return Row(number, parts, label, weight, event_id, time)
        except LineProblem as problem:
            return LineError(number, explain(problem.code, problem.word, self._lines), lines)
        except InvalidInput as invalid:
            return LineError(number, str(invalid), lines)

    def feature(self, name: str, value: Any) -> Any:
        """Return one value of a column as it is in JSON; None if it is missing. Raises InvalidInput."""
        if value is None or (type(value) is str and value in self._missing):
            return None
        convert = self._converters.get(name)
        return value if convert is None else convert(value)

    def _read_label(self, value: Any) -> float:
        """Return a number from 0 to 1, also for true and false, as pandas or as JSON writes them."""
        text = _text(value)
        positive, negative = self._options.positive, self._options.negative
        if positive is None and negative is None:
            if text in _BOOLEANS:
                return int(_BOOLEANS[text] == "true")
            return read_label(text, self._lines)
        if positive is not None and text in positive:
            return 1
        if negative is not None and text in negative:
            return 0
        if positive is not None and negative is not None:
            known = ", ".join(sorted(map(repr, positive | negative)))
            raise InvalidInput((self._options.label_column,), f"the label {text[:60]!r} is none of {known}")
        return int(positive is None)

    def _sampled(self, value: Any, weight: float) -> float:
        """Return the weight times the inverse of the sample rate."""
        rate = float(_number(str(self._options.sample_rate_column), _text(value), self._lines))
        bound = self._lines.limits.weight
        if not 1 / bound <= rate <= 1:
            path = (str(self._options.sample_rate_column),)
            raise InvalidInput(path, f"the sample rate {rate:g} must be above {1 / bound:g} and at most 1")
        return weight / rate

    def _read_id(self, value: Any) -> str | None:
        text = _text(value)
        if text in self._missing:
            return None
        if len(text) > MAX_ID_LENGTH:
            path = (str(self._options.event_id_column),)
            raise InvalidInput(path, f"an event id has at most {MAX_ID_LENGTH} characters")
        return text

    def _read_time(self, values: Sequence[Any]) -> tuple[int | None, Mapping[str, str | float | None]]:
        """Return milliseconds since 1970, None if the time is missing, and the features of its parts."""
        if self._time is None or self._times is None:
            return None, {}
        value = values[self._time]
        if value is None or (isinstance(value, str) and value in self._missing):
            return None, self._no_parts
        milliseconds = self._times.milliseconds(value)
        return milliseconds, self._times.parts(milliseconds)

    def _features(self, values: Sequence[Any]) -> dict[str, Any]:
        missing = self._missing
        features: dict[str, Any] = {
            name: value
            for name, value in zip(self._names, values, strict=True)
            if name and value is not None and (type(value) is not str or value not in missing)
        }
        for name, convert in self._converters.items():
            if name in features and (converted := convert(features[name])) is not None:
                features[name] = converted
            else:
                features.pop(name, None)
        if self._keep_missing:
            features.update({name: None for name in self._names if name and name not in features})
        return features

    def _conversions(self, options: ReadOptions) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        """Yield the columns whose values are not taken as they stand, and what converts them."""
        for name in filter(None, self._names):
            kind = self._types.get(name)
            if name in options.lists:
                yield name, partial(self._items, name, options.lists[name])
            elif kind is not None:
                yield name, partial(self._item, name, kind)
            elif name in options.json_columns:
                yield name, _json_value

    def _items(self, name: str, separator: str, value: Any) -> list[Any] | None:
        """Split the text of a list; None if it has no item."""
        items = value if isinstance(value, list) else _text(value).split(separator)
        found = [item for item in items if not isinstance(item, str) or item not in self._missing]
        if (kind := self._types.get(name)) is not None:
            found = [self._item(name, kind, item) for item in found]
        return found or None

    def _item(self, name: str, kind: str, item: Any) -> Any:
        if not isinstance(item, str):
            return item
        return _category(item) if kind == "category" else _number(name, item, self._lines)


def _position(positions: Mapping[str, int], name: str | None) -> int | None:
    return None if name is None else positions[name]


def _text(value: Any) -> str:
    """Write a value as a table of text has it."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return decimal_text(value, ()) if isinstance(value, int | float) else str(value)


def _number(name: str, text: str, options: TextOptions) -> float:
    try:
        return read_number(text)
    except LineProblem as problem:
        raise InvalidInput((name,), explain(problem.code, problem.word, options)) from None


def _json_value(value: Any) -> Any:
    """Return the number that JSON would write like this, or else the text."""
    return read_number(value) if isinstance(value, str) and _JSON_NUMBER.fullmatch(value) else value


def _category(text: str) -> str:
    """Return the category of a value in a declared column: that of a number or a boolean is as in JSON.

    A number with leading zeros, a plus or an exponent without a sign (hashes such as 12e34567 look like that)
    is text as it stands.
    """
    if _JSON_NUMBER.fullmatch(text):
        return decimal_text(read_number(text), ())
    return _BOOLEANS.get(text, text)


def mentioned_columns(options: ReadOptions) -> dict[str, str]:
    """The columns that there have to be, and what names each: a flag, or the field of a schema."""
    every = {**dict(sorted(_roles(options).items())), **options.mentioned}
    return {name: place for name, place in every.items() if name not in options.optional}


def missing_column(source: str, name: str, names: Sequence[str], place: str) -> UnreadableFile:
    """The error for a column that is not among those of the file."""
    return UnreadableFile(
        f"{source}: no column {name!r} among {', '.join(names)}{nearest(name, names)}: give that of the file"
        f" with {place}"
    )


def _roles(options: ReadOptions) -> dict[str, str]:
    """The columns that are no features, and what names each: a flag, or the field of a schema."""
    roles = dict.fromkeys(options.ignored_columns, "--ignored-columns (`drop` of a schema)")
    given = {
        "--label-column (`label` of a schema)": options.label_column,
        "--weight-column (`weight` of a schema)": options.weight_column,
        "`sample_rate` of the schema": options.sample_rate_column,
        "`event_id` of the schema": options.event_id_column,
        "`time` of the schema": None if options.time is None else options.time.column,
    }
    return roles | {name: place for place, name in given.items() if name is not None}


def _time_reader(source: str, options: ReadOptions, names: Sequence[str], roles: Mapping[str, str]) -> Any:
    from service.parsing.files.times import TimeReader

    assert options.time is not None
    for part in options.time.parts:
        if part in names and part not in roles:
            raise UnreadableFile(
                f"{source}: the part {part!r} of the time would be a feature beside the column of this name:"
                " drop one of them in the schema"
            )
    return TimeReader(options.time)


def _check_columns(source: str, names: Sequence[str], roles: Mapping[str, str], options: ReadOptions) -> None:
    """Raises UnreadableFile."""
    named = [name for name in names if name]
    if (repeated := _repeated(named)) is not None:
        raise UnreadableFile(
            f"{source}: two columns are called {repeated!r}: rename one, or give the names with --columns if"
            " the first line is no header"
        )
    for name, place in mentioned_columns(options).items():
        if name not in names:
            raise missing_column(source, name, named, place)
    for name in named:
        if name not in roles:
            try:
                check_name(name, ("columns", name))
            except InvalidInput as invalid:
                raise UnreadableFile(f"{source}: {invalid}") from None
    nameless = [str(i) for i, name in enumerate(names, 1) if not name]
    if nameless:
        log.warning(
            "%s: column %s has no name in the first line and is left out", source, ", ".join(nameless)
        )


def _repeated(names: Sequence[str]) -> str | None:
    """The first name that was there before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
