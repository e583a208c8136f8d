"""The operator's proof that the state is what the log says: made again, from a snapshot or from nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import numpy as np

from model_core.state import ModelState
from model_core.text_problems import LineError
from service.errors import UnknownModel
from service.model_config import ModelConfig
from service.readers import read_examples
from service.redis_client import Channel
from service.redis_keys import LOG_START, LogEntry, LogId
from service.replica import ModelGone, Replica, load_replica
from service.rows import Format, ReadOptions
from service.serving import CommandFailure
from service.snapshots.catalogue import Catalogue, Entry
from service.snapshots.fitting import restored_config
from service.snapshots.replaying import Replay
from service.text_sources import TextSource

NOTHING = "nothing"


@dataclass(frozen=True)
class Start:
    """What a rebuild begins with: a state, and after which entry and how many examples the log goes on."""

    what: str
    state: ModelState
    applied: LogId
    number: int


@dataclass(frozen=True)
class FileToLearn:
    name: str
    file_format: Format
    options: ReadOptions


@dataclass(frozen=True)
class Rebuilt:
    """`difference` is empty where the states are equal, bit for bit."""

    start: str
    examples: int
    t: int
    slots: int
    difference: str


async def rebuild(
    channel: Channel, catalogue: Catalogue, wanted: str | None, file: FileToLearn | None = None
) -> Rebuilt:
    """`wanted`: a snapshot, "nothing", or None for the earliest start from which the log is complete. With a
    file, it is learned in place of the log.

    Raises UnknownModel, UnknownSnapshot, DamagedSnapshot, SnapshotMismatch, LogIncomplete, CommandFailure,
    StoreUnavailable, UnreadableFile, and what Channel.call raises.
    """
    try:
        replica = await load_replica(channel, catalogue.model)
    except ModelGone:
        raise UnknownModel(catalogue.model) from None
    start = await _start(channel, catalogue, replica, wanted)
    if file is not None:
        examples = _learn_file(start.state, replica.config, file)
    else:
        archive = catalogue.log_archive(replica.keys.incarnation)
        replay = Replay(channel, archive, replica.keys, replica.config, start.applied, start.number)
        replay.state = start.state
        examples = await replay.catch_up(replica.applied)
    difference = first_difference(replica.state, start.state)
    return Rebuilt(start.what, examples, start.state.t, len(start.state.seen_slots()), difference)


def first_difference(stored: ModelState, rebuilt: ModelState) -> str:
    """The first slot, or else the number of rounds, in which they differ."""
    slots = np.union1d(stored.seen_slots(), rebuilt.seen_slots())
    differs = (stored.marks[slots] & 1) != (rebuilt.marks[slots] & 1)
    differs |= (stored.rows[slots].view(np.int64) != rebuilt.rows[slots].view(np.int64)).any(axis=1)
    if differs.any():
        slot = int(slots[np.argmax(differs)])
        name = "the bias" if slot == stored.size else f"slot {slot}"
        count = int(np.count_nonzero(differs))
        return f"{name}: Redis has {_row(stored, slot)}, rebuilt {_row(rebuilt, slot)} ({count} slots differ)"
    if stored.t != rebuilt.t:
        return f"t: Redis has {stored.t}, rebuilt {rebuilt.t}"
    return ""


def _row(state: ModelState, slot: int) -> str:
    if not state.marks[slot] & 1:
        return "nothing"
    z, n = state.rows[slot].tolist()
    return f"z = {z!r}, n = {n!r}"


async def _start(channel: Channel, catalogue: Catalogue, replica: Replica, wanted: str | None) -> Start:
    if wanted == NOTHING:
        return _nothing(replica)
    if wanted is not None:
        return _from_snapshot(catalogue, catalogue.find(wanted), replica)
    base, applied, number = await channel.call(
        "HMGET", replica.keys.meta, "base", "base_applied", "base_number"
    )
    in_log = await _first_number(channel, replica)
    first = catalogue.log_archive(replica.keys.incarnation).reaches_back_from(in_log)
    if base is None and first == 0:
        return _nothing(replica)
    if base and first <= int(number):
        for entry in catalogue.entries():
            if entry.id == base.decode():
                return _from_snapshot(catalogue, entry, replica, (LogId.parse(applied), int(number)))
    for entry in catalogue.entries():
        header = catalogue.header(entry)
        of_this_state = (header.incarnation, header.generation) == (
            replica.keys.incarnation,
            replica.generation,
        )
        if of_this_state and first <= header.applied_number <= replica.applied_number:
            return _from_snapshot(catalogue, entry, replica)
    raise CommandFailure(
        f"nothing to rebuild {catalogue.model} from: its log begins at example {first}, and there is no"
        " snapshot of this state since; take one with `ftrl snapshot create`"
    )


def _nothing(replica: Replica) -> Start:
    return Start(NOTHING, ModelState.empty(replica.config.hashing.bits), LOG_START, 0)


def _from_snapshot(
    catalogue: Catalogue, entry: Entry, replica: Replica, place: tuple[LogId, int] | None = None
) -> Start:
    snapshot = catalogue.load(entry)
    restored_config(snapshot.header, replica.config, None)
    applied, number = place or (LogId.parse(snapshot.header.applied), snapshot.header.applied_number)
    return Start(f"snapshot {entry.id}", snapshot.state(), applied, number)


async def _first_number(channel: Channel, replica: Replica) -> int:
    """The dense number of the first example in the log; of the next one where it is empty."""
    found = await channel.call("XRANGE", replica.keys.log, "-", "+", "COUNT", 1)
    if not found:
        return replica.applied_number
    return LogEntry.parse(*found[0]).first_number or 0


def _learn_file(state: ModelState, config: ModelConfig, file: FileToLearn) -> int:
    learned = 0
    with (
        TextSource(file.name) as source,
        closing(read_examples(source, file.file_format, config.hashing, file.options)) as chunks,
    ):
        for chunk in chunks:
            for error in chunk.errors:
                raise CommandFailure(_line(file.name, error))
            config.learn(state, chunk.batch)
            learned += len(chunk.batch)
    return learned


def _line(name: str, error: LineError) -> str:
    return f"{name}, line {error.line_number}: {error.reason}"
