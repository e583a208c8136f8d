"""The learning loop: reads the log of a model, learns it, and commits what changed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from model_core.examples.batch import ExampleBatch
from service.example_log.repeated_entries import drop_repeated
from service.example_log.stream import LogBlocked, decode
from service.learning.checkpoint import SLOTS_A_STEP, Checkpointer, Chunk
from service.learning.commit import Committer, Prepared, Work
from service.learning.live_evaluation import LiveEvaluation
from service.models.mirror import Mirror
from service.models.replica import Replica
from service.settings.groups import LearnerSettings
from service.snapshots.rollback.gate import RollbackGate
from service.storage.channel import Channel
from service.storage.health import ServerHealth
from service.storage.records import LogEntry, LogId
from service.storage.streams import Streams
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics

ENTRIES_A_READ = 128
TRIM_EVERY_SECONDS = 1.0


class LogSource(Protocol):
    """The log that a model learns: its own, or that of its champion.

    `max_examples`: of one commit. `learns_in_thread`: as much is learned at a time that the event loop goes
    on meanwhile.
    """

    max_examples: int
    learns_in_thread: bool

    @property
    def idle_seconds(self) -> float:
        """The longest wait for entries at a time."""

    async def check(self, *, refused: bool) -> None:
        """Called before each read. `refused`: the last commit was."""

    async def read(self, seconds: float) -> deque[Any]:
        """The entries after what the replica has learned, waiting about so long for the first."""

    def decode(self, entry: LogEntry, number: int) -> ExampleBatch:
        """Raises LogBlocked if it is not the entry that begins with that number, or cannot be read."""

    async def close(self) -> None: ...


class OwnLog:
    """The log of the model itself."""

    learns_in_thread = False

    def __init__(
        self, topology: Topology, mirror: Mirror, settings: LearnerSettings, health: ServerHealth
    ) -> None:
        self.max_examples = settings.learner_read_examples
        self._mirror = mirror
        self._health = health
        self._channel = Channel(topology, shared="learning")
        self._stream = topology.only(Streams).follow(mirror.replica.keys.log, mirror.model, ENTRIES_A_READ)
        self._checked_connection = 0  # the number of the connection over which the whole log was checked

    @property
    def idle_seconds(self) -> float:
        return self._mirror.idle_seconds

    async def check(self, *, refused: bool) -> None:
        """Remove what a server ran of half an append at its start: from all of the log once per connection
        to a server that does so, and from what is not learned yet after a refused commit.
        """
        channel, replica = self._mirror.channel, self._mirror.replica
        if self._health.half_transactions and channel.opened != self._checked_connection:
            opened = channel.opened
            await drop_repeated(channel, replica.keys)
            self._checked_connection = opened
            self._stream.pause()  # it may have read what was removed
        elif refused:
            await drop_repeated(channel, replica.keys, replica.applied)
            self._stream.pause()

    async def read(self, seconds: float) -> deque[LogEntry]:
        """Raises what Channel.call raises."""
        entries = await self._stream.read(self._channel, self._mirror.replica.applied, seconds)
        return deque(LogEntry.parse(entry, fields) for entry, fields in entries)

    def decode(self, entry: LogEntry, number: int) -> ExampleBatch:
        """Raises LogBlocked."""
        return decode(entry, number)

    async def close(self) -> None:
        self._stream.close()
        await self._channel.close()


class LearningLoop:
    """Changes the mirror's arrays ahead of the commits; a refused commit reloads them.

    `settled`: whether the arrays are exactly those of the replica's commit.
    """

    def __init__(
        self,
        mirror: Mirror,
        source: LogSource,
        leads: Callable[[], bool],
        settings: LearnerSettings,
        health: ServerHealth,
        metrics: Metrics,
        evaluation: LiveEvaluation,
        gate: RollbackGate,
    ) -> None:
        self.settled = False
        self._was_refused = False
        self._mirror = mirror
        self._log = source
        self._leads = leads
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._evaluation = evaluation
        self._gate = gate
        self._trimmed = 0.0
        self._checkpoints = Checkpointer(mirror, settings, health, metrics)

    async def step(self, committer: Committer) -> None:
        """Learn and commit the next entries of the log; if there are none, write a chunk of a checkpoint that
        is due, or wait briefly.

        Raises LogBlocked if the next entry cannot be learned, and what Channel.call raises.
        """
        await self._settle()
        await self._checkpoints.follow(committer.behind)
        entries = await self._read_log(committer)
        if not entries:
            await self._idle(committer)
            await self._evaluation.publish(self._mirror)
            await self._checkpoints.write_next(committer.behind)
        await self._evaluation.learn_names(entries, self._mirror)
        while entries and self._leads():
            work: Work | None = await self._first_work(entries)
            while work is not None:
                work = await self._commit(committer, work, entries)

    async def _commit(self, committer: Committer, work: Work, entries: deque[LogEntry]) -> Work | None:
        """Commit what was learned. What follows is learned meanwhile, and returned, unless there is nothing
        or something is to be published, which must not be ahead of the commits.
        """
        started = time.monotonic()
        prepared = committer.prepare(work)
        chunks = self._checkpoints.take(committer.behind, max(work.changed_slots, SLOTS_A_STEP))
        send, following = self._send(committer, prepared, chunks), None
        if entries and self._leads() and self._evaluation.seconds_until_due() > 0:
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(send)
                following = await asyncio.to_thread(self._work_ahead, entries, prepared.commit.applied_number)
            position = sending.result()
        else:
            position = await send
        if not await committer.conclude(prepared, position):
            self.settled = self._was_refused = True
            self._gate.reset()
            entries.clear()  # the state was reloaded, and these do not follow it
            return None
        self._metrics.committed(self._mirror.model, work, time.monotonic() - started)
        if following is None:
            self.settled = True
            await self._evaluation.publish(self._mirror)
        return following

    async def _send(self, committer: Committer, prepared: Prepared, chunks: list[Chunk]) -> LogId | None:
        position = await committer.send(prepared)
        if position is None:
            committer.behind.forget()
        else:
            await self._checkpoints.write(chunks, prepared.commit.token, committer.behind)
        return position

    async def _settle(self) -> None:
        """Follow the state with evaluation and gate, also after a refused commit and a failed reload."""
        await self._log.check(refused=self._was_refused)
        self._was_refused = False
        await self._evaluation.follow(self._mirror)
        if not self.settled:
            self._gate.reset()
            self.settled = True

    async def _read_log(self, committer: Committer) -> deque[LogEntry]:
        """Wait until there is something to publish or to write behind at most."""
        due = self._evaluation.seconds_until_due(), self._checkpoints.seconds_until_due(committer.behind)
        return await self._log.read(min(self._log.idle_seconds, *due))

    async def _idle(self, committer: Committer) -> None:
        await self._mirror.advance()
        if self._health.shedding and time.monotonic() - self._trimmed > TRIM_EVERY_SECONDS:
            await self._commit(committer, Work(), deque())  # without any entry, since only commits trim
            self._trimmed = time.monotonic()

    async def _first_work(self, entries: deque[LogEntry]) -> Work:
        """Raises LogBlocked if the first cannot be learned."""
        number = self._mirror.replica.applied_number
        if self._log.learns_in_thread:
            return await asyncio.to_thread(self._work_on, entries, number)
        return self._work_on(entries, number)

    def _work_ahead(self, entries: deque[LogEntry], number: int) -> Work | None:
        """None if the first cannot be learned."""
        try:
            return self._work_on(entries, number)
        except LogBlocked:
            return None

    def _work_on(self, entries: deque[LogEntry], number: int) -> Work:
        """Learn from the front of `entries` as much as one commit may hold. `number`: of their first example.

        Raises LogBlocked if the first cannot be learned; nothing was learned then.
        """
        replica = self._mirror.replica
        work = Work()
        while entries and not self._is_full(work, replica, entries[0]):
            try:
                batch = self._log.decode(entries[0], number)
            except LogBlocked:
                if work.entries:
                    break
                raise
            entry = entries.popleft()
            self.settled = False
            learned = replica.config.learn(replica.state, batch, entry.id.milliseconds)
            if entry.id > replica.evaluated:
                self._evaluation.add(entry, batch, learned)
                if replica.config.snapshots.auto_rollback is not None:
                    self._gate.add(replica, entry, batch, learned)
            work.add(entry, batch, learned)
            number = work.end
        return work

    def _is_full(self, work: Work, replica: Replica, following: LogEntry) -> bool:
        """Return whether the next entry is left to the next commit. Its examples are expected to change as
        many slots each as those before; they change fewer, as ever fewer slots are new.
        """
        if not work.examples:
            return False
        slots = replica.state.changes
        with_it = slots + slots / work.examples * following.examples
        settings = self._settings
        return work.examples >= self._log.max_examples or with_it > settings.commit_slots
