"""What became of log entries, as the mirror of this process sees them committed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.storage.records import LOG_START, Commit, LogId

MOST_EXAMPLES_HELD = 100_000


class Outcome(NamedTuple):
    """Of one log entry with r examples: their margins before their updates, float64[r], and 1 for each that
    was skipped.
    """

    margins: npt.NDArray[np.float64]
    skipped: bytes
    revision: str


class Outcomes:
    """The latest outcomes (bounded), and those who wait for one that has not come yet."""

    def __init__(self) -> None:
        self._held: OrderedDict[LogId, Outcome] = OrderedDict()
        self._examples = 0
        self._waiting: dict[LogId, set[asyncio.Future[None]]] = {}
        self._applied = LOG_START

    def record(self, commit: Commit, revision: str) -> None:
        margins, skipped = commit.margins, commit.skipped.tobytes()
        start = 0
        for entry, count in commit.entries:
            stop = start + count
            self._drop(self._held.pop(entry, None))  # of a state that the server lost again
            self._held[entry] = Outcome(margins[start:stop], skipped[start:stop], revision)
            start = stop
        self._examples += start
        while self._examples > MOST_EXAMPLES_HELD and len(self._held) > 1:
            self._drop(self._held.popitem(last=False)[1])
        self.applied_through(commit.applied)

    def applied_through(self, applied: LogId) -> None:
        """The mirror holds everything up to `applied`; also after a load, which tells no outcomes."""
        if applied < self._applied:  # the server lost what came after
            for entry in [entry for entry in self._held if entry > applied]:
                self._drop(self._held.pop(entry))
        self._applied = applied
        for entry in [entry for entry in self._waiting if entry <= applied]:
            for waiter in self._waiting[entry]:
                if not waiter.done():
                    waiter.set_result(None)

    def knows(self, entry: LogId) -> bool:
        """Whether the mirror has applied the entry, with or without its outcome still being held."""
        return entry <= self._applied

    def held(self, entry: LogId) -> Outcome | None:
        return self._held.get(entry)

    async def learned(self, entry: LogId, deadline: float) -> bool:
        """Waits until the mirror has applied the entry, at most until the loop's time is `deadline`."""
        if self.knows(entry):
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(entry, set()).add(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._leave(entry, waiter)
        return True

    def _leave(self, entry: LogId, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiting[entry]
        waiters.discard(waiter)
        if not waiters:
            del self._waiting[entry]

    def _drop(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            self._examples -= len(outcome.margins)
