"""Atomic commits of learned log entries: their retries, and the trimming of the log and commit streams."""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from redis.exceptions import ResponseError

from model_core.evaluation import layout
from model_core.examples.batch import ExampleBatch
from model_core.learning.rounds import Learned
from model_core.learning.state import NO_SLOTS
from service.learning.live_evaluation import LiveEvaluation
from service.models.challengers import read_followers
from service.models.mirror import Mirror
from service.models.replica import FellBehind, Replica, commits_since, read_commits, read_meta
from service.settings.groups import LearnerSettings
from service.snapshots.take.archiver import LogArchiver
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, Backoff
from service.storage.health import ServerHealth
from service.storage.records import (
    LOG_START,
    Checkpoint,
    Commit,
    Follower,
    LearnedEntry,
    LogEntry,
    LogId,
    changed_records,
)
from service.storage.scripts.commit import FOREVER_MS, CommitStatus, Trims, commit_learned

log = logging.getLogger(__name__)

COMMIT_OVERHEAD_BYTES = 100  # the other fields of a commit and the overhead of the stream
NO_TOKEN = b""
"""A token that no commit has: a replica with it cannot follow or commit, and is loaded again."""
FOLLOWER_HEARD_MS = 3_600_000
"""A challenger that has not reported for so long holds no part of the log."""
PARTS = 64
"""A limit of retained bytes is accounted for in about so many parts."""


@dataclass(slots=True)
class Work:
    """Log entries that were learned and are not yet committed."""

    entries: list[LearnedEntry] = field(default_factory=list)
    margins: list[npt.NDArray[np.float64]] = field(default_factory=list)
    skipped: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    examples: int = 0
    positives: float = 0.0
    skipped_count: int = 0
    log_bytes: list[int] = field(default_factory=list)
    changed_slots: int = 0
    last: LogEntry | None = None
    end: int = 0
    """The number of the example that comes next in the log."""
    newest_event: int = -1  # in milliseconds since the epoch; -1 where no example has a time

    def add(self, entry: LogEntry, batch: ExampleBatch, learned: Learned) -> None:
        self.entries.append(LearnedEntry(entry.id, len(batch)))
        self.last, self.end = entry, (entry.first_number or 0) + len(batch)
        self.margins.append(learned.margins)
        self.skipped.append(learned.skipped)
        self.examples += len(batch)
        self.positives += float(batch.labels.sum())
        self.skipped_count += int(learned.skipped.sum())
        self.newest_event = max(self.newest_event, int(batch.event_times.max(initial=-1)))
        self.log_bytes.append(len(entry.records))


class Prepared(NamedTuple):
    """A commit that is to be sent until its outcome is known."""

    work: Work
    commit: Commit
    evaluation: layout.Changes
    trims: Trims


class Behind:
    """The slots that commits have changed and whose rows in Redis may be older. `through`: the last of these
    commits. `written`: the name of what was written last; the server refuses what does not follow on that, as
    it may have lost rows that were written while it still has the commits.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._slots: list[npt.NDArray[np.uint32]] = []  # each slot once
        self._is_listed = np.zeros(mirror.replica.state.size + 1, np.bool_)
        self._was_read = False
        self.through = Checkpoint(LOG_START, NO_TOKEN)
        self.written = b""
        self.since: float | None = None
        """When the first of these commits came (time.monotonic()); None where there is none."""
        self.oldest: float | None = None
        """The same, also of those that a checkpoint under way is to write."""
        self.bytes = 0

    @property
    def is_known(self) -> bool:
        return self._was_read and self.through.token == self._mirror.replica.token

    @property
    def age_seconds(self) -> float:
        """Of the oldest commit whose rows are not all in the state; 0 where there is none."""
        return 0.0 if self.oldest is None else time.monotonic() - self.oldest

    def add(self, position: LogId, commit: Commit) -> None:
        """Add a commit if it is the next."""
        if commit.previous_token != self.through.token:
            return
        self.through = Checkpoint(position, commit.token)
        self._list(commit.changed["slot"])
        self._list(commit.dropped)
        self.bytes += commit.slots_bytes
        if self.since is None:
            self.since = time.monotonic()
        if self.oldest is None:
            self.oldest = self.since

    def written_through(self) -> None:
        """All that was taken is written."""
        self.oldest = self.since

    def take(self) -> npt.NDArray[np.uint32]:
        """All of them, uint32[k]; none is left."""
        slots = np.concatenate([NO_SLOTS, *self._slots])
        self._slots, self._is_listed[slots] = [], False
        self.since, self.bytes = None, 0
        return slots

    def forget(self) -> None:
        """The server may not have what was written: read again."""
        self._was_read = False

    async def read(self) -> None:
        """Find them in the commits since the last checkpoint.

        They stay unknown if the model has moved on: the checkpoint is not that of the replica then, and is
        not to be believed if the server goes back. Raises ModelGone, and what Channel.call raises.
        """
        replica, channel = self._mirror.replica, self._mirror.channel
        self.take()
        if self._is_listed.size != replica.state.size + 1:  # of a challenger that was promoted
            self._is_listed = np.zeros(replica.state.size + 1, np.bool_)
        self._was_read, self.oldest = False, None
        meta = await read_meta(channel, self._mirror.model)
        if meta.token != replica.token:
            return
        checkpoint, self.written = meta.checkpoint, meta.written
        self.through = checkpoint or Checkpoint(replica.position, replica.token)
        try:
            commits = await commits_since(channel, replica, checkpoint)
            for position, commit in commits:
                self.add(position, commit)
            if commits:
                age = channel.clock.milliseconds() - commits[0][0].milliseconds  # another clock may be ahead
                self.oldest = time.monotonic() - max(0, age) / 1000
        except FellBehind:  # removed by hand; or the model has moved, and what is written will be refused
            self._add_all(replica)
        self._was_read = True

    def _add_all(self, replica: Replica) -> None:
        state = replica.state
        self._list(
            np.arange(state.size + 1, dtype=np.uint32) if state.discount.dropped else state.seen_slots()
        )
        self.through = Checkpoint(replica.position, replica.token)
        self.since = self.oldest = time.monotonic()

    def _list(self, slots: npt.NDArray[np.uint32]) -> None:
        new = slots.compress(~self._is_listed.take(slots))
        self._is_listed[new] = True
        self._slots.append(new)


class Committer:
    """Commits the work of the leading learner; one is made at each takeover."""

    def __init__(
        self,
        mirror: Mirror,
        settings: LearnerSettings,
        health: ServerHealth,
        evaluation: LiveEvaluation,
        archiver: LogArchiver,
        retained_log: RetainedBytes,
        retained_commits: RetainedBytes,
        held_log: RetainedBytes,
    ) -> None:
        self._mirror = mirror
        self._evaluation = evaluation
        self._archiver = archiver
        self._settings = settings
        self._health = health
        self._retained_log = retained_log
        self._retained_commits = retained_commits
        self._held_log = held_log
        self.behind = Behind(mirror)
        self.followers: Sequence[Follower] = ()
        """The model's challengers, as they have reported last."""

    @classmethod
    async def start(
        cls,
        mirror: Mirror,
        settings: LearnerSettings,
        health: ServerHealth,
        evaluation: LiveEvaluation,
        archiver: LogArchiver,
    ) -> Committer:
        replica, channel = mirror.replica, mirror.channel
        keys, held_bytes = replica.keys, settings.log_retention_bytes + settings.followers_log_bytes
        log = await _measured(channel, keys.log, replica.applied)
        commits = await _measured(channel, keys.commits, replica.position)
        committer = cls(
            mirror,
            settings,
            health,
            evaluation,
            archiver,
            RetainedBytes(settings.log_retention_bytes, *log),
            RetainedBytes(settings.commits_bytes, *commits),
            RetainedBytes(held_bytes, *log),
        )
        committer.followers = [*(await read_followers(channel, keys)).values()]
        return committer

    def prepare(self, work: Work) -> Prepared:
        """The commit of what the arrays have learned since the last one, which must have been concluded."""
        commit = _commit_of(work, self._mirror.replica)
        work.changed_slots = len(commit.changed) + len(commit.dropped)
        return Prepared(work, commit, self._evaluation.take(), self._trims(commit))

    async def conclude(self, prepared: Prepared, position: LogId | None) -> bool:
        """Take over the outcome of a commit: False if it was refused and the state was reloaded.

        Raises what Mirror.load raises.
        """
        replica, (work, commit, *_) = self._mirror.replica, prepared
        if position is None:
            log.warning("commit %d of %s was refused: reloading the state", commit.number, self._mirror.model)
            self._evaluation.moved_to(None)
            replica.token = NO_TOKEN  # its arrays are ahead of any commit, also if the loading fails now
            await self._mirror.load()
            return False
        replica.moved_to(position, commit)
        self._evaluation.moved_to(commit.token)
        self._mirror.heard()
        self.behind.add(position, commit)
        for (entry, _), size in zip(work.entries, work.log_bytes, strict=True):
            self._retained_log.add(entry, size)
            self._held_log.add(entry, size)
        self._retained_commits.add(
            position,
            commit.slots_bytes + commit.margins.nbytes + commit.skipped.nbytes + COMMIT_OVERHEAD_BYTES,
        )
        return True

    async def send(self, prepared: Prepared) -> LogId | None:
        """Return the commit's position, or None if it was refused.

        Retries until the server answers; compare-and-set applies it at most once.
        """
        work, commit, (written, deleted), trims = prepared
        replica = self._mirror.replica
        backoff = Backoff()
        while True:
            try:
                reply = await commit_learned(
                    self._mirror.channel,
                    replica.keys,
                    replica.generation,
                    commit,
                    trims,
                    work.last.digest if work.last else "",
                    written=written,
                    deleted=deleted,
                    learned_bytes=sum(work.log_bytes),
                    follows=replica.follows is not None,
                )
                if reply.status is CommitStatus.COMMITTED:
                    return reply.position
                if reply.status is CommitStatus.CONFLICT and reply.token == commit.token:
                    # An earlier attempt succeeded, and its reply was lost.
                    return await self._position_of(commit, replica)
                return None
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                log.warning("commit %d of %s is retried: %s", commit.number, self._mirror.model, failure)
                await backoff.pause()

    async def _position_of(self, commit: Commit, replica: Replica) -> LogId | None:
        for position, other in await read_commits(self._mirror.channel, replica):
            if other.token == commit.token:
                return position
        return None

    def _trims(self, commit: Commit) -> Trims:
        # A server that sheds examples needs the memory: then the log retains only what is not yet learned,
        # and the commit stream only what an up-to-date mirror needs.
        shedding = self._health.shedding
        retention_ms = 0 if shedding else round(self._settings.log_retention_seconds * 1000)
        log_from, held_from = self._retained_log.oldest_retained(), self._held_log.oldest_retained()
        followed = self._followed_from()
        if (self._archiver.on or followed is not None) and not shedding:
            # The server would trim by age without waiting for these, so the age is applied here.
            expired = LogId(max(0, commit.applied.milliseconds - retention_ms), 0)
            log_from = max(log_from, expired)
            if self._archiver.on:
                log_from = min(log_from, self._archiver.through)
            if followed is not None:
                log_from = min(log_from, max(followed, held_from))
            retention_ms = FOREVER_MS
        commits_from = self._retained_commits.oldest_retained(
            self._health.limit_bytes // 20 if shedding else None
        )
        return Trims(commits_from, log_from, retention_ms)

    def _followed_from(self) -> LogId | None:
        """The entry through which the slowest challenger has learned the log, of those that were heard of
        lately; None without any.
        """
        now = self._mirror.channel.clock.milliseconds()
        heard = (one.applied for one in self.followers if now - one.milliseconds < FOLLOWER_HEARD_MS)
        return min(heard, default=None)


def _commit_of(work: Work, replica: Replica) -> Commit:
    slots, rows, dropped = replica.state.take_changed()
    margins = np.concatenate([np.empty(0), *work.margins])
    skipped = np.concatenate([np.empty(0, np.uint8), *work.skipped])
    if replica.follows:  # no request waits for the outcomes
        entries, margins, skipped = [], margins[:0], skipped[:0]
    else:
        entries = work.entries
    return Commit(
        previous_token=replica.token,
        token=secrets.token_bytes(8),
        number=replica.commit + 1,
        t=replica.state.t,
        applied=work.entries[-1].id if work.entries else replica.applied,
        applied_number=work.end if work.entries else replica.applied_number,
        skipped_total=replica.skipped + work.skipped_count,
        changed=changed_records(slots, rows, replica.state.discount),
        entries=entries,
        margins=margins,
        skipped=skipped,
        discount=replica.state.discount,
        dropped=dropped,
    )


async def _measured(channel: Channel, stream: str, newest: LogId) -> tuple[LogId, LogId, int]:
    """The first entry of a stream at the takeover, its last, and its size, if the server reports that."""
    try:
        size = int(await channel.call("MEMORY", "USAGE", stream, "SAMPLES", 20) or 0)
    except ResponseError as refusal:
        log.warning(
            "the size of %s is unknown (%s): only entries added from now on are counted", stream, refusal
        )
        size = 0
    first = await channel.call("XRANGE", stream, "-", "+", "COUNT", 1)
    return LogId.parse(first[0][0]) if first else newest, newest, size


class RetainedBytes:
    """Sizes of a stream's entries, oldest first; entries that are small beside the limit are grouped in
    parts.

    Entries that were there before are known only by the first id, the last and their total size, and count as
    spread evenly in between.
    """

    def __init__(
        self, limit: int, oldest: LogId = LOG_START, newest: LogId = LOG_START, size: int = 0
    ) -> None:
        self._limit = limit
        self._parts: deque[tuple[LogId, int]] = deque(
            (LogId(oldest.milliseconds + (newest.milliseconds - oldest.milliseconds) * i // PARTS, 0), part)
            for i, part in enumerate([size // PARTS] * PARTS)
        )
        self._total = size // PARTS * PARTS
        self._part_is_open = False

    def add(self, entry: LogId, size: int) -> None:
        self._total += size
        first, part = self._parts[-1]
        if self._part_is_open and part + size <= self._limit // PARTS:
            self._parts[-1] = (first, part + size)
        else:
            self._parts.append((entry, size))
        self._part_is_open = True

    def oldest_retained(self, limit: int | None = None) -> LogId:
        """Return the oldest entry to retain within the limit, or within a lower one."""
        max_bytes = self._limit if limit is None else min(limit, self._limit)
        while self._total > max_bytes and len(self._parts) > 1:
            _, size = self._parts.popleft()
            self._total -= size
        return self._parts[0][0]
