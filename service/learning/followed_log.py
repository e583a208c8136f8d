"""The log of a champion, as its challengers in one process read it: each entry once the champion has
committed it, read and decoded once for all of them, with what the champion predicted before it learned.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt
from redis.exceptions import ResponseError

from model_core.errors import FormatError
from model_core.examples.batch import ExampleBatch
from service.example_log.stream import LogBlocked, after_left_out, examples_of, gap_before
from service.models.replica import COMMITS_A_READ, ModelGone, parsed, read_meta
from service.runtime.tasks import cancel_all, for_ever
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, Backoff
from service.storage.records import LOG_START, Commit, Follows, LogEntry, LogId, Meta, ModelKeys
from service.storage.scripts.models import read_head
from service.storage.streams import Streams, read_stream
from service.storage.topology import Topology

log = logging.getLogger(__name__)

MAX_EXAMPLES_HELD = 65_536
"""Decoded examples that are held for challengers; one that is further behind reads the log by itself."""
ENTRIES_A_READ = 256


class StartAgain(Exception):
    """A challenger cannot learn on from where it is in its champion's log. `reason`: `cut_off`: what comes
    next was trimmed; `lost`: the champion's server has lost what the challenger has learned.
    """

    REASONS = ("cut_off", "lost")

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedEntry(LogEntry):
    """An entry of r examples that the champion has committed, decoded. `margins` float64[r], and `skipped`
    uint8[r]: what the champion predicted before it learned them, and a 1 for each that it could not learn;
    None where its commits are no longer at hand. `generation`: of the champion's state then.
    """

    batch: ExampleBatch
    margins: npt.NDArray[np.float64] | None = None
    skipped: npt.NDArray[np.uint8] | None = None
    generation: int = -1

    @property
    def predicted(self) -> npt.NDArray[np.float64] | None:
        """`margins` with NaN where the champion skipped an example."""
        if self.margins is None or self.skipped is None:
            return None
        return np.where(self.skipped, np.nan, self.margins)

    @classmethod
    def of(cls, entry: LogEntry) -> FollowedEntry:
        """Raises LogBlocked."""
        try:
            batch = examples_of(entry)
        except FormatError as wrong:
            raise LogBlocked(entry.id, str(wrong)) from wrong
        return cls(entry.id, entry.first_number, entry.examples, entry.records, entry.slices, batch=batch)


class FollowedLog:
    """One champion, followed as long as it has users. `epoch` counts what may have replaced its server or
    its state: connections, reloads, restores; a challenger verifies its place in the log in each.
    `generation`: of the champion's state. `applied`, `applied_number`: what it has committed.
    """

    def __init__(self, topology: Topology, keys: ModelKeys) -> None:
        self.keys = keys
        self.epoch = 0
        self.generation = -1
        self.applied, self.applied_number = LOG_START, 0
        self.is_deleted = False
        self.users = 0
        self._channel = Channel(topology, shared="learning")
        self._streams = topology.only(Streams)
        self._commits = self._streams.follow(keys.commits, keys.model, COMMITS_A_READ)
        self._source = (0, 0)  # the connections through which it was read
        self._token = b""
        self._position = LOG_START  # in the commits stream
        self._left_out: list[range] = []
        self._from = LOG_START  # the entry that those held follow
        self._held: deque[FollowedEntry] = deque()
        self._ids: deque[LogId] = deque()
        self._examples = 0
        self._changed = asyncio.Event()
        self._work = asyncio.create_task(for_ever(self._follow), name=f"followed log of {keys.model}")

    def has_after(self, applied: LogId) -> bool:
        """Return whether the champion has committed anything after that entry."""
        return bool(self.epoch) and self.applied > applied

    async def changed(self, seconds: float) -> None:
        """Wait until there is more, or something else has changed, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def after(self, applied: LogId, number: int, max_examples: int) -> list[FollowedEntry]:
        """Return the next entries after one that the challenger has learned; it ends before example `number`.

        Raises StartAgain, LogBlocked, and what Channel.call raises.
        """
        found: list[FollowedEntry] = []
        if applied < self._from:
            found = await self._read(applied, self._from)
        if not found:
            start = bisect.bisect_right(self._ids, applied)
            found = list(_up_to(islice(self._held, start, None), max_examples))
        following = self._learned_after(number)
        if found and (gap := gap_before(found[0], following)):
            raise StartAgain("cut_off", gap)
        if not found and self.applied > applied and following < self.applied_number:
            raise StartAgain("cut_off", f"example {following} is no longer in the log")
        return found

    def decode(self, entry: FollowedEntry, number: int) -> ExampleBatch:
        """Raises LogBlocked if `number` is not that of its first example."""
        if gap := gap_before(entry, self._learned_after(number)):
            raise LogBlocked(entry.id.before(), gap)
        return entry.batch

    async def verify(self, meta: Meta) -> None:
        """Compare the entry that a challenger has learned last with the log. Raises StartAgain, ModelGone,
        and what Channel.call raises.
        """
        applied, number = meta.applied, meta.applied_number
        found = await self._channel.call("XRANGE", self.keys.log, str(applied), "+", "COUNT", 2)
        entries = [LogEntry.parse(*one) for one in found]
        last = entries.pop(0) if entries and entries[0].id == applied else None
        if last is None and meta.learned_digest and await self._has_before(applied):
            raise StartAgain("lost", f"log entry {applied} is not there any more")
        if last is not None and meta.learned_digest not in ("", last.digest):
            raise StartAgain("lost", f"log entry {applied} is another one")
        if entries:
            following = entries[0].first_number or 0
        else:
            following = (await read_meta(self._channel, self.keys.model)).appended
        if following < number:
            raise StartAgain("lost", f"example {number - 1} is not there any more")

    async def _has_before(self, applied: LogId) -> bool:
        """An entry is trimmed after all those before it: one that is missing among others was lost."""
        return bool(await self._channel.call("XREVRANGE", self.keys.log, f"({applied}", "-", "COUNT", 1))

    async def close(self) -> None:
        await cancel_all([self._work])
        self._commits.close()
        await self._channel.close()

    async def _follow(self) -> None:
        backoff = Backoff()
        while True:
            try:
                if not self._token:
                    await self._start()
                await self._advance()
                backoff.reset()
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                log.debug(
                    "the log of %s is followed again soon, as Redis failed: %s", self.keys.model, failure
                )
                self._token = b""
                await backoff.pause()
            except LogBlocked as blocked:
                log.error("the log of %s cannot be followed past %s", self.keys.model, blocked)  # noqa: TRY400
                self._token = b""
                await backoff.pause()
            except ModelGone:
                self._token, self.is_deleted = b"", True
                await backoff.pause()

    async def _start(self) -> None:
        """Begin at the champion's last commit. Raises ModelGone, and what Channel.call raises."""
        head, position = await read_head(self._channel, self.keys)
        if not head:
            raise ModelGone(self.keys.model)
        meta = Meta.parse(dict(zip(head[::2], head[1::2], strict=True)))
        if meta.incarnation != self.keys.incarnation:
            raise ModelGone(self.keys.model)
        self._source = (self._channel.opened, self._commits.opened)
        self._token, self._position = meta.token, position
        self._left_out, self.generation, self.is_deleted = list(meta.left_out), meta.generation, False
        self.applied, self.applied_number = meta.applied, meta.applied_number
        self._from = meta.applied
        self._held.clear()
        self._ids.clear()
        self._examples = 0
        self.epoch += 1
        self._wake()

    async def _advance(self) -> None:
        """Take up the next commits, or find out that they do not follow."""
        entries = await self._commits.read(self._channel, self._position, self._streams.idle_seconds)
        if not entries:
            incarnation, token = await self._channel.call("HMGET", self.keys.meta, "incarnation", "token")
            if incarnation is None or incarnation.decode() != self.keys.incarnation:
                raise ModelGone(self.keys.model)
            if token != self._token:
                entries = await read_stream(self._channel, self.keys.commits, self._position, COMMITS_A_READ)
                if not entries:
                    self._token = b""
                    return
        for position, commit in parsed(entries):
            if commit.previous_token != self._token or commit.reset:
                self._token = b""
                return
            await self._take(commit)
            self._position, self._token = position, commit.token
        if self._source != (self._channel.opened, self._commits.opened):
            self._token = b""  # another connection may lead to a server that lacks what this one has read

    async def _take(self, commit: Commit) -> None:
        if not commit.entries:
            if commit.applied_number > self.applied_number:
                self._left_out.append(range(self.applied_number, commit.applied_number))
            self.applied, self.applied_number = commit.applied, commit.applied_number
            return
        predicted, start = dict[LogId, slice](), 0
        for learned, count in commit.entries:
            predicted[learned] = slice(start, start + count)
            start += count
        after = self.applied
        while found := await self._read(after, commit.applied):
            for entry in found:
                part = predicted.get(entry.id, slice(0, 0))
                is_known = part.stop - part.start == len(entry.batch)
                self._hold(
                    replace(
                        entry,
                        margins=commit.margins[part],
                        skipped=commit.skipped[part],
                        generation=self.generation,
                    )
                    if is_known
                    else entry
                )
            after = found[-1].id
        self.applied, self.applied_number = commit.applied, commit.applied_number
        self._wake()

    async def _read(self, after: LogId, last: LogId) -> list[FollowedEntry]:
        """Entries after one, without those that the champion left out; none if there are no more.

        Raises LogBlocked, and what Channel.call raises.
        """
        learned: list[LogEntry] = []
        while not learned:
            found = await self._channel.call(
                "XRANGE", self.keys.log, f"({after}", str(last), "COUNT", ENTRIES_A_READ
            )
            if not found:
                return []
            entries = [LogEntry.parse(*one) for one in found]
            learned = [entry for entry in entries if self._is_learned(entry)]
            after = entries[-1].id
        return [FollowedEntry.of(entry) for entry in learned]

    def _is_learned(self, entry: LogEntry) -> bool:
        number = entry.first_number
        return number is not None and self._learned_after(number) == number

    def _learned_after(self, number: int) -> int:
        return after_left_out(number, self._left_out)

    def _hold(self, entry: FollowedEntry) -> None:
        self._held.append(entry)
        self._ids.append(entry.id)
        self._examples += len(entry.batch)
        while self._examples > MAX_EXAMPLES_HELD and len(self._held) > 1:
            self._examples -= len(self._held.popleft().batch)
            self._from = self._ids.popleft()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _up_to(entries: Iterable[FollowedEntry], max_examples: int) -> Iterable[FollowedEntry]:
    """Yield the first of these entries, at least one, up to so many examples."""
    total = 0
    for one in entries:
        if total and total + len(one.batch) > max_examples:
            return
        total += len(one.batch)
        yield one


class FollowedLogs:
    """The champions that challengers in this process follow, each once."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._logs: dict[ModelKeys, FollowedLog] = {}

    def open(self, follows: Follows) -> FollowedLog:
        """`leave` is to be called once for each call."""
        keys = follows.keys
        if keys not in self._logs:
            self._logs[keys] = FollowedLog(self._topology, keys)
        followed = self._logs[keys]
        followed.users += 1
        return followed

    async def leave(self, followed: FollowedLog) -> None:
        followed.users -= 1
        if not followed.users and self._logs.pop(followed.keys, None) is not None:
            await followed.close()

    async def close(self) -> None:
        while self._logs:
            await self._logs.popitem()[1].close()
