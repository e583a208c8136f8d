"""The operator's proof that the state is what the log says: made again, from a snapshot or from nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import numpy as np

from model_core.state import ModelState
from model_core.text_problems import LineError
from service.alias_names import check_free
from service.errors import CommandFailure
from service.model_config import ModelConfig
from service.readers import read_examples
from service.redis_client import Channel
from service.replica import gone_is_unknown, load_replica
from service.rows import Format, ReadOptions
from service.snapshots.catalogue import Catalogue
from service.snapshots.rebuild_start import start_of
from service.snapshots.replaying import Replay
from service.text_sources import TextSource


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

    Raises UnknownModel, AliasConflict, UnknownSnapshot, DamagedSnapshot, SnapshotMismatch, LogIncomplete,
    DamagedLogSegment, CommandFailure, StoreUnavailable, UnreadableFile, and what Channel.call raises.
    """
    await check_free(channel, catalogue.model)
    with gone_is_unknown():
        replica = await load_replica(channel, catalogue.model)
    start = await start_of(channel, catalogue, replica, wanted)
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
