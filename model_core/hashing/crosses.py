"""Crosses: one category for every combination of the values of several features."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from model_core.hashing.contract import HashContract
from model_core.hashing.feature_text import Scaled, bucket_text, decimal_text, escaped

_SEPARATOR = "\x1f"


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
        """How many categories there are to be, before any is made."""
        return sum(prod(len(texts.get(name, ())) for name in names) for _, names in self._crosses)

    def categories(self, texts: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """`a^b=x<0x1F>y`, in the order of the contract, the last member varying fastest."""
        for prefix, names in self._crosses:
            for combination in product(*(texts.get(name, ()) for name in names)):
                yield prefix + _SEPARATOR.join(combination)

    def _texts_of(self, name: str, value: Any) -> Sequence[str]:
        if isinstance(value, Scaled):
            value = "1" if value.feature is None else value.feature
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list):
            return value
        if isinstance(value, bool):
            return ("true" if value else "false",)
        if value is None:
            return ("",) if self._contract.missing == "indicator" else ()
        return (bucket_text(value) if self._is_bucket(name) else decimal_text(value, (name,)),)

    def _is_bucket(self, name: str) -> bool:
        contract = self._contract
        return contract.types.get(name) != "category" and contract.transform_of(name) == "bucket"
