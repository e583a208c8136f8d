"""With what a model's state began, as its meta says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from service.models.config.model import ModelConfig
from service.models.replica import Replica
from service.snapshots.store.catalogue import Catalogue, Entry, SnapshotStore
from service.storage.channel import Channel
from service.storage.records import LOG_START, LogId, ModelKeys


class Base(NamedTuple):
    """`snapshot`: its id; None: it began with nothing; empty: with what no snapshot holds. The log goes on
    after the entry `applied`, with example `number`.
    """

    snapshot: str | None
    applied: LogId
    number: int


async def read_base(channel: Channel, meta: str) -> Base:
    """Raises what Channel.call raises."""
    snapshot, applied, number = await channel.call("HMGET", meta, "base", "base_applied", "base_number")
    if not snapshot:
        return Base(None if snapshot is None else "", LOG_START, 0)
    return Base(snapshot.decode(), LogId.parse(applied), int(number))


class ReplicaPosition(NamedTuple):
    """Where a replica stood."""

    keys: ModelKeys
    config: ModelConfig
    revision: str
    token: bytes
    applied: LogId

    @classmethod
    def of(cls, replica: Replica) -> ReplicaPosition:
        return cls(replica.keys, replica.config, replica.revision, replica.token, replica.applied)


class Earlier(NamedTuple):
    """`written`: when the newest snapshot was, None where there is none. `saved`: whether one of them holds
    what the model has learned at that place.
    """

    written: datetime | None
    saved: bool


async def earlier_snapshots(channel: Channel, store: SnapshotStore, place: ReplicaPosition) -> Earlier:
    """Raises ServiceError where the store fails, and what Channel.call raises."""
    base = await read_base(channel, place.keys.meta)
    return await asyncio.to_thread(lambda: _earlier(store.of(place.keys.model), place, base))


def _earlier(catalogue: Catalogue, place: ReplicaPosition, base: Base) -> Earlier:
    entries = catalogue.entries()
    if not entries:
        return Earlier(None, False)
    newest = entries[-1]
    saved = newest.id.endswith(f"-{place.revision}") or _is_base(catalogue, entries, place, base)
    return Earlier(newest.written, saved)


def _is_base(catalogue: Catalogue, entries: Sequence[Entry], place: ReplicaPosition, base: Base) -> bool:
    """Whether the model is still what it began with: a clone, or restored, and nothing learned since."""
    if base.applied != place.applied:
        return False
    return any(
        catalogue.header(entry).config == place.config.to_json()
        for entry in entries
        if entry.id == base.snapshot
    )
