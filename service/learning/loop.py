"""From the log to commits: read in order, learned, as much at a time as one commit may hold."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

from service.example_log.stream import LogBlocked, decode
from service.learning.commit import Committer, Work
from service.learning.live_evaluation import LiveEvaluation
from service.models.mirror import Mirror
from service.models.replica import Replica, stream_entries
from service.settings.groups import LearnerSettings
from service.snapshots.rollback.gate import RollbackGate
from service.storage.channel import Channel
from service.storage.health import ServerHealth
from service.storage.records import LogEntry
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics

ENTRIES_A_READ = 128
TRIM_EVERY_SECONDS = 1.0


class LearningLoop:
    """Changes the arrays of the mirror ahead of the commit, and has them loaded again where that is refused.

    `settled`: whether they are exactly those of the replica's commit.
    """

    def __init__(
        self,
        topology: Topology,
        mirror: Mirror,
        leads: Callable[[], bool],
        settings: LearnerSettings,
        health: ServerHealth,
        metrics: Metrics,
        evaluation: LiveEvaluation,
        gate: RollbackGate,
    ) -> None:
        self.settled = False
        self._channel = Channel(topology)
        self._mirror = mirror
        self._leads = leads
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._evaluation = evaluation
        self._gate = gate
        self._trimmed = 0.0

    async def step(self, committer: Committer) -> None:
        """Of what the log has now, or after a moment where it has nothing.

        Raises LogBlocked where the next entry cannot be learned, and what Channel.call raises.
        """
        await self._settle()
        entries = await self._read_log()
        if not entries:
            await self._idle(committer)
            await self._evaluation.tell(self._mirror)
        await self._evaluation.learn_names(entries, self._mirror.channel, self._mirror.replica.keys)
        while entries and self._leads():
            try:
                self.settled = False
                work = self._work_on(entries)
            except LogBlocked:  # it has learned nothing
                self.settled = True
                raise
            started = time.monotonic()
            committed = await committer.commit(work)
            self.settled = True
            if not committed:
                self._gate.forget()
                return  # loaded again: what was read follows from another state
            seconds, state = time.monotonic() - started, self._mirror.replica.state
            self._metrics.committed(self._mirror.model, work, seconds, state.t, state.features_seen)
            await self._evaluation.tell(self._mirror)

    async def _settle(self) -> None:
        """Also where a commit was refused and the loading after it failed, until now."""
        await self._evaluation.follow(self._mirror)
        if not self.settled:
            self._gate.forget()
            self.settled = True

    async def _read_log(self) -> deque[LogEntry]:
        replica = self._mirror.replica
        streams = await self._channel.call(
            *("XREAD", "COUNT", ENTRIES_A_READ, "BLOCK", self._patience_ms()),
            *("STREAMS", replica.keys.log, str(replica.applied)),
        )
        return deque(LogEntry.parse(entry, fields) for entry, fields in stream_entries(streams))

    def _patience_ms(self) -> int:
        """There may be more to tell before something comes; 0 would be for ever."""
        return max(1, min(self._mirror.block_ms, math.ceil(1000 * self._evaluation.waits_for())))

    async def _idle(self, committer: Committer) -> None:
        await self._mirror.advance()
        if self._health.shedding and time.monotonic() - self._trimmed > TRIM_EVERY_SECONDS:
            await committer.commit(Work())  # nothing learned, but only commits trim
            self._trimmed = time.monotonic()

    def _work_on(self, entries: deque[LogEntry]) -> Work:
        """Learns from the front of `entries`, as much as one commit may hold. Raises LogBlocked where that is
        nothing.
        """
        replica = self._mirror.replica
        work = Work()
        number = replica.applied_number
        while entries and not self._enough(work, replica, entries[0]):
            try:
                batch = decode(entries[0], number)
            except LogBlocked:
                if work.entries:
                    break
                raise
            entry = entries.popleft()
            learned = replica.config.learn(replica.state, batch)
            if entry.id > replica.evaluated:
                self._evaluation.add(entry, batch, learned)
                if replica.config.snapshots.auto_rollback is not None:
                    self._gate.add(replica, entry, batch, learned)
            work.add(entry, batch, learned)
            number += len(batch)
        return work

    def _enough(self, work: Work, replica: Replica, following: LogEntry) -> bool:
        """Whether the next entry is left to the next commit. An example of it changes hardly more slots than
        those before it did: fewer and fewer are new.
        """
        if not work.examples:
            return False
        slots = replica.state.changes
        with_it = slots + slots / work.examples * len(following.records)
        settings = self._settings
        return work.examples >= settings.learner_read_examples or with_it > settings.commit_slots

    async def close(self) -> None:
        await self._channel.close()
