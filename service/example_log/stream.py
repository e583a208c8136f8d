"""The example log of a model: appending examples once, durably and in order; finding out what a server has
lost of them since; and decoding entries.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from model_core.errors import FormatError
from model_core.examples.batch import ExampleBatch, Ids
from service.errors import AppendOutcome, LogFull, UpdateUnavailable
from service.models.evaluation.slices import MAX_VALUES_PER_FEATURE, SliceName, pack_names
from service.models.replica import ModelGone
from service.settings.groups import LogSettings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, Attempts, Expired, NotSent, Unanswered
from service.storage.records import LogEntry, LogId, ModelKeys
from service.storage.scripts.log import (
    Append,
    AppendReply,
    Claim,
    EntryToAppend,
    Found,
    LoggedExample,
    Move,
    append_examples,
    find_examples,
)
from service.storage.topology import Topology

log = logging.getLogger(__name__)

MAX_ENTRY_BYTES = 32 * 1024
MAX_ENTRY_EXAMPLES = 1_000
REMEMBERED_ENTRIES = 20_000
ENTRIES_PER_CHECK = 256
BATCH_ID_BYTES = 12
_MADE = re.compile("ftrl-([0-9a-f]{32})")


def new_batch_id() -> bytes:
    """Makes the id of a micro-batch, with which the event ids made for its examples begin."""
    return secrets.token_bytes(BATCH_ID_BYTES)


def made_digests(batch_id: bytes, first: int, count: int) -> npt.NDArray[np.uint8]:
    """The ids, uint8[count, 16], that are made for the examples of a micro-batch from index `first` on."""
    digests = np.empty((count, BATCH_ID_BYTES + 4), np.uint8)
    digests[:, :BATCH_ID_BYTES] = np.frombuffer(batch_id, np.uint8)
    digests[:, BATCH_ID_BYTES:] = np.arange(first, first + count, dtype=">u4").view(np.uint8).reshape(-1, 4)
    return digests


def made_texts(batch_id: bytes, first: int, count: int) -> list[str]:
    """The texts of made ids, which the caller may send in a retry."""
    start = "ftrl-" + batch_id.hex()
    return [f"{start}{index:08x}" for index in range(first, first + count)]


def event_digest(event_id: str) -> bytes:
    """The 16 bytes of an event id: a digest, or the bytes that the text of a made id spells."""
    return _spelled(event_id) or hashlib.blake2b(event_id.encode(), digest_size=16).digest()


def batch_of(event_id: str) -> bytes:
    """The id of the micro-batch for which an event id was made; empty for an id of a caller."""
    return _spelled(event_id)[:BATCH_ID_BYTES]


def _spelled(event_id: str) -> bytes:
    """Parses exactly the texts that `made_texts` makes: no two texts may have the same bytes."""
    made = _MADE.fullmatch(event_id)
    return b"" if made is None else bytes.fromhex(made[1])


class LogBlocked(Exception):
    """The log cannot be read on from here: an operator has to decide (`ftrl log skip`)."""

    def __init__(self, entry: LogId, detail: str) -> None:
        super().__init__(f"log entry {entry}: {detail}")
        self.entry = entry


class PositionMoved(Exception):
    """A position that was to move with an append is not where it was expected; nothing was appended."""


def gap_before(entry: LogEntry, number: int) -> str:
    """Describes what is wrong if `number` is the next dense number; empty if nothing is."""
    if entry.first_number is None or entry.first_number == number:
        return ""
    if entry.first_number < number:
        return f"{entry.id} begins with example {entry.first_number}, although {number} comes next"
    return f"{entry.first_number - number} examples before {entry.id} are not in the log"


def after_left_out(number: int, left_out: Iterable[range]) -> int:
    """The first number from this one on that an operator has not had left out. `left_out`: in order."""
    for numbers in left_out:
        if number in numbers:
            number = numbers.stop
    return number


def examples_of(entry: LogEntry) -> ExampleBatch:
    """Raises FormatError."""
    if entry.first_number is None:
        raise FormatError("not written by this service")
    batch = ExampleBatch.from_bytes(entry.records)
    if len(batch) != entry.examples:
        raise FormatError(f"has {len(batch)} records, not {entry.examples}")
    return batch


def decode(entry: LogEntry, number: int) -> ExampleBatch:
    """The examples of the entry that must begin with that dense number. Raises LogBlocked."""
    gap = gap_before(entry, number)
    if gap:
        raise LogBlocked(entry.id.before(), gap)
    try:
        return examples_of(entry)
    except FormatError as wrong:
        raise LogBlocked(entry.id, str(wrong)) from wrong


class Appended(NamedTuple):
    """An entry that was acknowledged: one example of it, and how many it has."""

    example: LoggedExample
    examples: int


class AcknowledgedEntries:
    """The newest log entries of one model that Redis acknowledged to this process over one channel."""

    def __init__(self, keys: ModelKeys, on_lost: Callable[[int], None]) -> None:
        self._keys = keys
        self._on_lost = on_lost
        self._checked = 0  # the number of the connection over which they were checked
        self._entries: deque[Appended] = deque(maxlen=REMEMBERED_ENTRIES)

    def add(self, entries: Iterable[Appended]) -> None:
        self._entries.extend(entries)

    async def check(self, channel: Channel) -> None:
        """Counts and logs lost entries, once per connection: a new one may lead to a server that lacks what
        another has acknowledged.

        Raises what Channel.call raises.
        """
        if channel.opened == self._checked:
            return
        lost = await self._forget_lost(channel)
        self._checked = channel.opened
        if lost:
            log.error(
                "Redis has lost %d examples of %s acknowledged to this process (failover or crash);"
                " they are learned if they are sent again",
                lost,
                self._keys.model,
            )
            self._on_lost(lost)

    async def _forget_lost(self, channel: Channel) -> int:
        """Drops entries that the server no longer has; returns how many examples they had.

        Goes back from the newest entry until none is missing. Raises what Channel.call raises.
        """
        examples = 0
        while self._entries:
            newest = list(islice(reversed(self._entries), ENTRIES_PER_CHECK))
            found = await find_examples(channel, self._keys, (appended.example for appended in newest))
            missing = {one for one, where in zip(newest, found, strict=False) if where is Found.LOST}
            if not missing:
                break
            examples += sum(appended.examples for appended in missing)
            self._entries = deque(
                (appended for appended in self._entries if appended not in missing), REMEMBERED_ENTRIES
            )
        return examples


class Place(NamedTuple):
    """The place of an example in the log, or of several consecutive ones. `entry` is None for a duplicate of
    an unknown place.
    """

    entry: LogId | None
    offset: int
    duplicate: bool
    examples: int = 1


class MicroBatch:
    """The examples of one append; all attempts carry the id of the batch, so they append it once.

    event_ids: for callers, one per example. entries: those of the log that it makes.
    claims: of the examples whose ids were not made here: the claim of the batch covers those.
    slice_names: values of sliced features that the examples have and that are not in the log yet.
    moves: positions that move with it (see append.lua); none for a request.
    attempts: the attempts to append it so far.
    """

    def __init__(self) -> None:
        self.batch_id = new_batch_id()
        self.event_ids: list[str] = []
        self.entries: list[EntryToAppend] = []
        self.claims: list[Claim] = []
        self.slice_names: dict[int, SliceName] = {}
        self.moves: Sequence[Move] = ()
        self.attempts = Attempts()

    def __len__(self) -> int:
        return len(self.event_ids)

    def extend(self, batch: ExampleBatch, event_ids: Sequence[str | None] | None) -> None:
        """Adds r examples with the r event ids of callers; for None, makes one that a retry can send."""
        first, count = len(self), len(batch)
        texts = made_texts(self.batch_id, first, count)
        digests = made_digests(self.batch_id, first, count)
        given = [(i, text) for i, text in enumerate(event_ids or ()) if text is not None]
        for index, text in given:
            texts[index] = text
        if given:
            of_callers = b"".join([event_digest(text) for _, text in given])
            digests[[index for index, _ in given]] = np.frombuffer(of_callers, np.uint8).reshape(-1, 16)
        self.event_ids += texts
        data, starts = replace(batch, event_ids=Ids(digests)).packed()
        begins = np.empty(count, np.int64)  # of each example: where its entry begins in `data`
        for start, stop in _entry_bounds(starts):
            begins[start:stop] = starts[start]
            self.entries.append(EntryToAppend(stop - start, data[starts[start] : starts[stop]]))
        self.claims += [
            Claim(
                first + index,
                starts[index] - begins[index],
                starts[index + 1] - starts[index],
                digests[index].tobytes(),
                batch_of(text),
            )
            for index, text in given
        ]


def _entry_bounds(starts: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """The first example of each entry, and the one after its last. `starts` int64[r+1]: of their records."""
    start, end = 0, starts.size - 1
    while start < end:
        fitting = int(np.searchsorted(starts, starts[start] + MAX_ENTRY_BYTES, "right")) - 1
        stop = max(start + 1, min(fitting, start + MAX_ENTRY_EXAMPLES))
        yield start, stop
        start = stop


class ExampleLog:
    """Appends of one model from one process. Calls must not overlap."""

    def __init__(
        self,
        topology: Topology,
        keys: ModelKeys,
        settings: LogSettings,
        on_lost: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._channel = Channel(topology, follow=False, shared="requests")
        self._keys = keys
        self._settings = settings
        self._clock_offset_ms: float | None = None  # server's clock less our monotonic one
        self._asked_connection = 0  # the number of the connection that was asked for it
        self._acknowledged = AcknowledgedEntries(keys, on_lost)

    async def append(self, batch: MicroBatch, deadline: float) -> list[Place]:
        """Tries until time.monotonic() is `deadline`, which must be later than in earlier tries of the batch.
        Returns the places of all examples, in order.

        Raises LogFull, ModelGone, PositionMoved, and UpdateUnavailable, whose outcome is "not_appended" only
        if that is certain.
        """
        try:
            reply = await batch.attempts.until_answered(lambda: self._attempt(batch, deadline), deadline)
        except Unanswered:
            outcome: AppendOutcome = "unknown" if batch.attempts.may_have_happened else "not_appended"
            raise UpdateUnavailable(outcome, batch.event_ids, batch.attempts.why) from None
        places = self._places(reply, len(batch))
        logged = logged_examples(places, lambda index: event_digest(batch.event_ids[index]))
        self._acknowledged.add(
            Appended(example, place.examples) for place, example in logged if not place.duplicate
        )
        return places

    async def _attempt(self, batch: MicroBatch, deadline: float) -> AppendReply:
        offset = await self._offset_ms()
        settings = self._settings
        reply = await append_examples(
            self._channel,
            self._keys,
            deadline_ms=round(deadline * 1000 + offset),
            max_backlog=settings.backlog_limit_examples,
            max_backlog_bytes=int(settings.backlog_limit_bytes),
            retention_seconds=round(settings.event_id_retention_seconds),
            batch_id=batch.batch_id,
            slice_names=pack_names(batch.slice_names) if batch.slice_names else b"",
            max_slice_values=MAX_VALUES_PER_FEATURE,
            entries=batch.entries,
            claims=batch.claims,
            moves=batch.moves,
        )
        if reply.status is Append.LATE:
            self._clock_offset_ms = None  # time left here means that the server's clock jumped
            raise Expired
        return reply

    async def _offset_ms(self) -> float:
        """Asks again on a new connection, which may lead to another server, and after a jump of the clock."""
        channel = self._channel
        if self._clock_offset_ms is None or not channel.connected or channel.opened != self._asked_connection:
            asked = time.monotonic()
            try:
                seconds, microseconds = await channel.call("TIME")
                now = (asked + time.monotonic()) / 2
                self._asked_connection = channel.opened
                await self._acknowledged.check(channel)
            except CONNECTION_FAILURES as failure:
                self._clock_offset_ms = None
                raise NotSent(str(failure)) from failure  # the append was not sent
            self._clock_offset_ms = int(seconds) * 1000 + int(microseconds) / 1000 - now * 1000
        return self._clock_offset_ms

    def _places(self, reply: AppendReply, count: int) -> list[Place]:
        if reply.status is Append.APPENDED:
            return parse_receipt(reply.receipt, count)
        if reply.status is Append.GONE:
            raise ModelGone(self._keys.model)
        if reply.status is Append.MOVED:
            raise PositionMoved
        raise LogFull(full_backlog(*reply.backlog, self._settings))  # the status is FULL

    async def close(self) -> None:
        await self._channel.close()


def full_backlog(examples: int, size: int, settings: LogSettings) -> str:
    """Describe a backlog at one of its limits."""
    return (
        f"{examples} examples of {size} bytes wait to be learned; the limits are"
        f" {settings.backlog_limit_examples} examples (FTRL_BACKLOG_LIMIT_EXAMPLES) and"
        f" {settings.backlog_limit_bytes:d} bytes (FTRL_BACKLOG_LIMIT_BYTES)"
    )


def parse_receipt(receipt: bytes, count: int) -> list[Place]:
    """The places of `count` examples by the receipt of append.lua: new ones in order, duplicates by index."""
    entries, _, duplicates = receipt.decode().partition("|")
    sizes = [part.rsplit(":", 1) for part in entries.split(",") if part]
    new = [Place(LogId.parse(entry), 0, duplicate=False, examples=int(size)) for entry, size in sizes]
    if not duplicates:
        return new
    firsts = [part.split("=") for part in duplicates.split(",")]
    indices = [int(index) for index, _ in firsts]
    gaps = [after - before - 1 for before, after in pairwise([-1, *indices, count])]
    first, *others = share_out(new, gaps)
    between = zip(firsts, others, strict=True)
    return first + [place for (_, position), some in between for place in (_first_place(position), *some)]


def share_out(places: Sequence[Place], sizes: Iterable[int]) -> Iterator[list[Place]]:
    """The places of the first so many examples, of the next so many, and so on."""
    following = iter(places)
    left = Place(None, 0, duplicate=False, examples=0)
    for size in sizes:
        shared: list[Place] = []
        missing = size
        while missing:
            entry, offset, duplicate, examples = left if left.examples else next(following)
            taken = min(missing, examples)
            shared.append(Place(entry, offset, duplicate, taken))
            left = Place(entry, offset + taken, duplicate, examples - taken)
            missing -= taken
        yield shared


def logged_examples(
    places: Iterable[Place], identity_of: Callable[[int], bytes]
) -> Iterator[tuple[Place, LoggedExample]]:
    """The places that are known, each with its first example. `identity_of`: an example by its index."""
    first = 0
    for place in places:
        if place.entry is not None:
            yield place, LoggedExample(place.entry, identity_of(first))
        first += place.examples


def _first_place(position: str) -> Place:
    if not position:
        return Place(None, 0, duplicate=True)
    entry, _, offset = position.rpartition(":")
    return Place(LogId.parse(entry), int(offset), duplicate=True)
