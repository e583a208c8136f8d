"""Rebuilding of a state from the log, to verify it: from a snapshot, from the beginning, or from a file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from model_core.learning.state import ModelState
from model_core.text.problems import LineError
from service.errors import CommandFailure, UnknownSnapshot
from service.models.alias_store import check_free
from service.models.config.model import ModelConfig
from service.models.replica import Replica, gone_is_unknown, load_replica
from service.parsing.files.reader import read_examples
from service.parsing.files.rows import Format, ReadOptions
from service.parsing.files.source import TextSource
from service.snapshots.restore.log_replay import Replay
from service.snapshots.store.catalogue import Catalogue, Entry
from service.snapshots.store.formats import LogArchive, is_of_state, restored_config
from service.snapshots.take.origin import Base, read_base
from service.storage.channel import Channel
from service.storage.records import LOG_START, LogEntry, LogId

NOTHING = "nothing"


@dataclass(frozen=True)
class FileToLearn:
    """A file of examples, and how to read it."""

    name: str
    file_format: Format
    options: ReadOptions


@dataclass(frozen=True)
class Start:
    """A state to begin with; the log continues after the entry `applied` and `number` examples."""

    what: str
    state: ModelState
    applied: LogId
    number: int


@dataclass(frozen=True)
class Rebuilt:
    """Outcome of a rebuild; `difference` is empty if the states are equal bit for bit."""

    start: str
    examples: int
    t: int
    slots: int
    difference: str


Progress = Callable[[int, int | None], None]
"""Called with the number of examples that were learned again, and that of all; None: it is not known."""


async def rebuild(
    channel: Channel,
    catalogue: Catalogue,
    wanted: str | None,
    file: FileToLearn | None = None,
    progress: Progress = lambda *_: None,
) -> Rebuilt:
    """Learn the log again, or a file in its place, and compare the result with the state in Redis.

    `wanted`: a snapshot to begin with, "nothing", or None for the earliest start from which the log is
    complete.

    Raises UnknownModel, AliasConflict, UnknownSnapshot, DamagedSnapshot, SnapshotMismatch, LogIncomplete,
    DamagedLogSegment, CommandFailure, StoreUnavailable, UnreadableFile, and what Channel.call raises.
    """
    await check_free(channel, catalogue.model)
    with gone_is_unknown():
        replica = await load_replica(channel, catalogue.model)
    archive = catalogue.log_archive(replica.log_keys)
    start = await start_of(channel, catalogue, archive, replica, wanted)
    if file is not None:
        examples = await _learn_file(start.state, replica.config, file, progress)
    else:
        replay = Replay(channel, archive, replica, start.applied, start.number)
        replay.state = start.state
        total = replica.applied_number - start.number
        examples = await replay.catch_up(replica.applied, lambda done: progress(done, total))
    difference = first_difference(replica.state, start.state)
    return Rebuilt(start.what, examples, start.state.t, len(start.state.seen_slots()), difference)


def first_difference(stored: ModelState, rebuilt: ModelState) -> str:
    """Describe the first slot in which the states differ, or else their numbers of rounds or discounts; "" if
    equal.
    """
    slots = np.union1d(stored.seen_slots(), rebuilt.seen_slots())
    differs = (stored.marks[slots] & 1) != (rebuilt.marks[slots] & 1)
    rows, others = stored.rows_at(slots), rebuilt.rows_at(slots)
    differs |= (rows.view(np.int64) != others.view(np.int64)).any(axis=1)
    if differs.any():
        slot = int(slots[np.argmax(differs)])
        name = "the bias" if slot == stored.size else f"slot {slot}"
        count = int(np.count_nonzero(differs))
        return f"{name}: Redis has {_row(stored, slot)}, rebuilt {_row(rebuilt, slot)} ({count} slots differ)"
    if stored.t != rebuilt.t:
        return f"t: Redis has {stored.t}, rebuilt {rebuilt.t}"
    if stored.discount != rebuilt.discount:
        return f"discount: Redis has {stored.discount.text()!r}, rebuilt {rebuilt.discount.text()!r}"
    return ""


def _row(state: ModelState, slot: int) -> str:
    if not state.marks[slot] & 1:
        return "nothing"
    (row,) = state.rows_at(np.array([slot], np.uint32)).tolist()
    z, n = row[: state.experts], row[state.experts :]
    return f"z = {z[0]!r}, n = {n[0]!r}" if state.experts == 1 else f"z = {z}, n = {n}"


async def _learn_file(state: ModelState, config: ModelConfig, file: FileToLearn, progress: Progress) -> int:
    """Learn in a thread, so that Ctrl-C is not kept waiting until the end of the file."""
    learned = 0
    with (
        TextSource(file.name) as source,
        closing(read_examples(source, file.file_format, config.hashing, file.options)) as chunks,
    ):
        while (chunk := await _to_its_end(next, chunks, None)) is not None:
            for error in chunk.errors:
                raise CommandFailure(_line(file.name, error))
            await _to_its_end(config.learn, state, chunk.batch)
            learned += len(chunk.batch)
            progress(learned, None)
    return learned


async def _to_its_end(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function in a thread, and wait for its end even if this task is cancelled meanwhile."""
    call = asyncio.create_task(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        raise


def _line(name: str, error: LineError) -> str:
    return f"{name}, line {error.line_number}: {error.reason}"


async def start_of(
    channel: Channel, catalogue: Catalogue, archive: LogArchive, replica: Replica, wanted: str | None
) -> Start:
    """Return the start that `wanted` names, as described at `rebuild`."""
    if wanted == NOTHING:
        return _nothing(replica)
    if wanted is not None:
        return _from_snapshot(catalogue, catalogue.find(wanted), replica)
    base = await read_base(channel, replica.keys.meta)
    in_log = await _first_in_log(channel, replica)
    first = archive.reaches_back_from(in_log)
    start = _from_base(catalogue, replica, base, first) or _from_earliest(catalogue, replica, first)
    if start is None:
        raise CommandFailure(
            f"nothing to rebuild {catalogue.model} from: its log begins at example {first}, and the snapshot"
            " store has no snapshot of this state since; is it that of the service (FTRL_DATA_DIR or"
            " FTRL_SNAPSHOTS)? If so, take one with `ftrl snapshot create`"
        )
    return start


async def start_before(channel: Channel, catalogue: Catalogue, replica: Replica, number: int) -> Start | None:
    """Return the latest start of the state in force from which the log leads to example `number`; None if no
    snapshot of it is that old.
    """
    base = await read_base(channel, replica.keys.meta)
    found: dict[int, Entry] = {}
    for entry in catalogue.entries():
        header = catalogue.header(entry)
        if is_of_state(header, replica) and header.applied_number <= number:
            found[header.applied_number] = entry
    latest = max(found, default=-1)
    if base.snapshot != "" and latest < base.number <= number:
        return _from_base(catalogue, replica, base, base.number)
    return _from_snapshot(catalogue, found[latest], replica) if found else None


def _from_base(catalogue: Catalogue, replica: Replica, base: Base, first: int) -> Start | None:
    """Return the model's own base, if the snapshot exists and the log reaches back to it."""
    if base.snapshot == "" or first > base.number:
        return None
    if base.snapshot is None:
        return _nothing(replica, base)
    try:
        entry = catalogue.find(base.snapshot)
    except UnknownSnapshot:
        return None
    return _from_snapshot(catalogue, entry, replica, base)


def _from_earliest(catalogue: Catalogue, replica: Replica, first: int) -> Start | None:
    """Return the earliest snapshot of this state to which the log reaches back."""
    for entry in catalogue.entries():
        header = catalogue.header(entry)
        if is_of_state(header, replica) and first <= header.applied_number <= replica.applied_number:
            return _from_snapshot(catalogue, entry, replica)
    return None


def _nothing(replica: Replica, base: Base | None = None) -> Start:
    applied, number = (base.applied, base.number) if base else (LOG_START, 0)
    return Start(NOTHING, replica.config.empty_state(), applied, number)


def _from_snapshot(catalogue: Catalogue, entry: Entry, replica: Replica, base: Base | None = None) -> Start:
    snapshot = catalogue.load(entry)
    restored_config(snapshot.header, replica.config, None)
    if base is None:
        applied, number = LogId.parse(snapshot.header.applied), snapshot.header.applied_number
    else:
        applied, number = base.applied, base.number
    return Start(f"snapshot {entry.id}", snapshot.state(), applied, number)


async def _first_in_log(channel: Channel, replica: Replica) -> int:
    """Return the number of the first example in the log, or of the next one if the log is empty."""
    found = await channel.call("XRANGE", replica.log_keys.log, "-", "+", "COUNT", 1)
    if not found:
        return replica.applied_number
    return LogEntry.parse(*found[0]).first_number or 0
