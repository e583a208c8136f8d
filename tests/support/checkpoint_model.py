"""A model of commits and checkpoints (docs/architecture.md, "A checkpoint, crash by crash"), so small that
checkpoint_search.py can run through all that may happen to it: the server and learners; checkpoint_reader.py
has those that load the model.

A row is the letters of the examples that changed its slot, in order: it shows whether an example was learned
twice, late or not at all. A token ends with the letters of all examples that were learned at its commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

SLOTS_OF = {"a": (0, 1), "b": (0,), "c": (0,), "d": (1,)}
SLOTS = (0, 1)
NEW = -1
"""The name of what was just written into the state, until the search gives it a number of its own."""

Rows = tuple[str, ...]


class Violation(Exception):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Rules:
    """What the protocol depends on: without any of these rules, the search finds a violation."""

    trim_up_to_checkpoint: bool = True
    chunk_has_committed_rows: bool = True
    chunk_names_token: bool = True
    chunk_names_the_one_before: bool = True
    complete_with_last_chunk: bool = True
    complete_as_of_its_begin: bool = True
    switch_ends_checkpoint: bool = True
    switch_is_one_command: bool = True
    learner_reads_at_its_token: bool = True
    reader_lays_commits_over: bool = True
    reader_checks_the_chain: bool = True
    reader_reads_backwards: bool = True
    reader_notices_reconnection: bool = True
    learner_rereads_after_reconnection: bool = False
    """Reads again, on another connection, what is behind, but not while a commit and its chunks are under
    way. That was to replace `chunk_names_the_one_before`.
    """


PROTOCOL = Rules()


class Token(NamedTuple):
    """`epoch`: how often the server had crashed; `number`: of the commit."""

    epoch: int
    number: int
    learned: str


class Point(NamedTuple):
    position: int
    token: Token


class Entry(NamedTuple):
    """An entry of the commits stream. `author`: the learner, empty for a reset."""

    position: int
    previous: Token
    token: Token
    rows: tuple[tuple[int, str], ...]
    author: str


class Server(NamedTuple):
    log: str
    token: Token
    generation: int
    checkpoint: Point | None
    written: int
    commits: tuple[Entry, ...]
    state: Rows

    @property
    def position(self) -> int:
        return self.commits[-1].position if self.commits else 0


@cache
def pass_over(learned: str) -> Rows:
    """The row of each slot after one pass over these examples."""
    return tuple("".join(x for x in learned if slot in SLOTS_OF[x]) for slot in SLOTS)


EMPTY_SERVER = Server("", Token(0, 0, ""), 0, None, 0, (), pass_over(""))


def chain(
    server: Server, token: Token, checkpoint: Point | None, position: int, rules: Rules
) -> list[Entry] | None:
    """commits_since: what leads from a checkpoint to a token; None if some of it is missing."""
    after = checkpoint.position if checkpoint else position
    found = [entry for entry in server.commits if after < entry.position <= position]
    if not rules.reader_reads_backwards:
        return found
    leading = []
    for entry in reversed(found):
        if entry.token == token and entry.author:
            leading.append(entry)
            token = entry.previous
    if rules.reader_checks_the_chain and checkpoint and token != checkpoint.token:
        return None
    return leading[::-1]


def laid_over(rows: Rows, entries: list[Entry]) -> Rows:
    changed = {slot: row for entry in entries for slot, row in entry.rows}
    return tuple(changed.get(slot, row) for slot, row in enumerate(rows))


def check_server(server: Server) -> None:
    """What is stored now is the state after one pass over the log, as far as that was learned."""
    learned = server.token.learned
    if not server.log.startswith(learned):
        raise Violation(f"learned {learned!r} of the log {server.log!r}")
    entries = chain(server, server.token, server.checkpoint, server.position, PROTOCOL)
    if entries is None:
        raise Violation("commits since the checkpoint are missing")
    if laid_over(server.state, entries) != pass_over(learned):
        raise Violation(f"{server.state} with the commits since {server.checkpoint} is not {learned!r}")


class CommitRequest(NamedTuple):
    author: str
    generation: int
    previous: Token
    learned: str

    def outcomes(self, server: Server, rules: Rules, epoch: int) -> Iterator[tuple[Server, str]]:
        """What commit.lua may make of it: the server, and the reply."""
        if (server.generation, server.token) != (self.generation, self.previous):
            yield server, "committed" if self._is_last_of(server) else "refused"
        elif not server.log.startswith(self.learned):
            yield server, "refused"
        else:
            checkpoint = server.checkpoint or Point(server.position, self.previous)
            first = checkpoint.position if rules.trim_up_to_checkpoint else server.position
            trimmed = tuple(entry for entry in server.commits if entry.position >= first)
            token = Token(epoch, server.token.number + 1, self.learned)
            entry = Entry(server.position + 1, self.previous, token, self._rows(), self.author)
            for kept in {server.commits, trimmed}:
                yield (
                    server._replace(token=token, checkpoint=checkpoint, commits=(*kept, entry)),
                    "committed",
                )

    def _is_last_of(self, server: Server) -> bool:
        if not server.commits:
            return False
        last = server.commits[-1]
        return (last.previous, last.author, last.token) == (self.previous, self.author, server.token)

    def _rows(self) -> tuple[tuple[int, str], ...]:
        new = self.learned[len(self.previous.learned) :]
        rows = pass_over(self.learned)
        return tuple((slot, rows[slot]) for slot in sorted({slot for x in new for slot in SLOTS_OF[x]}))


class Chunk(NamedTuple):
    """One slot, with its row after `learned`."""

    slot: int
    learned: str
    complete: Point | None


class ChunkRequest(NamedTuple):
    generation: int
    token: Token
    chunk: Chunk
    previous: int

    def outcomes(self, server: Server, rules: Rules, _: int) -> Iterator[tuple[Server, str]]:
        """What checkpoint.lua makes of it."""
        if (
            server.generation != self.generation
            or (rules.chunk_names_token and server.token != self.token)
            or (rules.chunk_names_the_one_before and server.written != self.previous)
        ):
            yield server, "refused"
            return
        slot, learned, complete = self.chunk
        state = tuple(pass_over(learned)[s] if s == slot else row for s, row in enumerate(server.state))
        yield server._replace(state=state, checkpoint=complete or server.checkpoint, written=NEW), "written"


Request = CommitRequest | ChunkRequest


def restored(server: Server, rules: Rules, epoch: int) -> Server:
    """After a restore to the state before the first example: all of the log is learned again."""
    token = Token(epoch, server.token.number + 1, "")
    return server._replace(
        token=token,
        generation=server.generation + 1,
        checkpoint=None if rules.switch_ends_checkpoint else server.checkpoint,
        commits=(*server.commits, Entry(server.position + 1, server.token, token, (), "")),
        state=pass_over(""),
    )


def torn_halves(before: Server, after: Server, rules: Rules) -> Iterator[Server]:
    """After only the first commands of a script's transaction (service/storage/torn_tail.py)."""
    if after.generation != before.generation:
        checkpoint = after.checkpoint if rules.switch_is_one_command else before.checkpoint
        yield after._replace(commits=before.commits, checkpoint=checkpoint)
    elif after.token != before.token:
        yield before._replace(commits=after.commits, checkpoint=after.checkpoint)
    elif after.state != before.state:
        yield before._replace(state=after.state)


class Behind(NamedTuple):
    """Slots that changed and may be older in the state. `through`: the last commit that changed any."""

    through: Point
    slots: frozenset[int]
    written: int


class Learner(NamedTuple):
    """Its arrays are those after `prepared`, a commit under way, or else those of `token`. `chunks` were
    taken and are written once there is no commit under way; `rest` and `through`: of the checkpoint. `meta`:
    what it has read of that to find out what is behind.
    """

    name: str
    token: Token
    position: int
    generation: int
    meta: tuple[Point | None, int] | None = None
    behind: Behind | None = None
    through: Point | None = None
    rest: frozenset[int] = frozenset()
    prepared: str = ""
    chunks: tuple[Chunk, ...] = ()

    @classmethod
    def at(cls, name: str, server: Server) -> Learner:
        """Loaded: `check_server` finds for every server that this is the state of its token."""
        return cls(name, server.token, server.position, server.generation)

    @property
    def request(self) -> Request | None:
        """What it has to send before it does anything else."""
        if self.prepared:
            return CommitRequest(self.name, self.generation, self.token, self.prepared)
        if self.chunks:
            written = self.behind.written if self.behind else 0
            return ChunkRequest(self.generation, self.token, self.chunks[0], written)
        return None

    def after(self, server: Server, reply: str) -> Learner:
        """`reply`: empty if none came."""
        if self.prepared:
            return self._after_commit(server, reply) if reply else self
        if reply != "written" or self.behind is None:
            return self._replace(behind=None, through=None, rest=frozenset(), chunks=())
        return self._replace(behind=self.behind._replace(written=server.written), chunks=self.chunks[1:])

    def _after_commit(self, server: Server, reply: str) -> Learner:
        if reply == "refused":
            return self.at(self.name, server)
        entry, behind = server.commits[-1], self.behind
        if behind is not None:
            slots = behind.slots | {slot for slot, _ in entry.rows}
            behind = Behind(Point(entry.position, entry.token), slots, behind.written)
        return self._replace(token=entry.token, position=entry.position, prepared="", behind=behind)

    def choices(self, server: Server, rules: Rules) -> Iterator[tuple[str, Learner]]:
        """What it may do next while it has nothing to send."""
        if self.meta is not None:
            yield "reads the commits", self._finds_behind(server, *self.meta, rules)
            return
        if self.token != server.token:
            yield "follows", self.at(self.name, server)
        if self.behind is None and (self.token == server.token or not rules.learner_reads_at_its_token):
            yield "reads meta", self._replace(meta=(server.checkpoint, server.written))
        done = self.token.learned
        for stop in range(len(done) + 1, min(len(done) + 2, len(server.log)) + 1):
            learned = done + server.log[len(done) : stop]
            for taken in self._takes(learned, rules):
                what = f"learns {learned}, takes {len(taken.chunks)} chunks"
                yield what, taken._replace(prepared=learned)
        rows = (done,) if rules.chunk_has_committed_rows else (done, server.log)
        for learned in rows:
            for taken in self._takes(learned, rules):
                if len(taken.chunks) == 1:
                    yield f"takes a chunk as of {learned}", taken

    def _finds_behind(self, server: Server, checkpoint: Point | None, written: int, rules: Rules) -> Learner:
        """Behind.read: all slots, where commits since the checkpoint are missing."""
        entries = chain(server, self.token, checkpoint, self.position, rules)
        slots = SLOTS if entries is None else (slot for entry in entries for slot, _ in entry.rows)
        behind = Behind(Point(self.position, self.token), frozenset(slots), written)
        return self._replace(behind=behind, meta=None)

    def _takes(self, learned: str, rules: Rules) -> Iterator[Learner]:
        """Checkpointer.take: any number of chunks of the checkpoint under way, or else of a new one."""
        yield self
        behind, through, rest = self.behind, self.through, self.rest
        if behind is None or behind.through.token != self.token:
            return
        if through is None and behind.slots:
            through, rest, behind = behind.through, behind.slots, behind._replace(slots=frozenset())
        chunks: tuple[Chunk, ...] = ()
        while through is not None:
            slot, *others = sorted(rest)
            rest = frozenset(others)
            complete = through if rules.complete_as_of_its_begin else behind.through
            is_last = not rest or not rules.complete_with_last_chunk
            chunks = (*chunks, Chunk(slot, learned, complete if is_last else None))
            through = through if rest else None
            yield self._replace(behind=behind, through=through, rest=rest, chunks=chunks)
