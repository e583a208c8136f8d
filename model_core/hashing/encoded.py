"""One encoded example, finished and under construction."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple


class Encoded(NamedTuple):
    """One example's features, the bias not among them.

    hashes: 32-bit unsigned.  values: one for each hash, or None where all are 1.0.
    """

    hashes: list[int]
    values: list[float] | None


class Draft:
    """An example under construction: hashes, and the values that are not 1 with their positions."""

    __slots__ = ("hashes", "positions", "values")

    def __init__(self, hashes: list[int], positions: list[int], values: list[float]) -> None:
        self.hashes = hashes
        self.positions = positions
        self.values = values

    def copy(self) -> "Draft":
        return Draft(self.hashes.copy(), self.positions.copy(), self.values.copy())

    def finish(self) -> Encoded:
        if not self.positions:
            return Encoded(self.hashes, None)
        values = [1.0] * len(self.hashes)
        for position, value in zip(self.positions, self.values, strict=True):
            values[position] = value
        return Encoded(self.hashes, values)


class Context(NamedTuple):
    """Features that several examples share, encoded: their names, and what their crosses are made of."""

    names: AbstractSet[str]
    draft: Draft
    texts: Mapping[str, Sequence[str]]
