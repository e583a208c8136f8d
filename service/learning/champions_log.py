"""The log of a challenger's champion, as the learning loop of the challenger reads it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque

from model_core.examples.batch import ExampleBatch
from service.example_log.lag import LogLag, behind_champion
from service.learning.followed_log import FollowedEntry, FollowedLogs
from service.models.challengers import report_follower
from service.models.mirror import Mirror
from service.models.promotions import Promotion, open_promotion
from service.models.replica import read_meta
from service.storage.records import LOG_START, Follower, Follows, LogEntry
from service.storage.topology import Topology

log = logging.getLogger(__name__)

COMMIT_EVERY_SECONDS = 1.0
REPORT_EVERY_SECONDS = 1.0
REPORT_IDLE_SECONDS = 60.0


class WasPromoted(Exception):
    """The challenger was promoted, and is to go on with what its champion was before."""

    def __init__(self, promotion: Promotion) -> None:
        super().__init__(promotion.challenger)
        self.promotion = promotion


class ChampionsLog:
    """The log of a challenger's champion, as the challenger's learning loop reads it."""

    max_examples = 16_384
    learns_in_thread = True
    idle_seconds = COMMIT_EVERY_SECONDS

    def __init__(self, topology: Topology, mirror: Mirror, follows: Follows) -> None:
        self._mirror = mirror
        self._logs = topology.only(FollowedLogs)
        self.followed = self._logs.open(follows)
        self._verified = (0, 0)  # the epoch of the champion's log, and the load of the mirror
        self._reported = (LOG_START, -math.inf)
        self._due = 0.0
        self._deletion_logged = False

    async def check(self, *, refused: bool) -> None:
        """The champion's learner removes what its server ran of half an append."""

    async def read(self, seconds: float) -> deque[FollowedEntry]:
        """Wait until there is something to learn, at most so long. A challenger commits seldom, as no process
        waits for it, so it also waits for more.

        Raises StartAgain, WasPromoted, LogBlocked, and what Channel.call raises.
        """
        followed, replica, now = self.followed, self._mirror.replica, time.monotonic()
        await self._report(now)
        if now < self._due:
            await asyncio.sleep(max(0.0, min(seconds, self._due - now)))
        elif not followed.has_after(replica.applied):
            await followed.changed(seconds)
        self._show_deletion()
        if not await self._is_verified() or time.monotonic() < self._due:
            return deque()
        if not followed.has_after(replica.applied):
            return deque()
        entries = await followed.after(replica.applied, replica.applied_number, self.max_examples)
        if followed.epoch != self._verified[0]:
            return deque()  # they may be of a server that has been replaced
        if not entries or entries[-1].id >= followed.applied:
            self._due = time.monotonic() + COMMIT_EVERY_SECONDS
        return deque(entries)

    async def _is_verified(self) -> bool:
        """Return whether the champion's log, as it is followed now, holds what the replica has learned.

        Raises StartAgain, WasPromoted, and what Channel.call raises.
        """
        followed, place = self.followed, (self.followed.epoch, self._mirror.loads)
        if followed.is_deleted or not followed.epoch:
            return False
        if self._verified != place:
            meta = await read_meta(self._mirror.channel, self._mirror.model)
            if meta.token != self._mirror.replica.token:
                return False  # the learner is about to notice
            await followed.verify(meta)
            if promotion := await open_promotion(self._mirror.channel, self._mirror.replica):
                raise WasPromoted(promotion)
            self._verified = place
        return True

    def decode(self, entry: LogEntry, number: int) -> ExampleBatch:
        """Raises LogBlocked."""
        assert isinstance(entry, FollowedEntry)
        return self.followed.decode(entry, number)

    def lag(self) -> LogLag:
        """How far the challenger is behind what its champion has committed."""
        replica, champion = self._mirror.replica, self.followed
        return behind_champion(
            replica.applied_number, replica.applied, champion.applied_number, champion.applied
        )

    async def close(self) -> None:
        await self._logs.leave(self.followed)

    async def _report(self, now: float) -> None:
        """Tell the champion what it may trim."""
        replica, (applied, reported) = self._mirror.replica, self._reported
        pause = REPORT_EVERY_SECONDS if replica.applied != applied else REPORT_IDLE_SECONDS
        if now < reported + pause or self.followed.is_deleted:
            return
        channel = self._mirror.channel
        await report_follower(
            channel,
            self.followed.keys,
            replica.keys.model,
            Follower(replica.keys.incarnation, replica.applied, channel.clock.milliseconds()),
        )
        self._reported = (replica.applied, now)

    def _show_deletion(self) -> None:
        if self.followed.is_deleted and not self._deletion_logged:
            log.error(
                "%s learns no more: its champion %s was deleted", self._mirror.model, self.followed.keys.model
            )
        self._deletion_logged = self.followed.is_deleted
