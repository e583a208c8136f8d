"""Simulated comparisons of two models: false alarms of equal ones, and examples until a difference is called.

Both models know the true log-odds of each impression but for errors of their own.  Of equal models the errors
have one distribution; otherwise the champion's are larger, by as much as its log loss is to be higher.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lab.experiments.markdown import markdown_table
from model_core.evaluation.comparison import LARGEST_DIFFERENCE
from model_core.evaluation.confidence_sequence import CONFIDENCE, ENOUGH, LAMBDAS, WEIGHTS
from model_core.evaluation.intervals import STANDARD_ERRORS

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Generator = np.random.Generator
Found = TypeVar("Found")

PAIRS, QUICK_PAIRS = 1_000, 40
EXAMPLES, QUICK_EXAMPLES = 1_000_000, 100_000
PATIENCE = 8
"""A difference is awaited for so many times the examples."""
COMMITS = (100, 1_000)
"""Examples of the smallest and of the largest commit."""
SPREAD = 0.9
"""Standard deviation of the true log-odds."""
DEGREES_OF_FREEDOM = 5
"""The errors have Student's distribution."""
SHARED_FOR = 10_000
"""After so many impressions the errors that impressions share are drawn again."""
FIRST_CLICKS = 50
"""The approximate intervals begin with this many clicks."""
BEST_AFTER = 100_000
"""For how many examples the asymptotic sequence is the narrowest."""
SEED = 1
_PART = 2**16


@dataclass(frozen=True)
class World:
    """rate: the share of clicks.  error: standard deviation of the errors, in logits; with a gap, the
    challenger's.  gap: by which share of the challenger's log loss the champion's is higher.

    sampled: the share of non-clicks that is logged, with the inverse as weight.
    ads: if not 0, the impressions of an ad share their errors.
    """

    rate: float
    error: float = 0.3
    gap: float = 0.0
    sampled: float = 1.0
    ads: int = 0


EQUAL: Mapping[str, World] = {
    "clicks: 0.2 %": World(0.002),
    "clicks: 2 %": World(0.02),
    "clicks: 20 %": World(0.2),
    "clicks: 2 %, errors of 1.0": World(0.02, error=1.0),
    "clicks: 2 %, a twentieth of the others logged": World(0.02, sampled=0.05),
    "clicks: 2 %, errors shared by an ad's impressions": World(0.02, ads=2_000),
}
UNEQUAL = (
    *(World(rate, error, 0.01) for rate in (0.002, 0.02, 0.2) for error in (0.2, 0.5)),
    *(World(0.02, 0.2, gap) for gap in (0.005, 0.02, 0.05)),
)


class Impressions(NamedTuple):
    """What all comparisons of a world have in common.

    clicks uint32[r]: the probability of a click, times 2^31.
    of_click, of_other, expected float32[r]: the champion's log loss less the challenger's, for a click, for a
        non-click, and as expected; by weight, clipped, and divided by LARGEST_DIFFERENCE.
    errors int64[r]: which impressions share their errors; empty if none do.
    """

    clicks: npt.NDArray[np.uint32]
    of_click: Singles
    of_other: Singles
    expected: Singles
    errors: npt.NDArray[np.int64]


class Looks(NamedTuple):
    """A comparison after each of some commits: int64[k] examples, and float64[k] each, the sums of
    differences, of their squares, and of the expected differences given the errors.
    """

    examples: npt.NDArray[np.int64]
    totals: Floats
    squares: Floats
    expected: Floats


@dataclass(frozen=True)
class FalseAlarms:
    """Which share of the comparisons of equal models ever called them different, by three intervals; and of
    which the confidence sequence ever missed what was to be expected.
    """

    world: str
    called: float
    missed: float
    asymptotic: float
    plain: float


@dataclass(frozen=True)
class Power:
    """median, most: examples until half, and until nine tenths, of the comparisons called the challenger
    better; None if they did not within those of the experiment.  wrong: the share that called it worse.
    """

    rate: float
    error: float
    gap: float
    median: int | None
    most: int | None
    wrong: float


@dataclass(frozen=True)
class Findings:
    pairs: int
    examples: int
    alarms: Sequence[FalseAlarms]
    powers: Sequence[Power]


def run(*, quick: bool = False) -> Findings:
    pairs, examples = (QUICK_PAIRS, QUICK_EXAMPLES) if quick else (PAIRS, EXAMPLES)
    alarms = [false_alarms(name, world, pairs, examples) for name, world in EQUAL.items()]
    return Findings(pairs, examples, alarms, [power(world, pairs, examples) for world in UNEQUAL])


def false_alarms(name: str, world: World, pairs: int, examples: int) -> FalseAlarms:
    """Compare two equal models in so many logs, and look after each commit."""
    impressions = impressions_of(world, examples, np.random.default_rng(SEED))

    def alarms(pair: int) -> tuple[bool, bool, bool, bool]:
        called = missed = asymptotic = plain = False
        for looks in comparison(impressions, pair, swapped=True):
            late = looks.examples * world.rate >= FIRST_CLICKS
            called = called or bool(is_enough(looks).any())
            missed = missed or bool(is_enough(looks, looks.expected).any())
            asymptotic = asymptotic or bool((_asymptotic(looks) & late).any())
            plain = plain or bool((_plain(looks) & late).any())
        return called, missed, asymptotic, plain

    return FalseAlarms(name, *np.mean(_parallel(alarms, pairs), axis=0).tolist())


def power(world: World, pairs: int, examples: int) -> Power:
    """Wait until the challenger is called better, which it is, or worse."""
    impressions = impressions_of(world, examples, np.random.default_rng(SEED))

    def until_called(pair: int) -> tuple[float, bool]:
        for looks in comparison(impressions, pair, PATIENCE * examples):
            called = is_enough(looks)
            if called.any():
                first = int(np.argmax(called))
                return float(looks.examples[first]), bool(looks.totals[first] < 0.0)
        return np.inf, False

    examples_until, wrong = (np.array(column) for column in zip(*_parallel(until_called, pairs), strict=True))
    examples_until[wrong] = np.inf
    median, most = (
        int(found) if np.isfinite(found) else None
        for found in np.quantile(examples_until, (0.5, 0.9), method="higher")
    )
    return Power(world.rate, world.error, world.gap, median, most, float(wrong.mean()))


def impressions_of(world: World, examples: int, random: Generator) -> Impressions:
    """Draw the impressions of a world and the errors of both models, of as many as are logged."""
    odds = SPREAD * random.standard_normal(examples)
    odds += _root(lambda base: float(_sigmoids(base + odds).mean()) - world.rate, -15.0, 5.0)
    weight = 1.0 / world.sampled
    if world.sampled < 1.0:
        click = _sigmoids(odds)
        odds = odds[random.random(examples) < click + (1.0 - click) * world.sampled]
    number = np.arange(odds.size)
    if world.ads:
        popularity = random.lognormal(0.0, 1.5, world.ads)
        ad = random.choice(world.ads, odds.size, p=popularity / popularity.sum())
        number = ad + world.ads * (number // SHARED_FOR)
    champion, challenger = (_errors(int(number.max()) + 1, random)[number] for _ in range(2))
    error = _error_of_gap(world, odds, champion, challenger) if world.gap else world.error
    of_click, of_other = (
        np.clip(w * (one - other) / LARGEST_DIFFERENCE, -1.0, 1.0).astype(np.float32)
        for w, one, other in zip(
            (1.0, weight),
            _losses(odds + error * champion),
            _losses(odds + world.error * challenger),
            strict=True,
        )
    )
    click = _sigmoids(odds + np.log(weight))
    expected = (click * of_click + (1.0 - click) * of_other).astype(np.float32)
    errors = number if world.ads else np.empty(0, np.int64)
    return Impressions((click * 2.0**31).astype(np.uint32), of_click, of_other, expected, errors)


def comparison(
    impressions: Impressions, pair: int, examples: int | None = None, *, swapped: bool = False
) -> Iterator[Looks]:
    """Draw one log and follow its comparison to the end, after commits of 100 to 1,000 examples.

    swapped: errors of champion and challenger change places by chance, so that both are equal.
    examples: how many; None: as many as there are impressions, which otherwise return, with other clicks.
    """
    random = np.random.Generator(np.random.SFC64((SEED, pair)))
    rows = impressions.clicks.size
    mirrored = random.integers(0, 2, int(impressions.errors.max(initial=-1)) + 1, np.uint32)
    begun = np.zeros(3)
    for start in range(0, rows if examples is None else examples, _PART):
        part = slice(start % rows, start % rows + _PART)
        bits = random.integers(0, 2**32, impressions.clicks[part].size, np.uint32)
        clicked = (bits >> np.uint32(1)) < impressions.clicks[part]
        differences = np.where(clicked, impressions.of_click[part], impressions.of_other[part])
        expected = np.zeros_like(differences)
        if swapped and mirrored.size:
            signs = 1.0 - 2.0 * mirrored[impressions.errors[part]].astype(np.float32)
            differences, expected = signs * differences, signs * impressions.expected[part]
        elif swapped:
            differences *= 1.0 - 2.0 * (bits & np.uint32(1)).astype(np.float32)
        sizes = random.integers(COMMITS[0], COMMITS[1] + 1, differences.size // COMMITS[0] + 1)
        ends = np.cumsum(sizes)
        ends = np.append(ends[ends < differences.size], differences.size)
        sums = [
            begun[i] + np.add.reduceat(column, np.append(0, ends[:-1]), dtype=np.float64).cumsum()
            for i, column in enumerate((differences, differences * differences, expected))
        ]
        begun = np.array([column[-1] for column in sums])
        yield Looks(start + ends, *sums)


def is_enough(looks: Looks, expected: Floats | float = 0.0) -> npt.NDArray[np.bool_]:
    """bool[k]: whether the confidence sequence excludes these sums of what was to be expected."""
    costs = -np.log1p(-LAMBDAS) - LAMBDAS
    found = np.zeros(looks.totals.size, bool)
    for total in (looks.totals - expected, expected - looks.totals):
        exponents = np.log(WEIGHTS) + np.multiply.outer(total, LAMBDAS)
        exponents -= np.multiply.outer(looks.squares, costs)
        found |= np.exp(np.minimum(exponents, 700.0)).sum(axis=1) >= ENOUGH
    return found


def _asymptotic(looks: Looks) -> npt.NDArray[np.bool_]:
    """bool[k]: whether the sequence of Waudby-Smith et al. (2024, equation 3) excludes 0."""
    log_error = np.log(1.0 - CONFIDENCE)
    t, mean = looks.examples, looks.totals / looks.examples
    rho = (np.log(1.0 - 2.0 * log_error) - 2.0 * log_error) / BEST_AFTER
    scale = (t * rho + 1.0) / (t**2 * rho) * (np.log(t * rho + 1.0) - 2.0 * log_error)
    found: npt.NDArray[np.bool_] = mean**2 > (looks.squares / t - mean**2) * scale
    return found


def _plain(looks: Looks) -> npt.NDArray[np.bool_]:
    """bool[k]: whether the normal interval for one look excludes 0."""
    mean = looks.totals / looks.examples
    variance = looks.squares / looks.examples - mean**2
    found: npt.NDArray[np.bool_] = mean**2 > STANDARD_ERRORS**2 * variance / looks.examples
    return found


def _error_of_gap(world: World, odds: Floats, champion: Floats, challenger: Floats) -> float:
    """The champion's standard deviation that makes the gap."""
    truth = _sigmoids(odds)

    def expected(margins: Floats) -> float:
        of_click, of_other = _losses(margins)
        return float((truth * of_click + (1.0 - truth) * of_other).mean())

    target = (1.0 + world.gap) * expected(odds + world.error * challenger)
    return _root(lambda error: expected(odds + error * champion) - target, world.error / 2.0, 4.0)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function is 0, by bisection."""
    for _ in range(30):
        middle = (low + high) / 2.0
        low, high = (low, middle) if function(middle) > 0.0 else (middle, high)
    return (low + high) / 2.0


def _errors(number: int, random: Generator) -> Floats:
    """float64[number] with standard deviation 1."""
    drawn: Floats = random.standard_t(DEGREES_OF_FREEDOM, number)
    return drawn * math.sqrt(1.0 - 2.0 / DEGREES_OF_FREEDOM)


def _sigmoids(odds: Floats) -> Floats:
    found: Floats = 1.0 / (1.0 + np.exp(-odds))
    return found


def _losses(margins: Floats) -> tuple[Floats, Floats]:
    """The log losses of a click and of a non-click."""
    of_other = np.log1p(np.exp(margins))
    return of_other - margins, of_other


def _parallel(function: Callable[[int], Found], pairs: int) -> list[Found]:
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(function, range(pairs)))


def report_json(found: Findings) -> dict[str, Any]:
    return asdict(found)


def report_markdown(found: Findings) -> str:
    alarms = markdown_table(
        ("equal models", "called different", "mean missed", "asymptotic", "plain interval"),
        [
            [one.world, *(f"{share:.1%}" for share in (one.called, one.missed, one.asymptotic, one.plain))]
            for one in found.alarms
        ],
    )
    later = f"more than {PATIENCE * found.examples:,}"
    powers = markdown_table(
        ("clicks", "errors", "gap", "median", "90 % of pairs", "called worse"),
        [
            [
                f"{one.rate:.1%}",
                f"{one.error:g}",
                f"{one.gap:.1%}",
                *(later if examples is None else f"{examples:,}" for examples in (one.median, one.most)),
                f"{one.wrong:.1%}",
            ]
            for one in found.powers
        ],
    )
    return (
        f"{found.pairs:,} pairs of equal models, {found.examples:,} examples each: ever called different\n\n"
        f"{alarms}\n\n"
        f"{found.pairs:,} pairs of unequal models: examples until the challenger is called better\n\n"
        f"{powers}\n"
    )
