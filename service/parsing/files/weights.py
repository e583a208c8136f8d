"""Reads the weights of a linear model of log-odds from a table of names.

It is CSV, or TSV by the file's name, whose first line names its columns:

    name,value,weight,count
    ad,a17,0.31,1200        the category `ad=a17`, in 1,200 examples
    age,,0.02,5000          the number `age`, which the weight multiplies; count: the sum of its squares
    bias,,-3.2,             in every example; also `intercept` or `(Intercept)`

`value` and `count` may be left out, as columns or in a line.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from mmh3 import mmh3_32_uintdigest as murmur

from model_core.errors import InvalidInput
from model_core.hashing.contract import check_name
from model_core.hashing.feature_text import decimal_text
from model_core.kernels.number_text import DECIMAL
from service.errors import CommandFailure
from service.parsing.files.records import Records
from service.parsing.files.source import TextSource

MAX_WEIGHT, MAX_COUNT = 1e6, 1e15
MAX_TYPES = 1000
MAX_NAMES = 10_000
BIAS_NAMES = frozenset({"bias", "intercept", "(intercept)"})
COLUMNS = ("name", "value", "weight", "count")

Code = Literal[
    "wrong_columns",  # of the first line of a table
    "malformed_line",  # neither a record of the table nor a line of a dump
    "not_utf8",
    "bad_name",
    "bad_weight",
    "bad_count",
    "repeated_name",
    "not_a_dump",  # the header is not Vowpal Wabbit's
    "unsupported_option",  # the dump is not of a linear model of log-odds, or its weights are not in it
    "only_hashes",  # a readable model, without names
    "not_a_cross",  # an interaction of words without a value
    "no_weights",
]


class BadWeights(CommandFailure):
    """A file of weights cannot be imported; nothing of it is."""

    def __init__(self, code: Code, detail: str, file: str, line: int | None = None) -> None:
        where = file if line is None else f"{file}, line {line}"
        super().__init__(f"{where}: {detail} [{code}]")
        self.code = code
        self.line = line


class Problem(Exception):
    """What is wrong with a line, for its reader to place."""

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class WeightLine(NamedTuple):
    """A weight: of the feature whose `name`, or `name=category`, is hashed; of the bias if `name` is "".

    cross: the names that a cross is made of. seen, n: the count and the sum of squared gradients; NaN where
    the file does not say.
    """

    number: int
    name: str
    category: str | None
    weight: float
    seen: float = math.nan
    n: float = math.nan
    cross: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.name if self.category is None else f"{self.name}={self.category}"


class WeightsFile:
    """Lines of weights, and what the file says of all of them.

    examples: how many the weights were learned from; 0 if the file does not say.
    """

    def __init__(self, source: TextSource) -> None:
        self.name = source.name
        self.examples = 0
        self._source = source

    def lines(self) -> Iterator[WeightLine]:
        """Yield the weights. Raises BadWeights, UnreadableFile."""
        raise NotImplementedError

    def failure(self, code: Code, detail: str, line: int | None = None) -> BadWeights:
        return BadWeights(code, detail, self.name, line)


class TableOfWeights(WeightsFile):
    """A table of weights."""

    def __init__(self, source: TextSource, name_bytes: int) -> None:
        super().__init__(source)
        self._name_bytes = name_bytes

    def lines(self) -> Iterator[WeightLine]:
        is_tsv = ".tsv" in Path(self.name).suffixes
        records = iter(Records(self._source.lines(), quoted=not is_tsv))
        header = next(records, None)
        columns = [] if header is None else self._columns(header.values)
        for record in records:
            if isinstance(record.values, str):
                raise self.failure("malformed_line", record.values, record.line)
            if not record.is_utf8:
                raise self.failure("not_utf8", "not UTF-8", record.line)
            if len(record.values) != len(columns):
                detail = f"{len(record.values)} values for {len(columns)} columns"
                raise self.failure("malformed_line", detail, record.line)
            try:
                yield self._line(record.line, dict(zip(columns, record.values, strict=True)))
            except Problem as problem:
                raise self.failure(problem.code, problem.detail, record.line) from None

    def _columns(self, values: list[str] | str) -> list[str]:
        found = [] if isinstance(values, str) else [value.strip() for value in values]
        if not {"name", "weight"} <= set(found) <= set(COLUMNS) or len(set(found)) < len(found):
            detail = (
                f"the first line must name the columns, of {', '.join(COLUMNS)}: name and weight are needed;"
                f" not {','.join(found)[:100]!r}"
            )
            raise self.failure("wrong_columns", detail, 1)
        return found

    def _line(self, number: int, values: dict[str, str]) -> WeightLine:
        name, value = values["name"], values.get("value", "")
        weight, count = parsed_weight(values["weight"]), _count(values.get("count", ""))
        if not value and name.lower() in BIAS_NAMES:
            return WeightLine(number, "", None, weight, count)
        if not value:
            name, equals, value = name.partition("=")
            return WeightLine(
                number, checked_feature_name(name, self._name_bytes), value if equals else None, weight, count
            )
        return WeightLine(number, checked_feature_name(name, self._name_bytes), value, weight, count)


def checked_feature_name(name: str, name_bytes: int) -> str:
    """Raises Problem."""
    try:
        check_name(name, (), name_bytes)
    except InvalidInput as wrong:
        raise Problem("bad_name", f"{name[:60]!r}: {wrong.detail}") from None
    return name


def parsed_weight(text: str, what: str = "weight") -> float:
    """Raises Problem."""
    weight = float(text) if DECIMAL.fullmatch(text.strip(" ")) else math.nan
    if not abs(weight) <= MAX_WEIGHT:
        detail = f"the {what} {text[:60]!r} is not a number from -{MAX_WEIGHT:g} to {MAX_WEIGHT:g}"
        raise Problem("bad_weight", detail)
    return weight


def _count(text: str) -> float:
    if not text:
        return math.nan
    count = float(text) if DECIMAL.fullmatch(text.strip(" ")) else -1.0
    if not 0.0 <= count <= MAX_COUNT:
        raise Problem("bad_count", f"the count {text[:60]!r} is not a number from 0 to {MAX_COUNT:g}")
    return count


@dataclass
class Weights:
    """All weights of a file but that of the bias, in its order.

    hashes uint32[r], weights, counts, n float64[r], lines int64[r]: as in WeightLine (counts: `seen`).
    bias: its line, if there is one.
    names: of the features with the most evidence, at most MAX_NAMES, and how much it is.
    categories: names all of whose values are numbers, written as JSON writes them: their types are to say so.
    crosses: the names that crosses are made of.
    """

    hashes: npt.NDArray[np.uint32]
    weights: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]
    n: npt.NDArray[np.float64]
    lines: npt.NDArray[np.int64]
    bias: WeightLine | None
    names: dict[str, float]
    categories: list[str]
    crosses: list[tuple[str, ...]]


@dataclass
class _Columns:
    hashes: array[int] = field(default_factory=lambda: array("I"))
    weights: array[float] = field(default_factory=lambda: array("d"))
    counts: array[float] = field(default_factory=lambda: array("d"))
    n: array[float] = field(default_factory=lambda: array("d"))
    lines: array[int] = field(default_factory=lambda: array("q"))
    names: array[int] = field(default_factory=lambda: array("q"))
    bias: WeightLine | None = None


def read_weights(file: WeightsFile, seed: int) -> Weights:
    """Read all weights, hashed with this seed; a line takes 44 bytes. Raises BadWeights, UnreadableFile."""
    columns, types = _Columns(), _Types()
    crosses: dict[tuple[str, ...], None] = {}
    most: list[tuple[float, str]] = []
    for line in file.lines():
        if not line.name:
            if columns.bias is not None:
                detail = f"the bias has a weight already, in line {columns.bias.number}"
                raise file.failure("repeated_name", detail, line.number)
            columns.bias = line
            continue
        text = line.text
        columns.hashes.append(murmur(text.encode(), seed))
        columns.weights.append(line.weight)
        columns.counts.append(line.seen)
        columns.n.append(line.n)
        columns.lines.append(line.number)
        columns.names.append(hash(text))
        evidence = line.n if math.isnan(line.seen) else line.seen
        (heappush if len(most) < MAX_NAMES else heappushpop)(most, (max(0.0, evidence), text))
        if line.cross:
            crosses[line.cross] = None
        else:
            types.add(line)
    if not columns.hashes and columns.bias is None:
        raise file.failure("no_weights", "there are no weights in it")
    _refuse_repeated(file, np.frombuffer(columns.names, np.int64), columns.lines)
    return Weights(
        np.frombuffer(columns.hashes, np.uint32),
        np.frombuffer(columns.weights, np.float64),
        np.frombuffer(columns.counts, np.float64),
        np.frombuffer(columns.n, np.float64),
        np.frombuffer(columns.lines, np.int64),
        columns.bias,
        {name: evidence for evidence, name in most},
        types.categories(),
        list(crosses),
    )


def _refuse_repeated(file: WeightsFile, names: npt.NDArray[np.int64], lines: Sequence[int]) -> None:
    """Raise BadWeights for the first of two names that are the same, by 64 bits of a hash."""
    order = np.argsort(names, kind="stable")
    same = np.flatnonzero(names[order][1:] == names[order][:-1])
    if same.size:
        first, second = order[same[0]], order[same[0] + 1]
        detail = f"the feature of line {lines[first]} again: each has one weight"
        raise file.failure("repeated_name", detail, lines[second])


class _Types:
    """Names, and whether all their values are numbers as JSON writes them."""

    def __init__(self) -> None:
        self._are_numbers: dict[str, bool] = {}

    def add(self, line: WeightLine) -> None:
        known = self._are_numbers.get(line.name)
        if known is not False and (known or len(self._are_numbers) < MAX_TYPES):
            self._are_numbers[line.name] = line.category is not None and _is_json_number(line.category)

    def categories(self) -> list[str]:
        return sorted(name for name, are_numbers in self._are_numbers.items() if are_numbers)


def _is_json_number(text: str) -> bool:
    if not DECIMAL.fullmatch(text):
        return False
    value = int(text) if text.lstrip("-").isdigit() and len(text) < 20 else float(text)
    return math.isfinite(value) and decimal_text(value, ()) == text
