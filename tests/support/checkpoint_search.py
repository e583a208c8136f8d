"""Runs through all that may happen to the model of checkpoints: every step of every process in every order.

A server that crashes goes back to any state that it had before, as if what came after had not reached its
disk. Requests and replies may be lost, and a request may arrive after its sender has given it up.

    python -m tests.support.checkpoint_search    larger bounds than in the tests: hours, and gigabytes
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from tests.support.checkpoint_model import (
    EMPTY_SERVER,
    PROTOCOL,
    ChunkRequest,
    Learner,
    Request,
    Rules,
    Server,
    Violation,
    check_server,
    restored,
    torn_halves,
)
from tests.support.checkpoint_reader import Reader, check_reader_finishes


@dataclass(frozen=True)
class Bounds:
    """How many there are of each process, and how often something happens. `losses`: of requests or replies;
    `torn`: a crash may leave half of a transaction.
    """

    examples: int = 3
    learners: int = 1
    losses: int = 0
    crashes: int = 0
    torn: bool = False
    kills: int = 0
    restores: int = 0
    loaders: int = 0
    followers: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in asdict(self).items() if value)


SMALL = [
    Bounds(examples=2, learners=2),
    Bounds(crashes=1),
    Bounds(kills=1, losses=1),
    Bounds(examples=2, crashes=1, losses=1, torn=True),
    Bounds(examples=2, crashes=1, restores=1, torn=True),
    Bounds(loaders=1),
    Bounds(examples=2, loaders=1, crashes=1, torn=True),
    Bounds(examples=2, followers=1, crashes=1, torn=True),
]
MEDIUM = [
    Bounds(learners=2),
    Bounds(crashes=1, losses=1),
    Bounds(examples=2, learners=2, losses=1),
    Bounds(examples=2, loaders=1, restores=1),
]
LARGE = [
    Bounds(examples=2, loaders=1, crashes=1, restores=1, torn=True),
    Bounds(examples=2, followers=1, crashes=1, restores=1, torn=True),
    Bounds(crashes=1, restores=1, torn=True),
    Bounds(examples=2, learners=2, loaders=1, crashes=1),
    Bounds(loaders=1, crashes=1, losses=1, torn=True),
    Bounds(examples=4, crashes=1, losses=1, torn=True),
    Bounds(crashes=2, losses=1, torn=True),
    Bounds(learners=2, kills=1, losses=1),
    Bounds(learners=2, crashes=1, torn=True),
]


class World(NamedTuple):
    """`durable`: the state that the server goes back to when it crashes. `late`: a request that was given up
    and still arrives. The numbers: how often something may still happen.
    """

    server: Server
    learners: tuple[Learner, ...]
    reader: Reader | None
    examples: str
    losses: int
    crashes: int
    kills: int
    restores: int
    epoch: int = 0
    durable: Server | None = None
    late: Request | None = None

    @classmethod
    def of(cls, bounds: Bounds) -> World:
        return cls(
            EMPTY_SERVER,
            tuple(Learner.at(name, EMPTY_SERVER) for name in "AB"[: bounds.learners]),
            Reader() if bounds.loaders or bounds.followers else None,
            "abcd"[: bounds.examples],
            bounds.losses,
            bounds.crashes,
            bounds.kills,
            bounds.restores,
        )

    def with_learner(self, learner: Learner, i: int) -> World:
        return self._replace(learners=(*self.learners[:i], learner, *self.learners[i + 1 :]))

    def numbered(self) -> World:
        """With numbers for what was written in the order in which they occur, so that worlds which do not
        differ in anything else are the same.
        """
        numbers: dict[int, int] = {}

        def number(written: int) -> int:
            return numbers.setdefault(written, len(numbers))

        late = self.late
        if isinstance(late, ChunkRequest):
            late = late._replace(previous=number(late.previous))
        return self._replace(
            late=late,
            server=self.server._replace(written=number(self.server.written)),
            durable=self.durable and self.durable._replace(written=number(self.durable.written)),
            learners=tuple(_numbered(one, number) for one in self.learners),
        )


def _numbered(learner: Learner, number: Callable[[int], int]) -> Learner:
    if learner.behind:
        return learner._replace(behind=learner.behind._replace(written=number(learner.behind.written)))
    if learner.meta:
        return learner._replace(meta=(learner.meta[0], number(learner.meta[1])))
    return learner


Step = tuple[str, World]


@dataclass
class Found:
    """`trace`: the steps that led to the violation, if there is one."""

    states: int = 0
    transitions: int = 0
    violation: str = ""
    trace: list[str] = field(default_factory=list)


def explore(bounds: Bounds, rules: Rules = PROTOCOL) -> Found:
    """Goes through every state that can be reached, the nearest first, until an invariant does not hold."""
    first = World.of(bounds)
    came_from: dict[World, tuple[str, World | None]] = {first: ("", None)}
    pending = deque([first])
    found = Found()
    check_reader_finishes.cache_clear()
    while pending:
        world = pending.popleft()
        found.states += 1
        try:
            check_server(world.server)
            if world.reader is not None:
                check_reader_finishes(world.server, world.reader, rules)
            for what, then in steps(world, rules, bounds):
                found.transitions += 1
                following = then.numbered()
                if following not in came_from:
                    came_from[following] = (what, world)
                    pending.append(following)
        except Violation as violation:
            found.violation = str(violation)
            found.trace = trace_of(world, came_from)
            break
    return found


def trace_of(world: World, came_from: dict[World, tuple[str, World | None]]) -> list[str]:
    trace = []
    at: World | None = world
    while at is not None:
        what, at = came_from[at]
        trace.append(what)
    return trace[-2::-1]


def steps(world: World, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    """All steps, and each once more as one that a crash will undo, with all that comes after it."""
    for what, then in _steps(world, rules, bounds):
        yield what, then
        if world.crashes and then.server != world.server:
            halves = torn_halves(world.server, then.server, rules) if bounds.torn else ()
            for durable in (world.server, *halves):
                yield f"{what}, lost later", then._replace(durable=durable, crashes=world.crashes - 1)


def _steps(world: World, rules: Rules, bounds: Bounds) -> Iterator[Step]:
    for i, learner in enumerate(world.learners):
        for what, then in _learner_steps(world, i, rules):
            yield f"{learner.name}: {what}", then
    if world.reader is not None:
        reader = world.reader.step(world.server, rules)
        has_loaded = reader.phase == "follow" and not bounds.followers
        yield f"reader: {world.reader.phase}", world._replace(reader=None if has_loaded else reader)
    yield from _other_steps(world, rules)


def _other_steps(world: World, rules: Rules) -> Iterator[Step]:
    server = world.server
    if world.examples:
        log = server.log + world.examples[0]
        yield f"append: {log}", world._replace(server=server._replace(log=log), examples=world.examples[1:])
    if world.restores:
        then = restored(server, rules, world.epoch)
        yield "restore", world._replace(server=then, restores=world.restores - 1)
    if world.late is not None:
        for then, reply in world.late.outcomes(server, rules, world.epoch):
            yield f"a late {type(world.late).__name__}: {reply}", world._replace(server=then, late=None)
    if world.durable is not None:
        yield "crash of the server", _crashed(world, world.durable, rules)


def _learner_steps(world: World, i: int, rules: Rules) -> Iterator[Step]:
    learner = world.learners[i]
    if learner.request is None:
        for what, then in learner.choices(world.server, rules):
            yield what, world.with_learner(then, i)
    else:
        for what, sent, reply in _exchanges(world, learner.request, rules):
            yield what, sent.with_learner(learner.after(sent.server, reply), i)
    if world.kills:
        successor = Learner.at(f"{learner.name}'", world.server)
        yield "killed", world.with_learner(successor, i)._replace(kills=world.kills - 1)


def _exchanges(world: World, request: Request, rules: Rules) -> Iterator[tuple[str, World, str]]:
    """What may become of a request: the world after it, and the reply, empty if none comes."""
    name = type(request).__name__
    fewer = world._replace(losses=world.losses - 1)
    for server, reply in request.outcomes(world.server, rules, world.epoch):
        yield f"{name}: {reply}", world._replace(server=server), reply
        if world.losses:
            yield f"{name}: {reply}, reply lost", fewer._replace(server=server), ""
    if world.losses:
        yield f"{name}: lost", fewer, ""
        if world.late is None:
            yield f"{name}: late", fewer._replace(late=request), ""


def _crashed(world: World, durable: Server, rules: Rules) -> World:
    """Connections end. A loader notices that at the end; here it begins again at once."""
    learners, reader = world.learners, world.reader
    if rules.learner_rereads_after_reconnection:
        learners = tuple(
            one if one.request else one._replace(behind=None, meta=None, through=None, rest=frozenset())
            for one in learners
        )
    if reader is not None and reader.phase != "follow" and rules.reader_notices_reconnection:
        reader = Reader()
    return world._replace(
        server=durable, durable=None, late=None, epoch=world.epoch + 1, learners=learners, reader=reader
    )


def main() -> None:
    for bounds in LARGE:
        started = time.monotonic()
        found = explore(bounds)
        figures = f"{found.states:,} states, {found.transitions:,} transitions"
        sys.stdout.write(f"{bounds}: {figures}, {time.monotonic() - started:.0f} s\n")
        sys.stdout.flush()
        if found.violation:
            raise SystemExit("\n".join([found.violation, *found.trace]))


if __name__ == "__main__":
    main()
