"""Many models learn one file in parallel, chunk by chunk, with one parse for each hash contract."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lab.experiments.progress import RaceProgress
from lab.experiments.score import Difference, Figures, Paired, Score
from lab.experiments.space import Option
from model_core.learning.state import ModelState, lanes_of
from model_core.warm_up import warm_up
from service.errors import CommandFailure
from service.parsing.files.reader import CHUNK_BYTES, CHUNK_ROWS, Chunk, read_examples
from service.parsing.files.rows import Format, ReadOptions
from service.parsing.files.source import STANDARD_INPUT, InputFiles
from service.runtime.kernels import interrupts_held

BYTES_A_LANE, BYTES_A_MARK = 16, 1  # of a slot: z and n of an expert
SMALLEST_BITS = 10
KEPT = 3  # one candidate in KEPT stays in the race
RUNGS = (1 / 9, 1 / 3)  # shares of the file after which the other candidates leave the race

Search = Literal["grid", "halving"]


@dataclass(frozen=True)
class RacePlan:
    """memory: max total size of the states in bytes. jobs: candidates that learn in parallel.

    search: "grid" lets every candidate learn the whole file; "halving" keeps a third of them after 1/9 of the
    file, and a third of those after 1/3 of it.
    """

    files: tuple[str, ...]
    file_format: Format
    options: ReadOptions
    search: Search = "grid"
    on_error: Literal["skip", "fail"] = "fail"
    memory: int = 2**32
    jobs: int | None = None


@dataclass(frozen=True)
class Result:
    """A candidate's figures; those of its features are taken when it leaves the race or at the end.

    is_present: this is the configuration that the others are compared with. is_tried: it is in the space that
    is searched, too. difference: from the loss of the present configuration.
    """

    option: Option
    figures: Figures
    features_seen: int
    nonzero: int
    is_present: bool
    is_tried: bool
    difference: Difference | None

    def to_json(self) -> dict[str, Any]:
        density = self.nonzero / self.features_seen if self.features_seen else 0.0
        features = {"features_seen": self.features_seen, "nonzero": self.nonzero, "density": density}
        difference = None if self.difference is None else self.difference.to_json()
        compared = {"is_present": self.is_present, "difference": difference}
        return {"varied": self.option.varied, **self.figures.to_json(), **features, **compared}


class Candidate:
    """A model in the race.

    contract: the part of its hashing that determines the 32-bit hashes of a line; bits, bias and prior are
    applied later.
    """

    def __init__(self, option: Option, *, is_present: bool, is_tried: bool) -> None:
        self.option = option
        self.is_present = is_present
        self.is_tried = is_tried
        self.contract = replace(option.config.hashing, bits=SMALLEST_BITS, bias=True, prior_probability=None)
        self.score = Score()
        self.paired = Paired()
        self._state: ModelState | None = option.config.empty_state()
        self._features = (0, 0)

    @property
    def name(self) -> str:
        """The values in which it may differ from the others."""
        return ", ".join(f"{name} {value}" for name, value in self.option.varied.items())

    @property
    def parse(self) -> str:
        """Key of the parse: candidates with equal keys share one parse of the file."""
        return self.contract.fingerprint + str(self.contract.strict)

    def learn(self, chunk: Chunk) -> npt.NDArray[np.float64]:
        """Learn the examples; return the losses, as Score.add does."""
        assert self._state is not None
        learned = self.option.config.learn(self._state, chunk.batch)
        self._state.take_changed()  # otherwise the list of changes would grow
        return self.score.add(learned.margins, chunk.batch.labels, chunk.batch.weights)

    def retire(self) -> None:
        """Leave the race and free the state."""
        if self._state is not None:
            self._features = self._state.features_seen, self._state.nonzero(self.option.config.hyper)
            self._state = None

    def result(self, candidates: int) -> Result:
        self.retire()
        difference = self.paired.difference(candidates)
        figures = self.score.figures()
        return Result(self.option, figures, *self._features, self.is_present, self.is_tried, difference)


def race(plan: RacePlan, options: Sequence[Option], present: Option, progress: RaceProgress) -> list[Result]:
    """The results, best first: candidates that finished before those that left, each group by log loss.

    present: the configuration that the others are compared with, a candidate too; it never leaves the race.
    Raises CommandFailure and UnreadableFile.
    """
    candidates = _candidates(plan, options, present)
    with interrupts_held():
        warm_up()
    contracts = {candidate.parse: candidate.contract for candidate in candidates}
    if plan.files == (STANDARD_INPUT,) and len(contracts) > 1:
        raise CommandFailure("standard input can be read once only, so give one way of hashing, or a file")
    with ExitStack() as stack:
        sources = [stack.enter_context(InputFiles(*plan.files)) for _ in contracts]
        size = sources[0].size
        if plan.search == "halving" and size is None:
            raise CommandFailure("halving has to know how long the file is: use --search grid, or a file")
        progress.begin(size, len(candidates))
        pieces = _pieces(plan, size)
        readers = [
            stack.enter_context(
                closing(read_examples(source, plan.file_format, contract, plan.options, *pieces))
            )
            for source, contract in zip(sources, contracts.values(), strict=True)
        ]
        chunks = _checked(plan, zip(*readers, strict=True), progress)
        by_parse = (dict(zip(contracts, several, strict=True)) for several in chunks)
        left = _run(plan, candidates, by_parse, size, progress)
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
    rungs = [share * (size or 0) for share in RUNGS] if plan.search == "halving" else []
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
            progress.advance(bytes_read, len(first.batch), len(racing), best.score.rank[1], best.name)
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


def _pieces(plan: RacePlan, size: int | None) -> tuple[int, int]:
    """Max rows and bytes of a chunk; with halving, small enough to meet the rungs."""
    if plan.search == "grid" or size is None:
        return CHUNK_ROWS, CHUNK_BYTES
    return 512, min(CHUNK_BYTES, max(4096, size // 27))


def _checked(
    plan: RacePlan, chunks: Iterable[tuple[Chunk, ...]], progress: RaceProgress
) -> Iterator[tuple[Chunk, ...]]:
    """The same lines under every hash contract; bad lines are reported, or raise CommandFailure."""
    for several in chunks:
        for error in (error for chunk in several for error in chunk.errors):
            text = f"{error.file or plan.files[0]}:{error.line_number}: {error.reason}"
            if plan.on_error == "fail":
                raise CommandFailure(f"{text} (--on-error skip leaves such lines out)")
            progress.bad_line(text)
        yield several


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
