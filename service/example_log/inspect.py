"""Commands of an operator on the example log: listing, searching, skipping an entry that cannot be read."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from model_core.errors import FormatError
from model_core.examples.batch import ExampleBatch
from model_core.kernels.number_text import plain_number
from service.errors import CommandFailure
from service.example_log.ids import packed_id
from service.example_log.stream import event_digest, examples_of, gap_before
from service.models.replica import gone_is_unknown, read_meta
from service.storage.channel import Channel
from service.storage.records import LOG_START, Commit, LogEntry, LogId, Meta, ModelKeys, changed_records
from service.storage.scripts.commit import CommitStatus, commit_learned

_ID = re.compile(r"\d{1,20}(-\d{1,20})?", re.ASCII)
_ENTRIES_PER_READ = 100
_LARGE_ENTRIES_PER_READ = 10


@dataclass(frozen=True)
class LogLine:
    """An entry of the log, or a place where examples are missing.

    entry: its id; of a gap, the id through which `ftrl log skip` leaves the gap behind. first, last: numbers
    of its examples. problem: what is missing, or why the entry cannot be read.
    """

    entry: str
    status: Literal["examples", "gap", "unreadable"]
    first: int | None = None
    last: int | None = None
    clicks: float | None = None
    features: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class LogDescription:
    """entries: number of entries in the log. learned_through: id of the last that is learned. waiting:
    examples that are not learned yet.
    """

    model: str
    entries: int
    learned_through: str
    waiting: int
    lines: tuple[LogLine, ...]


async def describe_log(channel: Channel, model: str, start: str | None, count: int) -> LogDescription:
    """Describes the log, and `count` entries of it. Raises UnknownModel, CommandFailure."""
    first = None if start is None else _log_id(start)
    meta = await _meta(channel, model)
    keys = ModelKeys(model, meta.incarnation)
    length = await channel.call("XLEN", keys.log)
    lines: list[LogLine] = []
    number = meta.applied_number if start is None else None
    read, after = 0, f"({meta.applied}" if first is None else str(first)
    while entries := await _entries(channel, keys, after, min(count - read, _LARGE_ENTRIES_PER_READ)):
        for entry in entries:
            described, number = _described(entry, number)
            lines += described
        read, after = read + len(entries), f"({entries[-1].id}"
        if read == count:
            break
    if read < count and number is not None and number < meta.appended:
        missing = f"the last {meta.appended - number} examples are not in the log"
        lines.append(LogLine(str(await _end(channel, keys)), "gap", problem=missing))
    return LogDescription(model, length, str(meta.applied), meta.backlog, tuple(lines))


async def skip_through(channel: Channel, model: str, entry: str) -> int:
    """Skips the log through an entry; returns how many examples that left out. Raises UnknownModel,
    CommandFailure.
    """
    target = _log_id(entry)
    await _require_in_log(channel, model, target)
    while True:
        meta = await _meta(channel, model)
        if target <= meta.applied:
            raise CommandFailure(f"the log of {model} is learned or skipped through {meta.applied} already")
        keys = ModelKeys(model, meta.incarnation)
        number = await _number_after(channel, keys, meta, target)
        reply = await commit_learned(channel, keys, meta.generation, _skipping(meta, target, number))
        if reply.status is CommitStatus.COMMITTED:
            return number - meta.applied_number


def _described(entry: LogEntry, number: int | None) -> tuple[list[LogLine], int | None]:
    """The lines of an entry, and the number after it. `number`: its first one; None: unknown."""
    gap = "" if number is None else gap_before(entry, number)
    lines = [LogLine(str(entry.id.before()), "gap", problem=gap)] if gap else []
    try:
        batch = examples_of(entry)
    except FormatError as wrong:
        return [*lines, LogLine(str(entry.id), "unreadable", problem=str(wrong))], None
    first = entry.first_number or 0
    after = first + len(batch)
    clicks = plain_number(float(batch.labels.sum()))
    line = LogLine(str(entry.id), "examples", first, after - 1, clicks, len(batch.hashes))
    return [*lines, line], after


async def _require_in_log(channel: Channel, model: str, target: LogId) -> None:
    """Refuses an id beyond the end, which would leave out future examples."""
    end = await _end(channel, ModelKeys(model, (await _meta(channel, model)).incarnation))
    if target > end:
        raise CommandFailure(f"the log of {model} ends at {end}: there is nothing to skip at {target}")


async def _end(channel: Channel, keys: ModelKeys) -> LogId:
    """The last id that the log ever had, even if that entry was trimmed."""
    if not await channel.call("EXISTS", keys.log):
        return LOG_START
    found = await channel.call("XINFO", "STREAM", keys.log)
    return LogId.parse(found[found.index(b"last-generated-id") + 1])


async def _number_after(channel: Channel, keys: ModelKeys, meta: Meta, target: LogId) -> int:
    """The dense number of the first example after `target`. `meta` is from before, but from after the
    target was appended.
    """
    position = target
    while entries := await _entries(channel, keys, f"({position}", _ENTRIES_PER_READ):
        for entry in entries:
            if entry.first_number is not None:
                return entry.first_number
        position = entries[-1].id
    return meta.appended


async def _entries(channel: Channel, keys: ModelKeys, start: str, count: int) -> list[LogEntry]:
    found = await channel.call("XRANGE", keys.log, start, "+", "COUNT", count)
    return [LogEntry.parse(entry, fields) for entry, fields in found]


def _skipping(meta: Meta, target: LogId, number: int) -> Commit:
    """A commit that changes no slot and moves on in the log."""
    return Commit(
        previous_token=meta.token,
        token=secrets.token_bytes(8),
        number=meta.commit + 1,
        t=meta.t,
        applied=target,
        applied_number=number,
        skipped_total=meta.skipped,
        changed=changed_records(
            np.empty(0, np.uint32), np.empty((0, 2 * meta.discount.experts)), meta.discount
        ),
        entries=[],
        margins=np.empty(0),
        skipped=np.empty(0, np.uint8),
        discount=meta.discount,
    )


async def _meta(channel: Channel, model: str) -> Meta:
    with gone_is_unknown():
        return await read_meta(channel, model)


def _log_id(text: str) -> LogId:
    parsed = LogId.parse(text) if _ID.fullmatch(text) else None
    if parsed is None or max(parsed) >= 2**64:
        raise CommandFailure(f"{text!r} is not the id of a log entry, such as 1700000000000-0")
    return parsed


@dataclass(frozen=True)
class FoundExample:
    """entry: id of its log entry. number: its place in the order of learning."""

    entry: str
    number: int
    label: float
    weight: float
    learned: bool


async def find_examples(channel: Channel, model: str, identifier: str) -> list[FoundExample]:
    """The examples with that event id, or from the logged prediction of that id.

    Raises UnknownModel, and CommandFailure if there is none.
    """
    meta = await _meta(channel, model)
    wanted = {packed_id(identifier), event_digest(identifier)}
    keys = ModelKeys(model, meta.incarnation)
    found = [one async for entry in _all_entries(channel, keys) for one in _found(entry, wanted, meta)]
    if not found:
        raise CommandFailure(f"the log of {model} has no example of {identifier!r}, not any more or not yet")
    return found


def _found(entry: LogEntry, wanted: set[bytes], meta: Meta) -> Iterator[FoundExample]:
    try:
        batch = examples_of(entry)
    except FormatError:
        return
    for k in range(len(batch)):
        if not wanted.isdisjoint(_ids(batch, k)):
            weight = float(batch.weights[k]) if batch.weights.size else 1.0
            number = (entry.first_number or 0) + k
            label = plain_number(float(batch.labels[k]))
            yield FoundExample(str(entry.id), number, label, weight, entry.id <= meta.applied)


def _ids(batch: ExampleBatch, k: int) -> list[bytes]:
    return [ids[k] for ids in (batch.prediction_ids, batch.event_ids) if ids is not None]


async def _all_entries(channel: Channel, keys: ModelKeys) -> AsyncIterator[LogEntry]:
    after = "-"
    while found := await channel.call("XRANGE", keys.log, after, "+", "COUNT", _ENTRIES_PER_READ):
        for entry, fields in found:
            yield LogEntry.parse(entry, fields)
        after = f"({found[-1][0].decode()}"
