"""The origin of a model's state: the snapshot that it began with, and those taken since."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from service.models.config.model import ModelConfig
from service.models.replica import Replica
from service.snapshots.store.catalogue import Catalogue, Entry, SnapshotStore
from service.storage.channel import Channel
from service.storage.records import LOG_START, LogId, ModelKeys

FROM_NOTHING = "nothing"
"""In the place of a snapshot: the state was empty where the log continues; no snapshot has such an id."""


class Base(NamedTuple):
    """The snapshot that a state began with: its id, None for an empty state, or "" if no snapshot holds it.

    The log continues after the entry `applied`, with example `number`.
    """

    snapshot: str | None
    applied: LogId
    number: int


async def read_base(channel: Channel, meta: str) -> Base:
    """Read the base from the model's meta. Raises what Channel.call raises."""
    snapshot, applied, number = await channel.call("HMGET", meta, "base", "base_applied", "base_number")
    if not snapshot:
        return Base(None if snapshot is None else "", LOG_START, 0)
    base = None if snapshot.decode() == FROM_NOTHING else snapshot.decode()
    return Base(base, LogId.parse(applied), int(number))


class ReplicaPosition(NamedTuple):
    """The position of a replica, which moves on meanwhile."""

    keys: ModelKeys
    config: ModelConfig
    revision: str
    token: bytes
    applied: LogId

    @classmethod
    def of(cls, replica: Replica) -> ReplicaPosition:
        return cls(replica.keys, replica.config, replica.revision, replica.token, replica.applied)


class EarlierSnapshots(NamedTuple):
    """Snapshots of a model in the store. `newest`: the last of them, or None; `saved`: whether one holds all
    that the model had learned at a position. `unsaved_since`: without any, when the oldest example in the log
    was appended; None for an empty log.
    """

    newest: Entry | None
    saved: bool
    unsaved_since: datetime | None = None


async def earlier_snapshots(
    channel: Channel, store: SnapshotStore, position: ReplicaPosition
) -> EarlierSnapshots:
    """Look up the stored snapshots. Raises ServiceError if the store fails, and what Channel.call raises."""
    base = await read_base(channel, position.keys.meta)
    earlier = await asyncio.to_thread(lambda: _earlier(store.of(position.keys.model), position, base))
    if earlier.newest is not None:
        return earlier
    first = await channel.call("XRANGE", position.keys.log, "-", "+", "COUNT", 1)
    if not first:
        return earlier
    milliseconds = LogId.parse(first[0][0]).milliseconds
    return earlier._replace(unsaved_since=datetime.fromtimestamp(milliseconds / 1000, UTC))


def _earlier(catalogue: Catalogue, position: ReplicaPosition, base: Base) -> EarlierSnapshots:
    entries = catalogue.entries()
    if not entries:
        return EarlierSnapshots(None, False)
    newest = entries[-1]
    saved = newest.revision == position.revision or _is_base(catalogue, entries, position, base)
    return EarlierSnapshots(newest, saved)


def _is_base(catalogue: Catalogue, entries: Sequence[Entry], position: ReplicaPosition, base: Base) -> bool:
    """Return whether the model was cloned or restored and has learned nothing since."""
    if base.applied != position.applied:
        return False
    return any(
        catalogue.header(entry).config == position.config.to_json()
        for entry in entries
        if entry.id == base.snapshot
    )
