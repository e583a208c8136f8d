"""Creation of a model with an existing state, in one step: from a snapshot, as a clone, or with weights."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from redis.exceptions import ResponseError

from model_core.learning.state import ModelState
from service.errors import ModelExists, StateUnavailable
from service.models.alias_store import check_free, take_back_claim
from service.models.aliases import Aliases
from service.models.bulk_load import PATIENCE_SECONDS, PatientChannel, check_memory, fill
from service.models.config.model import ModelConfig
from service.models.feature_names import copy_names
from service.models.registry import Models, OpenModel, new_meta
from service.models.replica import Replica, load_replica
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.store.formats import check_family
from service.snapshots.take.capture import capture
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import MODELS, ModelKeys, lost_key, meta_key
from service.storage.scripts.models import Creation, create_filled_model


async def create_filled(
    channel: Channel,
    name: str,
    config: ModelConfig,
    state: ModelState,
    base: str,
    following: Mapping[str, str | int] | None = None,
) -> bool:
    """Create the model unless it exists; return whether it was created.

    `base`: the id of the snapshot that it begins with, or "". `following`: further fields of its meta, of a
    challenger. Raises AliasConflict, ServerFull, StateUnavailable, and what Channel.call raises. After
    StateUnavailable, or when cancelled, the model may have been created.
    """
    await check_free(channel, name)
    meta = new_meta(config) | {"t": state.t, "base": base, "base_applied": "0-0", "base_number": 0}
    if discount := state.discount.text():
        meta["discount"] = discount
    meta |= following or {}
    keys = ModelKeys(name, str(meta["incarnation"]))
    server = PatientChannel(channel, PATIENCE_SECONDS)
    filled, slots = keys.state(0), state.seen_slots()
    try:
        await fill(server, filled, state, slots)
    except BaseException:
        await server.discard(filled)
        raise
    creation = partial(create_filled_model, keys=keys, filled=filled, slots=len(slots), meta=meta)
    while (created := await _create(server, creation)) is Creation.NAME_CLAIMED:
        try:
            await take_back_claim(channel, name)
        except BaseException:
            await server.discard(filled)
            raise
    if created is Creation.CREATED:
        with contextlib.suppress(*CONNECTION_FAILURES, ResponseError):  # the index is repaired periodically
            await channel.call("SADD", MODELS, name)
            await channel.call("DEL", lost_key(name))
        return True
    await server.discard(filled)
    if created is Creation.EXISTS:
        return False
    raise StateUnavailable(f"Redis lost part of the state of {name!r}, which was not created. Try again.")


async def _create(server: PatientChannel, creation: Callable[[Channel], Awaitable[Creation]]) -> Creation:
    try:
        return await server.run(creation)
    except StateUnavailable as away:
        raise StateUnavailable(
            f"{away.detail} Whether the model was created is not known; see the list of models."
        ) from away


async def clone_model(
    models: Models,
    aliases: Aliases,
    store: SnapshotStore,
    source: str,
    name: str,
    changes: Mapping[str, Mapping[str, Any]],
) -> OpenModel:
    """Clone a model, as `clone` does, and open the clone. Raises ServiceError, InvalidInput."""
    await aliases.refuse(source)
    async with models.channel() as channel:
        await clone(channel, store, source, name, changes)
    return await models.get(name)


async def clone(
    channel: Channel, store: SnapshotStore, source: str, name: str, changes: Mapping[str, Mapping[str, Any]]
) -> None:
    """Create a model from a consistent state of another, with `changes` to its `hyper` and `feedback`.

    The state is saved as the clone's first snapshot, so that `ftrl rebuild` can verify the clone from the
    start. It has the names of features that the source has. Its evaluation begins with its own predictions;
    pending predictions stay with the source.

    Raises ModelGone, InvalidInput, ModelExists, AliasConflict, SnapshotMismatch, ServerFull,
    ContractMismatch, StoreUnavailable, StateUnavailable, and what Channel.call raises. After
    StateUnavailable the clone may exist, and its first snapshot stays.
    """
    replica = await load_replica(channel, source)
    config = replica.config.changed(changes)
    check_family(replica.config, config.hyper, f"The model {source!r}")
    await create_with_snapshot(channel, store, name, config, replica, f"clone of {source}")
    await copy_names(channel, replica.keys, name)


async def check_new(channel: Channel, name: str) -> None:
    """Raise ModelExists, AliasConflict, and what Channel.call raises, unless the name is free."""
    await check_free(channel, name)
    if await channel.call("EXISTS", meta_key(name)):
        raise _exists(name)


async def create_with_snapshot(
    channel: Channel, store: SnapshotStore, name: str, config: ModelConfig, replica: Replica, reason: str
) -> None:
    """Create a model with the state of `replica`, which is saved first as the model's first snapshot.

    Raises ModelExists, AliasConflict, ServerFull, StoreUnavailable, StateUnavailable, and what Channel.call
    raises. After StateUnavailable the model may exist, and its first snapshot stays.
    """
    await check_new(channel, name)
    await check_memory(channel, replica.state.features_seen, replica.state.experts)
    catalogue = await asyncio.to_thread(store.of, name)
    entry = await asyncio.to_thread(lambda: catalogue.write(capture(replica, {}).snapshot(reason)))
    try:
        created = await create_filled(channel, name, config, replica.state, entry.id)
    except (StateUnavailable, asyncio.CancelledError):  # it may exist, and then needs its first snapshot
        raise
    except BaseException:
        await asyncio.to_thread(catalogue.delete, entry)
        raise
    if not created:
        await asyncio.to_thread(catalogue.delete, entry)
        raise _exists(name)


def _exists(name: str) -> ModelExists:
    return ModelExists(f"Model {name!r} already exists; delete it first, or choose another name.")
