"""A copy of a model in this process at the server's newest commit, and the outcomes of the log entries
in its commits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from redis.exceptions import ResponseError

from service.models.replica import (
    FellBehind,
    ModelGone,
    Replica,
    Shortcut,
    load_replica,
    read_commits,
    refresh_feedback,
    token_now,
)
from service.runtime.coalescer import Asked, Coalescer
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, Backoff
from service.storage.records import LOG_START, Commit, LogId
from service.storage.scripts.log import Found, LoggedExample, find_examples
from service.storage.topology import Topology

MAX_EXAMPLES_HELD = 100_000


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
        while self._examples > MAX_EXAMPLES_HELD and len(self._held) > 1:
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


log = logging.getLogger(__name__)

FEEDBACK_POLL_SECONDS = 1.0
MAX_EXAMPLES_A_SEARCH = 1000


class Source(NamedTuple):
    """The connections and loads of a mirror so far. While these stay the same, its commits come from the same
    server, which has lost nothing.
    """

    connections: int
    loads: int


class Mirror:
    """`replica` is replaced or changed between two awaits only: a reader on the same loop sees whole
    commits.
    """

    replica: Replica

    def __init__(
        self,
        topology: Topology,
        model: str,
        shortcut: Shortcut | None = None,
        on_commit: Callable[[Commit, str], None] | None = None,
        on_load: Callable[[LogId], None] | None = None,
    ) -> None:
        self.model = model
        self.channel = Channel(topology)
        self.loads = 0
        self._topology = topology
        self._searches = Coalescer[list[LoggedExample], list[Found]](
            self._find_together, MAX_EXAMPLES_A_SEARCH
        )
        self._heard = 0.0
        self._polled = 0.0
        self._on_commit = on_commit
        self._on_load = on_load
        self._shortcut = shortcut
        self.block_ms = max(1, round(self.channel.block_seconds * 1000))

    @property
    def source(self) -> Source:
        return Source(self.channel.opened, self.loads)

    @property
    def age_seconds(self) -> float:
        """Since the server last confirmed that this is its newest commit, or gave a newer one."""
        return time.monotonic() - self._heard

    async def load(self) -> None:
        """Raises ModelGone, ContractMismatch, and what Channel.call raises; the current copy then stays.
        ModelGone also if the model was re-created under its name: users of this mirror hash for the old one.
        """
        loaded = await load_replica(self.channel, self.model, None if self.loads else self._shortcut)
        if self.loads and loaded.keys != self.replica.keys:
            raise ModelGone(self.model)
        self.replica = loaded
        self.loads += 1
        self.heard()
        if self._on_load is not None:
            self._on_load(self.replica.applied)

    async def follow(self) -> None:
        """Follows permanently, also while the server is down. Raises ModelGone, ContractMismatch."""
        backoff = Backoff()
        while True:
            try:
                await self.advance(self.block_ms)
                backoff.reset()
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                log.debug("mirror of %s waits for Redis: %s", self.model, failure)
                await backoff.pause()

    async def advance(self, block_ms: int | None = None) -> None:
        """Applies what commits there are, waiting up to `block_ms` for the first. Loads again where they do
        not follow from what it holds, and where there is none although the token moved.
        """
        try:
            commits = await read_commits(self.channel, self.replica, block_ms)
            if not commits and await self._poll() != self.replica.token:
                # Either one came after the read, or the server is not where it was.
                commits = await read_commits(self.channel, self.replica)
                if not commits:
                    raise FellBehind
            for position, commit in commits:
                self.replica.apply(position, commit)
                if self._on_commit is not None:
                    self._on_commit(commit, self.replica.revision)
            await self.refresh()
        except FellBehind:
            log.info(
                "mirror of %s loads again: its commit %d is not the server's", self.model, self.replica.commit
            )
            await self.load()
        self.heard()

    async def refresh(self) -> None:
        """Takes over changes of `feedback`, unless that was done less than FEEDBACK_POLL_SECONDS ago. Raises
        ModelGone, ContractMismatch, and what Channel.call raises.
        """
        if time.monotonic() - self._polled > FEEDBACK_POLL_SECONDS:
            await self._poll()

    async def _poll(self) -> bytes:
        """The server's token. Also takes over changes of `feedback`, which come with no commit."""
        token = await refresh_feedback(self.channel, self.replica)
        self._polled = time.monotonic()
        return token

    async def catch_up(self) -> None:
        """Advances until the server's token is the mirror's."""
        while await token_now(self.channel, self.replica.keys) != self.replica.token:
            await self.advance()

    async def find(self, examples: list[LoggedExample]) -> list[Found]:
        """Looks for examples in the log of the current primary; returns nothing if the model is gone.

        Raises what Channel.call raises, and StateUnavailable.
        """
        return await self._searches.submit(examples, len(examples))

    async def _find_together(self, together: list[Asked[list[LoggedExample], list[Found]]]) -> None:
        """Uses a new connection: one of before could still lead to a server that has been replaced."""
        channel = Channel(self._topology)
        try:
            examples = [example for asked in together for example in asked.request]
            found = iter(await find_examples(channel, self.replica.keys, examples))
        finally:
            await channel.close()
        for asked in together:
            asked.answer(list(islice(found, asked.size)))

    def heard(self) -> None:
        """The server has just confirmed that this is its newest commit."""
        self._heard = time.monotonic()

    async def close(self) -> None:
        await self._searches.close()
        await self.channel.close()
