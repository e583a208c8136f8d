"""Finding a window of a model's log, by the model's time: that of the newest example so far."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from service.errors import CommandFailure
from service.models.replica import Replica, gone_is_unknown, load_head
from service.snapshots.restore.log_replay import LogReader
from service.snapshots.store.catalogue import Catalogue
from service.snapshots.store.formats import LogArchive
from service.storage.channel import Channel
from service.storage.records import FIGURES, LogEntry, LogId


@dataclass(frozen=True)
class Wanted:
    """From the time `since` to before `until`, in milliseconds since 1970; None: all that is there.

    last: the last so many milliseconds before `until`, or before the newest example, in place of `since`.
    """

    since: int | None = None
    until: int | None = None
    last: int | None = None


class Position(NamedTuple):
    """A place in the log: after the entry `after`, before the example `number`."""

    after: LogId
    number: int


@dataclass(frozen=True)
class LogWindow:
    """The examples from `begin` to before `end`, which is after the entry with the last of them.

    replica: the model when it was found, without its state. reaches_back: False if the log, with its archive,
    begins here, although there were earlier examples.
    """

    replica: Replica
    begin: Position
    end: Position
    reaches_back: bool

    @property
    def size(self) -> int:
        """The number of examples."""
        return self.end.number - self.begin.number


async def find_window(channel: Channel, catalogue: Catalogue, wanted: Wanted) -> LogWindow:
    """Find the window in what the model has learned.

    Raises UnknownModel, ContractMismatch, CommandFailure if it is empty, LogIncomplete,
    DamagedLogSegment, StoreUnavailable, and what Channel.call raises.
    """
    with gone_is_unknown():
        replica = await load_head(channel, catalogue.model)
    archive = catalogue.log_archive(replica.log_keys)
    until = wanted.until
    since = wanted.since
    if wanted.last is not None:
        since = (await _newest(channel, replica) if until is None else until) - wanted.last
    reach, begin = await _first_from(channel, archive, replica, since)
    learned = end = Position(replica.applied, replica.applied_number)
    if begin is not None and since is not None:
        begin = await _passed(LogReader(channel, archive, replica.log_keys, *begin), learned, since)
    if begin is not None and until is not None:
        end = await _passed(LogReader(channel, archive, replica.log_keys, *begin), learned, until) or learned
    if begin is None or begin.number >= end.number:
        raise CommandFailure(await _nothing(channel, replica, since, until))
    return LogWindow(replica, begin, end, begin.number > reach or reach == 0)


def text_of_time(milliseconds: int) -> str:
    """A time in RFC 3339, to the second."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _newest(channel: Channel, replica: Replica) -> int:
    """The newest time of what was learned, as published with the evaluation."""
    stored = await channel.call("HGET", replica.keys.evaluation, FIGURES)
    as_of = json.loads(stored)["as_of"] if stored else None
    if as_of is None:
        return replica.applied.milliseconds
    return round(datetime.fromisoformat(as_of).timestamp() * 1000)


async def _first_from(
    channel: Channel, archive: LogArchive, replica: Replica, since: int | None
) -> tuple[int, Position | None]:
    """The first example that the log still has, with its archive; and the place before the first entry that
    was appended at or after `since`. An example is at most as new as its entry.
    """
    oldest = await _first_entry(channel, replica, "-")
    in_log = replica.applied_number if oldest is None else oldest.first_number or 0
    reach = await asyncio.to_thread(archive.reaches_back_from, in_log)
    if reach < in_log and (oldest is None or since is None or oldest.id.milliseconds > since):
        archived = await asyncio.to_thread(_first_archived, archive, reach, since or 0)
        if archived is not None:
            return reach, archived
    entry = oldest if since is None else await _first_entry(channel, replica, str(since))
    if entry is None:
        return reach, None
    return reach, Position(entry.id.before(), entry.first_number or 0)


def _first_archived(archive: LogArchive, reach: int, since: int) -> Position | None:
    for segment in archive.segments():
        if segment.first >= reach and segment.last_entry.milliseconds >= since:
            for entry in archive.entries_from(segment.first):
                if entry.id.milliseconds >= since:
                    return Position(entry.id.before(), entry.first_number or 0)
    return None


async def _first_entry(channel: Channel, replica: Replica, start: str) -> LogEntry | None:
    found = await channel.call("XRANGE", replica.log_keys.log, start, "+", "COUNT", 1)
    return LogEntry.parse(*found[0]) if found else None


async def _passed(reader: LogReader, learned: Position, time: int) -> Position | None:
    """The place before the first entry with an example at or after `time`; None if none was learned."""
    while reader.next_number < learned.number:
        before = reader.applied
        for logged in await reader.read(learned.after):
            if logged.newest >= time:
                return Position(before, logged.number)
            before = logged.id
    return None


async def _nothing(channel: Channel, replica: Replica, since: int | None, until: int | None) -> str:
    model = replica.keys.model
    if not replica.applied_number:
        return f"{model} has learned no example yet"
    bounds = [f"from {text_of_time(since)}"] if since is not None else []
    bounds += [f"before {text_of_time(until)}"] if until is not None else []
    newest = text_of_time(await _newest(channel, replica))
    where = " ".join(bounds) or "any more, nor does an archive"
    return f"the log of {model} holds no learned example {where}; its newest example is of {newest}"
