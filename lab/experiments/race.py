"""Many models learn the same examples in parallel, chunk by chunk, each chunk read and parsed once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from lab.experiments.progress import RaceProgress
from lab.experiments.score import Difference, Paired, Score
from lab.experiments.space import Option
from model_core.evaluation.figures import Figures
from model_core.hashing.contract import HashContract
from model_core.learning.state import ModelState, lanes_of
from model_core.warm_up import warm_up
from service.errors import CommandFailure
from service.models.config.model import ModelConfig
from service.parsing.files.reader import Chunk
from service.runtime.kernels import interrupts_held

BYTES_A_LANE, BYTES_A_MARK = 16, 1  # of a slot: z and n of an expert
SMALLEST_BITS = 10
KEPT = 3  # one candidate in KEPT stays in the race
RUNGS = (1 / 9, 1 / 3)  # shares of the examples after which the other candidates leave the race

Search = Literal["grid", "halving"]


@dataclass(frozen=True)
class RacePlan:
    """memory: max total size of the states in bytes. jobs: candidates that learn in parallel.

    search: "grid" lets every candidate learn all examples; "halving" keeps a third of them after 1/9 of the
    examples, and a third of those after 1/3; None: halving where the number of examples is known.
    """

    search: Search | None = "grid"
    memory: int = 2**32
    jobs: int | None = None


class Feed(NamedTuple):
    """Examples to learn: chunks, each the same examples under every hash contract.

    size: what `bytes_read` of the last chunk will be, whatever it counts; None: not known. start: the state
    that a model with this configuration begins with; None where it has to begin empty.
    """

    chunks: Iterator[tuple[Chunk, ...]]
    size: int | None
    start: Callable[[ModelConfig], ModelState | None] | None = None


class Source(Protocol):
    """Where the examples come from."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    def check(self, config: ModelConfig) -> None:
        """Raise InvalidInput, with the field, if the examples are not those of this configuration."""

    def open(
        self, contracts: Sequence[HashContract], search: Search | None, progress: RaceProgress
    ) -> AbstractContextManager[Feed]:
        """With halving, chunks are small enough to meet the rungs. Raises CommandFailure if it cannot give
        examples for these contracts, or its size is not known, which halving needs.
        """

    def facts(self) -> dict[str, Any]:
        """Return what was read, for programs, as JSON."""

    def remarks(self) -> Iterator[str]:
        """Yield sentences about what was read, for the report."""


@dataclass(frozen=True)
class Result:
    """A candidate's figures; those of its features are taken when it leaves the race or at the end.

    rows: examples that it learned, and of these skipped: those whose update was not finite. is_present: this
    is the configuration that the others are compared with. is_tried: it is in the space that is searched,
    too. difference: from the loss of the present configuration. began_empty: while others began with a state.
    state: after the last example, if it did not leave the race.
    """

    option: Option
    rows: int
    skipped: int
    figures: Figures
    features_seen: int
    nonzero: int
    is_present: bool
    is_tried: bool
    difference: Difference | None
    began_empty: bool = False
    state: ModelState | None = field(default=None, repr=False, compare=False)

    @property
    def density(self) -> float:
        return self.nonzero / self.features_seen if self.features_seen else 0.0

    def to_json(self) -> dict[str, Any]:
        figures = {name: getattr(self.figures, name) for name in _FIGURES}
        return {
            "varied": self.option.varied,
            "rows": self.rows,
            "skipped": self.skipped,
            **figures,
            "features_seen": self.features_seen,
            "nonzero": self.nonzero,
            "density": self.density,
            "is_present": self.is_present,
            "difference": None if self.difference is None else self.difference.to_json(),
            "began_empty": self.began_empty,
        }


_FIGURES = ("clicks", "log_loss", "normalized_entropy", "auc", "auc_error_bound", "calibration_ratio")


class Candidate:
    """A model in the race.

    contract: the part of its hashing that determines the 32-bit hashes of an example; bits, bias and prior
    are applied later.
    """

    def __init__(self, option: Option, *, is_present: bool, is_tried: bool) -> None:
        self.option = option
        self.is_present = is_present
        self.is_tried = is_tried
        self.contract = replace(option.config.hashing, bits=SMALLEST_BITS, bias=True, prior_probability=None)
        self.score = Score()
        self.paired = Paired()
        self.began_empty = False
        self._state: ModelState | None = None
        self._features = (0, 0)

    @property
    def name(self) -> str:
        """The values in which it may differ from the others."""
        return ", ".join(f"{name} {value}" for name, value in self.option.varied.items())

    @property
    def parse(self) -> str:
        """Key of the parse: candidates with equal keys share one parse of the examples."""
        return self.contract.fingerprint + str(self.contract.strict)

    def begin(self, feed: Feed) -> None:
        """Take the state to begin with."""
        config = self.option.config
        state = None if feed.start is None else feed.start(config)
        self.began_empty = feed.start is not None and state is None
        self._state = config.empty_state() if state is None else state

    def learn(self, chunk: Chunk) -> npt.NDArray[np.float64]:
        """Learn the examples; return the losses, as Score.add does."""
        assert self._state is not None
        learned = self.option.config.learn(self._state, chunk.batch)
        self._state.take_changed()  # otherwise the list of changes would grow
        return self.score.add(np.where(learned.skipped, np.nan, learned.margins), chunk.batch)

    def retire(self) -> None:
        """Leave the race and free the state."""
        if self._state is not None:
            self._features = self._state.features_seen, self._state.nonzero(self.option.config.hyper)
            self._state = None

    def result(self, candidates: int) -> Result:
        state = self._state
        self.retire()
        return Result(
            self.option,
            self.score.rows,
            self.score.skipped,
            self.score.figures(),
            *self._features,
            self.is_present,
            self.is_tried,
            self.paired.difference(candidates),
            self.began_empty,
            state,
        )


def race(
    plan: RacePlan, source: Source, options: Sequence[Option], present: Option, progress: RaceProgress
) -> list[Result]:
    """The results, best first: candidates that finished before those that left, each group by log loss.

    present: the configuration that the others are compared with, a candidate too; it never leaves the race.
    Raises CommandFailure, and what the source raises.
    """
    candidates = _candidates(plan, options, present)
    contracts = {candidate.parse: candidate.contract for candidate in candidates}
    with interrupts_held():
        warm_up()
    with source.open(list(contracts.values()), plan.search, progress) as feed:
        for candidate in candidates:
            candidate.begin(feed)
        progress.begin(feed.size, len(candidates))
        by_parse = (dict(zip(contracts, several, strict=True)) for several in feed.chunks)
        left = _run(plan, candidates, by_parse, feed.size, progress)
    ranked = [*sorted(candidates, key=lambda c: c.score.rank), *reversed(left)]
    return [candidate.result(max(len(ranked) - 1, 1)) for candidate in ranked]


def _candidates(plan: RacePlan, options: Sequence[Option], present: Option) -> list[Candidate]:
    """A candidate for each option, and one for the present configuration. Raises CommandFailure."""
    compared = present.config.canonical()
    is_tried = any(option.config.canonical() == compared for option in options)
    entered = options if is_tried else (*options, present)
    _check_memory(plan, entered)
    return [
        Candidate(
            option,
            is_present=option.config.canonical() == compared,
            is_tried=is_tried or option is not present,
        )
        for option in entered
    ]


def _run(
    plan: RacePlan,
    racing: list[Candidate],
    chunks: Iterator[Mapping[str, Chunk]],
    size: int | None,
    progress: RaceProgress,
) -> list[Candidate]:
    """Remove candidates from `racing` at each rung; return them in order of removal, the worst first."""
    left: list[Candidate] = []
    rungs = [share * size for share in RUNGS] if size and plan.search != "grid" else []
    bytes_read = 0
    with ThreadPoolExecutor(plan.jobs or os.cpu_count()) as pool:
        for chunk_of in chunks:
            if rungs and bytes_read >= rungs[0]:
                rungs.pop(0)
                left += _drop(racing)
            losses = list(pool.map(lambda c, chunk_of=chunk_of: c.learn(chunk_of[c.parse]), racing))
            _compare(racing, losses, chunk_of)
            first = chunk_of[racing[0].parse]
            bytes_read = first.bytes_read
            best = min(racing, key=lambda c: c.score.rank)
            progress.advance(bytes_read, len(first.batch), len(racing), best.score.log_loss, best.name)
    return left


def _compare(
    racing: Sequence[Candidate], losses: Sequence[npt.NDArray[np.float64]], chunk_of: Mapping[str, Chunk]
) -> None:
    """Pair the losses with those of the present configuration, if its contract accepts the same lines."""
    place = next(i for i, candidate in enumerate(racing) if candidate.is_present)
    weights = chunk_of[racing[place].parse].batch.weights
    for candidate, own in zip(racing, losses, strict=True):
        if own.size == losses[place].size:
            candidate.paired.add(own, losses[place], weights)


def _drop(racing: list[Candidate]) -> list[Candidate]:
    """Remove and return all but the best third and the present configuration, the worst first."""
    racing.sort(key=lambda c: c.score.rank)
    kept = ceil(len(racing) / KEPT)
    dropped = [candidate for candidate in racing[kept:] if not candidate.is_present]
    racing[kept:] = [candidate for candidate in racing[kept:] if candidate.is_present]
    for candidate in dropped:
        candidate.retire()
    return dropped[::-1]


def size_of(option: Option) -> int:
    """Bytes of the state of a candidate."""
    lanes = lanes_of(option.config.hyper.number_of_experts)
    return (BYTES_A_LANE * lanes + BYTES_A_MARK) << option.config.hashing.bits


def _check_memory(plan: RacePlan, options: Sequence[Option]) -> None:
    if not options:
        raise CommandFailure("no candidate is left")
    needed = sum(size_of(option) for option in options)
    if needed > plan.memory:
        raise CommandFailure(
            f"{len(options)} candidates of up to 2^{max(o.config.hashing.bits for o in options)} slots take "
            f"{needed / 2**20:,.0f} MiB at once, more than the {plan.memory / 2**20:,.0f} MiB of --memory: "
            "give fewer values or fewer --bits, or more --memory"
        )
