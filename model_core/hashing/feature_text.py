"""Feature values as the texts of categories, and crosses: a category for every combination of such texts."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from model_core.errors import InvalidInput, Path
from model_core.hashing.contract import HashContract
from model_core.kernels.numerics import log1p

_INTEGER_BITS = 256
_SEPARATOR = "\x1f"
_TO_ESCAPE = re.compile("([\\\\\x1f])")
# Index 0 is zero's, i and -i those of numbers with floor(log2(1 + |v|)) = i - 1.
BUCKET_TEXTS = ("0", *(f"+{i}" for i in range(1025)), *(f"-{i}" for i in range(1024, -1, -1)))


class Scaled(NamedTuple):
    """A feature value with a factor: what `feature` encodes to, times `factor`.

    feature: a text, a number, or None for the feature `name` itself (a bare word of Vowpal Wabbit text).
    """

    feature: str | int | float | None
    factor: float

    def to_json(self) -> dict[str, str | float]:
        """The object that scaled_of reads."""
        times: dict[str, str | float] = {"times": self.factor}
        return times if self.feature is None else {"value": self.feature, **times}


def scaled_of(value: Mapping[str, Any], path: Path) -> Scaled:
    """Read {"value": text or number, "times": number}, or {"times": number}.  Raises InvalidInput."""
    feature, factor = value.get("value"), value.get("times")
    is_known = value.keys() <= {"value", "times"}
    is_feature = type(feature) in (str, int, float) or "value" not in value
    if not is_known or not is_feature or isinstance(factor, bool) or not isinstance(factor, int | float):
        detail = 'an object must be {"value": string or number, "times": number}, or {"times": number}'
        raise InvalidInput(path, detail, "wrong_type")
    return Scaled(feature, factor)


def escaped(text: str) -> str:
    """Put a backslash before each separator and each backslash, so that joined texts stay distinct."""
    return _TO_ESCAPE.sub(r"\\\1", text)


def joined(texts: Iterable[str]) -> str:
    """The category of a cross, of its members' texts."""
    return _SEPARATOR.join(map(escaped, texts))


def bucket_text(value: float) -> str:
    """Sign and floor(log2(1 + |v|)), "0" for zero; exact, since every bound 2**k - 1 is an integer.

    value: finite as float64; an integer counts as the float64 next to it, whatever reads it.
    """
    if value == 0:
        return BUCKET_TEXTS[0]
    index = (int(abs(float(value))) + 1).bit_length()
    return BUCKET_TEXTS[index if value > 0 else -index]


def signed_log1p(value: float) -> float:
    """sign(v) * log1p(|v|)."""
    return float(log1p(float(value)) if value >= 0 else -log1p(-float(value)))


def decimal_text(value: float, path: Path) -> str:
    """The shortest decimal text of a number, `1` and `1.0` alike; integers keep every digit."""
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidInput(path, "a number must be finite", "out_of_range")
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if value.bit_length() > _INTEGER_BITS:
        raise InvalidInput(
            path, f"an integer of more than {_INTEGER_BITS} bits: send it as a string", "out_of_range"
        )
    return str(value)


class Crosses:
    """The crosses of a contract, made from features that were encoded before and so are valid.

    A feature takes part by the text of its category; a number that becomes a value, by its shortest decimal
    text.  A feature that made no category (absent, an empty list, an ignored null) makes no cross.
    """

    def __init__(self, contract: HashContract) -> None:
        self._contract = contract
        self._crosses = [("^".join(names) + "=", names) for names in contract.crosses]
        self._members = frozenset(name for cross in contract.crosses for name in cross)

    def texts(self, items: Iterable[tuple[str, Any]]) -> dict[str, list[str]]:
        """The escaped texts of the features that some cross names."""
        texts: dict[str, list[str]] = {}
        for name, value in items:
            if name in self._members:
                texts.setdefault(name, []).extend(escaped(text) for text in self._texts_of(name, value))
        return texts

    def count(self, texts: Mapping[str, Sequence[str]]) -> int:
        """Count the categories before any is made."""
        return sum(prod(len(texts.get(name, ())) for name in names) for _, names in self._crosses)

    def categories(self, texts: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """`a^b=x<0x1F>y`, in the order of the contract, the last member varying fastest."""
        for prefix, names in self._crosses:
            for combination in product(*(texts.get(name, ()) for name in names)):
                yield prefix + _SEPARATOR.join(combination)

    def _texts_of(self, name: str, value: Any) -> Sequence[str]:
        if isinstance(value, dict):
            value = scaled_of(value, (name,))
        if isinstance(value, Scaled):
            value = "1" if value.feature is None else value.feature
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list):
            return [text for one in value for text in self._texts_of(name, one)]
        if isinstance(value, bool):
            return ("true" if value else "false",)
        if value is None:
            return ("",) if self._contract.missing == "indicator" else ()
        return (bucket_text(value) if self._is_bucket(name) else decimal_text(value, (name,)),)

    def _is_bucket(self, name: str) -> bool:
        contract = self._contract
        return contract.types.get(name) != "category" and contract.transform_of(name) == "bucket"
