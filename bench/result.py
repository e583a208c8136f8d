"""What a benchmark hands back: figures of ours and of the reference, round by round."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple, TypeVar

Ours = TypeVar("Ours")
Theirs = TypeVar("Theirs")


class Options(NamedTuple):
    """`rounds` alternating rounds of about `seconds` each; files that a benchmark needs go to `directory`."""

    rounds: int
    seconds: float
    directory: Path


class Target(NamedTuple):
    """A bound on the ratio of ours to the reference, or on ours alone where there is no reference."""

    relation: Literal[">=", "<="]
    bound: float

    def met(self, value: float) -> bool:
        return value >= self.bound if self.relation == ">=" else value <= self.bound


class Spread(NamedTuple):
    """Median, smallest and largest value of all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: tuple[float, ...]) -> "Spread":
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Result:
    """One row of the table.

    `ours[i]` and `reference[i]` were measured one after the other in round i, so their ratio is taken
    round by round and the machine's slow moments hit both. Without a reference the row only reports.
    """

    name: str
    what: str
    unit: str
    ours: tuple[float, ...]
    reference: tuple[float, ...] = ()
    against: str = ""
    target: Target | None = None
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> Spread | None:
        if not self.reference:
            return None
        return Spread.of(tuple(a / b for a, b in zip(self.ours, self.reference, strict=True)))

    @property
    def met(self) -> bool | None:
        """None where nothing was promised."""
        if self.target is None:
            return None
        return self.target.met((self.ratio or Spread.of(self.ours)).median)


class Unavailable(Exception):
    """The benchmark cannot run here, for instance because its reference is not installed."""


def require(package: str) -> None:
    """Raises Unavailable where the package of a reference is not installed."""
    if find_spec(package) is None:
        raise Unavailable(f"{package} is not installed; it comes with the extra `bench`")


def alternate(
    rounds: int, ours: Callable[[], Ours], reference: Callable[[], Theirs]
) -> tuple[tuple[Ours, ...], tuple[Theirs, ...]]:
    """Measure both in every round, the other one first each time."""
    a: list[Ours] = []
    b: list[Theirs] = []
    for round_number in range(rounds):
        if round_number % 2:
            b.append(reference())
            a.append(ours())
        else:
            a.append(ours())
            b.append(reference())
    return tuple(a), tuple(b)
