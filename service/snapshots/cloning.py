"""A new model that begins with what another has learned."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from service.alias_names import check_free
from service.errors import ModelExists, StateUnavailable
from service.redis_client import Channel
from service.redis_keys import meta_key
from service.replica import Replica, load_replica
from service.snapshots.capture import capture
from service.snapshots.catalogue import Catalogue, Entry
from service.snapshots.creating import check_memory, create_filled
from service.snapshots.fitting import check_family
from service.snapshots.store import SnapshotStore


async def clone(
    channel: Channel, store: SnapshotStore, source: str, name: str, changes: Mapping[str, Mapping[str, Any]]
) -> None:
    """Of one commit of the source. What it begins with is the first snapshot of the clone, so that `ftrl
    rebuild` can prove the clone from its first moment on; its evaluation begins with its own predictions.
    `changes`: other fields of `hyper` and `feedback`. Predictions that wait for labels stay with the source.

    Raises ModelGone, InvalidInput, ModelExists, AliasConflict, SnapshotMismatch, ServerFull,
    ContractMismatch, StoreUnavailable, StateUnavailable, and what Channel.call raises. With
    StateUnavailable the clone may be there, and its first snapshot stays.
    """
    replica = await load_replica(channel, source)
    config = replica.config.changed(changes)
    check_family(replica.config, config.hyper, f"The model {source!r}")
    await check_free(channel, name)
    if await channel.call("EXISTS", meta_key(name)):
        raise _exists(name)
    await check_memory(channel, replica.state.features_seen)
    catalogue = await asyncio.to_thread(store.of, name)
    entry = await asyncio.to_thread(_save, catalogue, replica)
    try:
        created = await create_filled(channel, name, config, replica.state, entry.id)
    except (StateUnavailable, asyncio.CancelledError):  # it may be there, and then it needs its beginning
        raise
    except BaseException:
        await asyncio.to_thread(catalogue.delete, entry)
        raise
    if not created:
        await asyncio.to_thread(catalogue.delete, entry)
        raise _exists(name)


def _save(catalogue: Catalogue, replica: Replica) -> Entry:
    return catalogue.write(capture(replica, {}).snapshot(f"clone of {replica.keys.model}"))


def _exists(name: str) -> ModelExists:
    return ModelExists(f"Model {name!r} exists already; delete it first, or take another name.")
