"""Reading of the example log from a position on, and its replay beside the model that is served."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple, Protocol

from model_core.errors import FormatError
from model_core.examples.batch import ExampleBatch
from model_core.learning.state import ModelState
from service.errors import LogIncomplete
from service.example_log.stream import after_left_out, examples_of, gap_before
from service.models.config.model import ModelConfig
from service.models.replica import ModelGone, read_meta
from service.snapshots.store.formats import LogArchive
from service.storage.channel import Channel
from service.storage.records import LOG_START, LogEntry, LogId, ModelKeys

ENTRIES_PER_READ = 100
MAX_ROUNDS = 20
LOG_END = LogId(2**64 - 1, 2**64 - 1)


class LoggedBatch(NamedTuple):
    """The examples of one log entry, from example `number` on; those without a time of their own have that of
    the entry.
    """

    id: LogId
    number: int
    batch: ExampleBatch

    @property
    def newest(self) -> int:
        """The newest time of its examples, as of the evaluation: none happens later than it is logged."""
        return min(int(self.batch.event_times.max(initial=0)), self.id.milliseconds)


class LogReader:
    """Reads the log in order, in small pieces, and from the archive what the log no longer has. `applied`:
    the last entry that was read; `number`: number of log examples up to it.
    """

    def __init__(
        self, channel: Channel, archive: LogArchive, keys: ModelKeys, applied: LogId, number: int
    ) -> None:
        self.applied = applied
        self.number = number
        self._channel = channel
        self._archive = archive
        self._keys = keys
        self._left_out: tuple[range, ...] | None = None  # None: not read yet, nor is `_learned`
        self._learned = LOG_START  # by the model whose log it is

    @property
    def next_number(self) -> int:
        """The number of the next example that was learned, as far as it is known after the first read."""
        return after_left_out(self.number, self._left_out or ())

    async def read(self, last: LogId) -> list[LoggedBatch]:
        """Read the next entries up to the entry `last`, which must lie ahead; none if all of them are left
        out, as an operator had the model skip them.

        Raises LogIncomplete, DamagedLogSegment, StoreUnavailable, and what Channel.call raises.
        """
        found: list[LoggedBatch] = []
        while not found and self.applied < last:
            number, entries = self.number, await self._next_entries(last, ENTRIES_PER_READ)
            for entry in entries:
                number = after_left_out(number, self._left_out or ())
                if not self._is_left_out(entry):
                    batch = self._check(entry, number).dated(entry.id.milliseconds)
                    found.append(LoggedBatch(entry.id, number, batch))
                    number += len(batch)
            self.applied, self.number = entries[-1].id, number
        return found

    async def _next_entries(self, last: LogId, count: int) -> list[LogEntry]:
        """Read from the log, or from the archive if the log begins later. Raises LogIncomplete."""
        if self._left_out is None:
            with contextlib.suppress(ModelGone):  # its log is gone as well
                meta = await read_meta(self._channel, self._keys.model)
                self._left_out, self._learned = meta.left_out, meta.applied
        found = await self._channel.call(
            "XRANGE", self._keys.log, f"({self.applied}", str(last), "COUNT", count
        )
        entries = [LogEntry.parse(entry, fields) for entry, fields in found]
        first = next((entry for entry in entries if not self._is_left_out(entry)), None)
        if not entries or (first and gap_before(first, after_left_out(self.number, self._left_out or ()))):
            archived = await asyncio.to_thread(self._archive.entries_from, self.number)
            entries = [entry for entry in archived if entry.id <= last] or entries
        if not entries:
            raise self._nothing_left()
        return entries

    def _is_left_out(self, entry: LogEntry) -> bool:
        number = entry.first_number
        if number is None:  # of what is learned, an operator has had it skipped
            return entry.id <= self._learned
        return after_left_out(number, self._left_out or ()) != number

    def _check(self, entry: LogEntry, number: int) -> ExampleBatch:
        """Return the examples of the entry, which must begin with that number."""
        gap = gap_before(entry, number)
        if gap:
            raise LogIncomplete(
                f"The log does not hold example {number}, the first that is missing; it goes on with entry"
                f" {entry.id} ({gap}). Nothing was changed."
            )
        try:
            return examples_of(entry)
        except FormatError as wrong:
            raise LogIncomplete(
                f"Log entry {entry.id} cannot be read: {wrong}. Nothing was changed."
            ) from wrong

    def _nothing_left(self) -> LogIncomplete:
        return LogIncomplete(
            f"The log does not hold example {self.number}, the first that is missing, nor any after log entry"
            f" {self.applied}. Nothing was changed."
        )


class Learning(Protocol):
    """A model that learns a log: its own, or that of its champion (`log_keys`)."""

    @property
    def keys(self) -> ModelKeys: ...
    @property
    def log_keys(self) -> ModelKeys: ...
    @property
    def config(self) -> ModelConfig: ...


class Replay(LogReader):
    """Moves `state`, which the caller sets, on through the log. `examples`: how many were learned."""

    state: ModelState

    def __init__(
        self, channel: Channel, archive: LogArchive, model: Learning, applied: LogId, number: int
    ) -> None:
        super().__init__(channel, archive, model.log_keys, applied, number)
        self.examples = 0
        self._model = model

    async def catch_up(
        self, through: LogId | None = None, progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Learn up to an entry, by default the last that the model's learner has learned; return the number
        of examples, which `progress` is called with meanwhile. Raises ModelGone, and what `read` raises.
        """
        before = self.examples
        target = through or await self._applied_now()
        while self.applied < target:
            await self.learn_next(target)
            progress(self.examples - before)
        return self.examples - before

    async def learn_next(self, last: LogId) -> None:
        """Learn the next entries, as `read` reads them."""
        if batches := [logged.batch for logged in await self.read(last)]:
            batch = ExampleBatch.concatenate(batches)
            await asyncio.to_thread(self._model.config.learn, self.state, batch)
            self.examples += len(batch)

    async def check_reaches_back(self) -> None:
        """Raise LogIncomplete now, rather than after the state was loaded, if the log begins too late."""
        if self.applied < await self._applied_now():
            entries = await self._next_entries(LOG_END, 1)
            self._check(entries[0], self.number)

    async def _applied_now(self) -> LogId:
        return (await read_meta(self._channel, self._model.keys.model)).applied
