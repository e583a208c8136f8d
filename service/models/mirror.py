"""A copy of a model in this process that follows the server's newest commit, and the outcomes of log entries
that come with the commits.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from redis.exceptions import ResponseError

from service.models.replica import (
    COMMITS_A_READ,
    FellBehind,
    ModelGone,
    Replica,
    Shortcut,
    load_replica,
    parsed,
    read_commits,
    refresh_feedback,
    token_now,
)
from service.runtime.coalescer import Asked, Coalescer
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, Backoff
from service.storage.records import LOG_START, Commit, LogId
from service.storage.scripts.log import Found, LoggedExample, find_examples
from service.storage.streams import Streams
from service.storage.topology import Topology

log = logging.getLogger(__name__)

FEEDBACK_POLL_SECONDS = 1.0
MAX_EXAMPLES_HELD = 100_000
MAX_EXAMPLES_PER_SEARCH = 1000


class Outcome(NamedTuple):
    """The outcome of a log entry with r examples: their margins before their updates, float64[r], and a 1 for
    each that was skipped, else a 0.
    """

    margins: npt.NDArray[np.float64]
    skipped: bytes
    revision: str


class Outcomes:
    """The latest outcomes, of at most MAX_EXAMPLES_HELD examples, and the requests that await others."""

    def __init__(self) -> None:
        self._held: OrderedDict[LogId, Outcome] = OrderedDict()
        self._examples = 0
        self._waiting: dict[LogId, dict[asyncio.Future[bool], float]] = {}  # the deadline of each
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        self._applied = LOG_START

    def record(self, commit: Commit, revision: str) -> None:
        # A copy, as the kernels are compiled for arrays that can be written to.
        margins, skipped = commit.margins.copy(), commit.skipped.tobytes()
        start = 0
        for entry, count in commit.entries:
            stop = start + count
            self._drop(self._held.pop(entry, None))  # from a state that the server has lost
            self._held[entry] = Outcome(margins[start:stop], skipped[start:stop], revision)
            start = stop
        self._examples += start
        while self._examples > MAX_EXAMPLES_HELD and len(self._held) > 1:
            self._drop(self._held.popitem(last=False)[1])
        self.applied_through(commit.applied)

    def applied_through(self, applied: LogId) -> None:
        """Wakes the requests for entries up to `applied`. A load applies entries without their outcomes."""
        if applied < self._applied:  # the server lost what came after
            for entry in [entry for entry in self._held if entry > applied]:
                self._drop(self._held.pop(entry))
        self._applied = applied
        for entry in [entry for entry in self._waiting if entry <= applied]:
            for waiter in self._waiting[entry]:
                if not waiter.done():
                    waiter.set_result(True)

    def knows(self, entry: LogId) -> bool:
        """Returns whether the mirror has applied the entry, even if its outcome is no longer held."""
        return entry <= self._applied

    def held(self, entry: LogId) -> Outcome | None:
        return self._held.get(entry)

    async def learned(self, entry: LogId, deadline: float) -> bool:
        """Waits until the mirror has applied the entry; False if it has not by the loop's time `deadline`."""
        if self.knows(entry):
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting.setdefault(entry, {})[waiter] = deadline
        if deadline < self._due:
            self._expire_at(deadline, loop)
        try:
            return await waiter
        finally:
            self._leave(entry, waiter)

    def _leave(self, entry: LogId, waiter: asyncio.Future[bool]) -> None:
        waiters = self._waiting[entry]
        del waiters[waiter]
        if not waiters:
            del self._waiting[entry]

    def _expire_at(self, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        """One timer serves all requests: most are answered before it fires."""
        if self._timer is not None:
            self._timer.cancel()
        self._due = deadline
        self._timer = loop.call_at(deadline, self._expire, max(deadline, loop.time()), loop)

    def _expire(self, due: float, loop: asyncio.AbstractEventLoop) -> None:
        """Answer the requests whose deadlines are not after `due`: the timer may fire a little early."""
        self._timer, self._due = None, math.inf
        waiting = [item for waiters in self._waiting.values() for item in waiters.items()]
        for waiter, deadline in waiting:
            if deadline <= due and not waiter.done():
                waiter.set_result(False)
        left = [deadline for waiter, deadline in waiting if not waiter.done()]
        if left:
            self._expire_at(min(left), loop)

    def _drop(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            self._examples -= len(outcome.margins)


class Source(NamedTuple):
    """The connections and loads of a mirror so far. While these stay the same, its commits come from the same
    server, which has lost nothing.
    """

    connections: int
    loads: int


class Observer(Protocol):
    """Called by a mirror, between two awaits, after its replica has changed."""

    def loaded(self, replica: Replica) -> None:
        """The replica is another one, loaded as a whole."""

    def committed(self, commit: Commit, revision: str) -> None:
        """The replica has taken over that commit and has that revision now."""


class Reloads:
    """`one` is held by a mirror that loads again, in place of a copy that it still has: all mirrors of a
    process together would need twice their memory after a failover.
    """

    def __init__(self, _: Topology) -> None:
        self.one = asyncio.Lock()

    async def close(self) -> None:
        """Holds nothing open."""


class Mirror:
    """A replica that follows the server. `replica` is replaced or changed between two awaits only: a reader
    on the same event loop sees whole commits.
    """

    def __init__(self, topology: Topology, channel: Channel, replica: Replica) -> None:
        self.model = replica.keys.model
        self.channel = channel
        self.replica = replica
        self.loads = 1
        self._topology = topology
        self._streams = topology.only(Streams)
        self._commits = self._streams.follow(replica.keys.commits, self.model, COMMITS_A_READ)
        self._searches = Coalescer[list[LoggedExample], list[Found]](
            self._find_together, MAX_EXAMPLES_PER_SEARCH
        )
        self._observers: list[Observer] = []
        self._heard = time.monotonic()
        self._polled = 0.0

    @classmethod
    async def open(cls, topology: Topology, model: str, shortcut: Shortcut | None = None) -> Mirror:
        """Loads the model. Raises ModelGone, ContractMismatch, and what Channel.call raises."""
        channel = Channel(topology, shared="learning")
        try:
            return cls(topology, channel, await load_replica(channel, model, shortcut))
        except BaseException:
            await channel.close()
            raise

    def observe(self, observer: Observer) -> None:
        self._observers.append(observer)

    @property
    def source(self) -> Source:
        return Source(self.channel.opened + self._commits.opened, self.loads)

    @property
    def idle_seconds(self) -> float:
        """The seconds to wait for commits or log entries at a time."""
        return self._streams.idle_seconds

    @property
    def age_seconds(self) -> float:
        """Seconds since the server last confirmed that this is its newest commit, or sent a newer one."""
        return time.monotonic() - self._heard

    async def load(self) -> None:
        """Loads the whole state again. Raises ModelGone, ContractMismatch, and what Channel.call raises; the
        current copy then stays. ModelGone also if the model was re-created under its name: users of this
        mirror hash for the old one.
        """
        async with self._topology.only(Reloads).one:
            loaded = await load_replica(self.channel, self.model)
        if loaded.keys != self.replica.keys:
            raise ModelGone(self.model)
        self.replica = loaded
        self.loads += 1
        self.heard()
        for observer in self._observers:
            observer.loaded(loaded)

    async def follow(self) -> None:
        """Follows permanently, also while the server is down. Raises ModelGone, ContractMismatch."""
        backoff = Backoff()
        while True:
            try:
                await self.advance(self.idle_seconds)
                backoff.reset()
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                log.debug("mirror of %s waits for Redis: %s", self.model, failure)
                await backoff.pause()

    async def advance(self, seconds: float = 0.0) -> None:
        """Applies the commits that there are, waiting about `seconds` for the first. Loads again if they do
        not follow on the replica, or if there is none although the server's token has changed.
        """
        try:
            commits = await self._next_commits(seconds)
            if not commits and await self._poll() != self.replica.token:
                # Either one came after the read, or the server went back to an earlier state.
                commits = await read_commits(self.channel, self.replica)
                if not commits:
                    raise FellBehind
            for position, commit in commits:
                self.replica.apply(position, commit)
                for observer in self._observers:
                    observer.committed(commit, self.replica.revision)
            await self.refresh()
        except FellBehind:
            log.info(
                "mirror of %s loads again: the server does not continue from commit %d",
                self.model,
                self.replica.commit,
            )
            await self.load()
        self.heard()

    async def _next_commits(self, seconds: float) -> list[tuple[LogId, Commit]]:
        if not seconds:
            self._commits.pause()  # as long as its user does not wait for commits
            return []
        return parsed(await self._commits.read(self.channel, self.replica.position, seconds))

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
        """Searches the log of the current primary for examples; returns nothing if the model is gone.

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
        self._commits.close()
        await self._searches.close()
        await self.channel.close()
