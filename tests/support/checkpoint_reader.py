"""Processes that load and follow the model of checkpoint_model.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tests.support.checkpoint_model import (
    EMPTY_SERVER,
    SLOTS,
    Point,
    Rows,
    Rules,
    Server,
    Token,
    Violation,
    chain,
    laid_over,
    pass_over,
)


class Reader(NamedTuple):
    """A process that loads the model and, at `follow`, has loaded it."""

    phase: str = "head"
    token: Token = EMPTY_SERVER.token
    generation: int = 0
    checkpoint: Point | None = None
    position: int = 0
    rows: Rows = ()
    target: Token | None = None

    def step(self, server: Server, rules: Rules) -> Reader:
        """load_replica, one call at a time; after that Mirror.advance."""
        return _PHASES[self.phase](self, server, rules)

    def head(self, server: Server, _: Rules) -> Reader:
        return Reader("scan", server.token, server.generation, server.checkpoint, server.position)

    def scan(self, server: Server, _: Rules) -> Reader:
        row = server.state[len(self.rows)] if server.generation == self.generation else ""
        rows = (*self.rows, row)
        return self._replace(rows=rows, phase="scan" if len(rows) < len(SLOTS) else "lay over")

    def lay_over(self, server: Server, rules: Rules) -> Reader:
        if not rules.reader_lays_commits_over:
            return self._replace(phase="aim")
        entries = chain(server, self.token, self.checkpoint, self.position, rules)
        if entries is None:
            return self._replace(phase="report")
        return self._replace(rows=laid_over(self.rows, entries), phase="aim", checkpoint=None)

    def report(self, server: Server, _: Rules) -> Reader:
        if server.checkpoint == self.checkpoint:
            raise Violation("a reader reports that commits are missing")
        return Reader()

    def aim(self, server: Server, _: Rules) -> Reader:
        if server.token == self.token:
            return self._loaded()
        return self._replace(phase="apply", target=server.token)

    def apply(self, server: Server, _: Rules) -> Reader:
        """The commits after its position, at `apply` only until the target; loads again if they do not
        follow, or there are none.
        """
        following = [entry for entry in server.commits if entry.position > self.position]
        reader = self if following else Reader()
        for entry in following:
            if entry.previous != reader.token or not entry.author:
                return Reader()
            rows = laid_over(reader.rows, [entry])
            reader = reader._replace(token=entry.token, position=entry.position, rows=rows)
            if self.target in (None, entry.token):
                reader = reader._loaded()
            if self.target == entry.token:
                break
        return reader

    def follow(self, server: Server, rules: Rules) -> Reader:
        is_newest = server.position <= self.position and server.token == self.token
        return self if is_newest else self.apply(server, rules)

    def _loaded(self) -> Reader:
        if self.rows != pass_over(self.token.learned):
            raise Violation(f"a reader has {self.rows} at {self.token}")
        return self._replace(phase="follow", target=None)


_PHASES: dict[str, Callable[[Reader, Server, Rules], Reader]] = {
    "head": Reader.head,
    "scan": Reader.scan,
    "lay over": Reader.lay_over,
    "report": Reader.report,
    "aim": Reader.aim,
    "apply": Reader.apply,
    "follow": Reader.follow,
}


@cache
def check_reader_finishes(server: Server, reader: Reader, rules: Rules) -> None:
    """While nothing else happens, a reader has loaded the model after a few steps."""
    for _ in range(4 * len(SLOTS) + 8):
        if reader.phase == "follow" and reader.token == server.token:
            return
        reader = reader.step(server, rules)
    raise Violation(f"a reader does not end its loading, it is at {reader.phase!r}")
