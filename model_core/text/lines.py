"""One line of text to names and values, for contracts that are not plain and for conversion to JSON.

The grammars are those of `grammars`; tests compare the two.
"""

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from model_core.hashing.columns import is_plain
from model_core.hashing.contract import HashContract
from model_core.hashing.encoder import Features
from model_core.hashing.feature_text import Scaled
from model_core.kernels.number_text import DECIMAL, INTEGER, plain_number
from model_core.text import problems
from model_core.text.problems import LineProblem, TextOptions

_WORD = re.compile("[^ \t]+")
_C0 = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
_C1 = re.compile("[\x80-\x9f]")
_QUERY = re.compile("qid:[0-9]+")
_MAX_INTEGER_CHARACTERS = 100


class TextRow(NamedTuple):
    """label: from 0 to 1; pairs of name and value as FeatureEncoder.encode_pairs takes them."""

    label: float
    weight: float
    pairs: list[tuple[str, Any]]


def read_vw_line(line: bytes, options: TextOptions) -> TextRow | None:
    """Read a line of Vowpal Wabbit text without its newline; None for a blank one.  Raises LineProblem."""
    text = _decoded(line)
    _refuse_control_characters(text)
    if not _WORD.search(text):
        return None
    header, bar, rest = text.partition("|")
    if not bar:
        raise LineProblem(problems.NO_BAR)
    label, weight = _read_header(header, options)
    pairs: list[tuple[str, Any]] = []
    for namespace in rest.split("|"):
        prefix, factor, words = _read_namespace(namespace, options)
        pairs.extend(_read_word(word, prefix, factor, options) for word in words)
    return TextRow(label, weight, pairs)


def read_libsvm_line(line: bytes, options: TextOptions) -> TextRow | None:
    """Read a libsvm line without its newline; None for a blank one or a comment.  Raises LineProblem."""
    text = _decoded(line).partition("#")[0]
    _refuse_control_characters(text)
    words = _WORD.findall(text)
    if not words:
        return None
    label = read_label(words[0], options)
    first = 1
    while first < len(words) and _QUERY.fullmatch(words[first]):
        first += 1
    return TextRow(label, 1.0, [_read_index(word, options) for word in words[first:]])


def features_of(pairs: Iterable[tuple[str, Any]], contract: HashContract) -> Features:
    """Build the JSON that encodes to the same features in their order: an object if no name is repeated."""
    plain = [(name, _as_json(value, contract)) for name, value in pairs]
    features = dict(plain)
    return features if len(features) == len(plain) else [list(pair) for pair in plain]


def _as_json(value: Any, contract: HashContract) -> Any:
    if not isinstance(value, Scaled):
        return value
    if isinstance(value.feature, str) and value.factor == 1.0:
        return value.feature
    if value.feature is None and contract.numeric == "raw" and is_plain(contract):
        return value.factor  # the same number, which the JSON kernel reads
    return value.to_json()


def _decoded(line: bytes) -> str:
    try:
        text = line.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        raise LineProblem(problems.NOT_UTF8) from None
    found = _C1.search(text)
    if found:
        raise LineProblem(problems.CONTROL_CHARACTER, found[0])
    return text


def _refuse_control_characters(text: str) -> None:
    found = _C0.search(text)
    if found:
        raise LineProblem(problems.CONTROL_CHARACTER, found[0])


def _read_header(header: str, options: TextOptions) -> tuple[float, float]:
    words = _WORD.findall(header)
    if words and (words[-1].startswith("'") or header[-1] not in " \t"):
        words.pop()
    if not words:
        raise LineProblem(problems.NO_LABEL)
    if len(words) > 2:
        raise LineProblem(problems.EXTRA_WORD, words[2])
    label = read_label(words[0], options)
    return label, read_weight(words[1], options) if len(words) == 2 else 1.0


def read_label(word: str, options: TextOptions) -> float:
    """Read a label, from 0 to 1: an int where it is one of them.  Raises LineProblem."""
    value = float(word) if DECIMAL.fullmatch(word) else math.nan
    if options.labels == "minus_plus" and abs(value) == 1.0:
        return int(value == 1.0)
    if options.labels == "minus_plus" or not 0.0 <= value <= 1.0:
        raise LineProblem(problems.BAD_LABEL, word)
    return plain_number(value)


def read_weight(word: str, options: TextOptions) -> float:
    """Read an importance weight.  Raises LineProblem."""
    weight = float(word) if DECIMAL.fullmatch(word) else -1.0
    if not 0.0 <= weight <= options.limits.weight:
        raise LineProblem(problems.BAD_WEIGHT, word)
    return weight


def _read_namespace(namespace: str, options: TextOptions) -> tuple[str, float, list[str]]:
    """Return the prefix of its names, its factor and its words."""
    words = _WORD.findall(namespace)
    if not words or namespace[0] in " \t":
        return "", 1.0, words
    name, colon, number = words[0].partition(":")
    factor = read_number(number) if colon else 1.0
    if abs(factor) > options.limits.value_magnitude:
        raise LineProblem(problems.OUT_OF_BOUNDS, number)
    if not name or options.namespaces == "ignore":
        return "", factor, words[1:]
    if "=" in name:
        raise LineProblem(problems.EQUALS_IN_NAMESPACE, name)
    if len(name.encode()) >= options.limits.name_bytes:
        raise LineProblem(problems.LONG_NAME, name)
    return f"{name}^", factor, words[1:]


def _read_word(word: str, prefix: str, factor: float, options: TextOptions) -> tuple[str, Any]:
    head, colon, number = word.partition(":")
    bare_name, equals, category = head.partition("=")
    if not bare_name:
        raise LineProblem(problems.NO_NAME, word)
    name = prefix + bare_name
    if len(name.encode()) > options.limits.name_bytes:
        raise LineProblem(problems.LONG_NAME, word)
    if not colon:
        feature: str | float | None = category if equals else None
    elif equals:
        feature, value = category, read_number(number)
        if abs(value) > options.limits.value_magnitude:
            raise LineProblem(problems.OUT_OF_BOUNDS, word)
        factor *= value
    else:
        feature = read_number(number)
    return name, (feature if factor == 1.0 and feature is not None else Scaled(feature, factor))


def _read_index(word: str, options: TextOptions) -> tuple[str, float]:
    index, colon, number = word.partition(":")
    if not (index.isascii() and index.isdigit()):
        raise LineProblem(problems.BAD_INDEX, word)
    if not colon:
        raise LineProblem(problems.NO_VALUE, word)
    name = index.lstrip("0") or "0"
    if len(name) > options.limits.name_bytes:
        raise LineProblem(problems.LONG_NAME, word)
    return name, read_number(number)


def read_number(word: str) -> float:
    """Read a number, as an int if it is written as one: a category keeps all digits.  Raises LineProblem."""
    if len(word) <= _MAX_INTEGER_CHARACTERS and INTEGER.fullmatch(word):
        return int(word)
    if not DECIMAL.fullmatch(word):
        raise LineProblem(problems.NOT_A_NUMBER, word)
    return float(word)
