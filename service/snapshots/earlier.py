"""What the store has already of a model that a learner begins to lead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from service.model_config import ModelConfig
from service.redis_client import Channel
from service.redis_keys import LogId, ModelKeys
from service.replica import Replica
from service.snapshots.base import Base, read_base
from service.snapshots.catalogue import Catalogue, Entry
from service.snapshots.store import SnapshotStore


class Place(NamedTuple):
    """Where a replica stood."""

    keys: ModelKeys
    config: ModelConfig
    revision: str
    token: bytes
    applied: LogId

    @classmethod
    def of(cls, replica: Replica) -> Place:
        return cls(replica.keys, replica.config, replica.revision, replica.token, replica.applied)


class Earlier(NamedTuple):
    """`written`: when the newest snapshot was, None where there is none. `saved`: whether one of them holds
    what the model has learned at that place.
    """

    written: datetime | None
    saved: bool


async def earlier_snapshots(channel: Channel, store: SnapshotStore, place: Place) -> Earlier:
    """Raises ServiceError where the store fails, and what Channel.call raises."""
    base = await read_base(channel, place.keys.meta)
    return await asyncio.to_thread(lambda: _earlier(store.of(place.keys.model), place, base))


def _earlier(catalogue: Catalogue, place: Place, base: Base) -> Earlier:
    entries = catalogue.entries()
    if not entries:
        return Earlier(None, False)
    newest = entries[-1]
    saved = newest.id.endswith(f"-{place.revision}") or _is_base(catalogue, entries, place, base)
    return Earlier(newest.written, saved)


def _is_base(catalogue: Catalogue, entries: Sequence[Entry], place: Place, base: Base) -> bool:
    """Whether the model is still what it began with: a clone, or restored, and nothing learned since."""
    if base.applied != place.applied:
        return False
    return any(
        catalogue.header(entry).config == place.config.to_json()
        for entry in entries
        if entry.id == base.snapshot
    )
