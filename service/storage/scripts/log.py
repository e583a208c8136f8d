"""Appends to the example log, measures its lag and trims it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from service.storage.channel import Channel, Script
from service.storage.records import Follower, Follows, LogEntry, LogId, ModelKeys

_CLAIM = struct.Struct("<III16s12s")
_APPEND = Script("append", after=("clock", "backlog", "log_writer", "slice_names", "positions"))
_LAG = Script("log_lag", after=("clock", "backlog"))
_FIND = Script("find_examples", after=("log_ids", "log_entry"))
_TRY_WRITE = Script("try_write")
_REPEATED = Script("repeated_entries")
_DROP = Script("drop_entry")
_NOTE_SLICES = Script("note_slices", after=("slice_names",))


class Append(Enum):
    APPENDED = b"APPENDED"
    GONE = b"GONE"
    """There is no such incarnation."""
    LATE = b"LATE"
    """The deadline had passed, and the micro-batch was never appended."""
    MOVED = b"MOVED"
    """A position is another than the caller expects."""
    FULL = b"FULL"
    """The backlog would exceed its limit."""


class AppendReply(NamedTuple):
    """`receipt`: where the examples are (see append.lua), if APPENDED; `backlog`: in examples and in bytes,
    if FULL.
    """

    status: Append
    receipt: bytes
    backlog: tuple[int, int]


class Move(NamedTuple):
    """A position in a stream that examples come from, which moves as they are appended.

    field: of meta. expected: the position that has to be stored, empty for none. position: the next one.
    """

    field: str
    expected: str
    position: str


class LoggedExample(NamedTuple):
    """An example by the entry in which the log acknowledged it, and what identifies it there: its event id or
    prediction id as bytes, or the end of that.
    """

    entry: LogId
    identity: bytes


class EntryToAppend(NamedTuple):
    """An entry of so many examples; `records`: theirs, one after another."""

    examples: int
    records: bytes


class Claim(NamedTuple):
    """An example to which the caller gave an event id.

    example: its index in the micro-batch, from 0. start, size: of its record in its entry, in bytes.
    event_id: 16 bytes. repeats: the id of an earlier micro-batch whose append it may repeat, 12 bytes; empty
    for none.
    """

    example: int
    start: int
    size: int
    event_id: bytes
    repeats: bytes


class Found(Enum):
    """The outcome of looking for an example in the log."""

    IN_LOG = b"F"
    MAY_BE_TRIMMED = b"T"
    """It is not there; if it was learned, the log may have been trimmed since."""
    LOST = b"L"
    """It is not there, and nothing has trimmed it: the server lost it."""


class Lag(NamedTuple):
    """`first_number`: the dense number of the log's first example, -1 if unknown. `oldest_ms`: the age of the
    oldest entry that is not learned, 0 if there is none. `feedback`: whether predictions were ever logged.
    `followers`: the model's challengers. `follows`: of a challenger; `applied` and `applied_entry` are in the
    log of its champion then, and the others say nothing.
    """

    log_entries: int
    appended: int
    applied: int
    first_number: int
    oldest_ms: int
    feedback: int
    snapshot_requests: int
    backlog_bytes: int
    followers: Sequence[Follower]
    follows: Follows | None
    applied_entry: LogId


async def append_examples(
    channel: Channel,
    keys: ModelKeys,
    *,
    deadline_ms: int,
    max_backlog: int,
    max_backlog_bytes: int,
    retention_seconds: int,
    batch_id: bytes,
    slice_names: bytes,
    max_slice_values: int,
    entries: Sequence[EntryToAppend],
    claims: Sequence[Claim],
    moves: Sequence[Move] = (),
) -> AppendReply:
    """Appends a micro-batch once, however often it is sent.

    `deadline_ms` is of the server's clock. `claims`: in the order of the examples; those that are in the log
    already are left out of the entries. `moves`: positions that move with the append, which is refused if one
    is not where it is expected.
    """
    status, *rest = await _APPEND(
        channel,
        (keys.meta, keys.log, keys.slices),
        *(keys.incarnation, deadline_ms, max_backlog, keys.events_prefix, retention_seconds, batch_id),
        *(slice_names, max_slice_values, max_backlog_bytes),
        json.dumps([part for move in moves for part in move]) if moves else b"",
        b"".join([_CLAIM.pack(*claim) for claim in claims]),
        *(part for entry in entries for part in entry),
    )
    outcome = Append(status)
    receipt = rest[0] if outcome is Append.APPENDED else b""
    backlog = (int(rest[0]), int(rest[1])) if outcome is Append.FULL else (0, 0)
    return AppendReply(outcome, receipt, backlog)


async def try_write(channel: Channel, key: str) -> None:
    """Raises the error with which the server refuses appends now. `key`: of nothing; it stays so."""
    await _TRY_WRITE(channel, (key,))


async def read_lag(channel: Channel, keys: ModelKeys) -> Lag:
    *figures, followers, follows, applied = await _LAG(
        channel, (keys.meta, keys.log, keys.feedback, keys.snapshot_requests, keys.followers)
    )
    reported = [Follower.parse(stored) for stored in followers[1::2]]
    return Lag._make([*figures, reported, Follows.parse(follows), LogId.parse(applied)])


async def find_examples(channel: Channel, keys: ModelKeys, examples: Iterable[LoggedExample]) -> list[Found]:
    """Finds acknowledged examples in the log. Returns nothing if the model is gone."""
    arguments = (part for entry, identity in examples for part in (str(entry), identity))
    answers = await _FIND(channel, (keys.meta, keys.log), keys.incarnation, *arguments)
    return [Found(answer) for answer in answers]


async def find_repeated(
    channel: Channel, keys: ModelKeys, after: str, count: int
) -> tuple[str, list[LogEntry]]:
    """Check up to `count` entries after an id, or from the start of the log if that is empty. Returns the id
    to continue after, empty at the end, and the entries whose numbers were given again.
    """
    following, *found = await _REPEATED(channel, (keys.meta, keys.log), keys.incarnation, after, count) or [
        b""
    ]
    return following.decode(), [LogEntry.parse(entry, fields) for entry, fields in found]


async def drop_entry(channel: Channel, keys: ModelKeys, entry: LogId, claimed: Iterable[bytes]) -> bool:
    """Removes an entry with the claims of its examples under these ids; False if it is not there."""
    return bool(
        await _DROP(
            channel,
            (keys.meta, keys.log),
            *(keys.incarnation, str(entry), keys.events_prefix),
            *claimed,
        )
    )


async def note_slices(channel: Channel, keys: ModelKeys, names: bytes, max_values: int) -> bool:
    """Notes packed values of sliced features, at most `max_values` a feature; False if the model is gone."""
    return bool(await _NOTE_SLICES(channel, (keys.meta, keys.slices), keys.incarnation, names, max_values))
