"""Creation of challengers, which learn the log of another model."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any

from service.errors import (
    ChallengerRefused,
    ModelConflict,
    StateUnavailable,
    UnknownModel,
)
from service.models.aliases import Aliases
from service.models.bulk_load import check_memory
from service.models.challengers import (
    MAX_CHALLENGERS,
    challenger_config,
    forget_follower,
    read_followers,
    report_follower,
)
from service.models.config.model import ModelConfig, checked_config
from service.models.registry import Models, OpenModel, difference
from service.models.replica import ModelGone, Replica, read_meta
from service.snapshots.restore.beginning import NOW, STATE, WHAT_IF, begin, champion_meta, mismatch_of
from service.snapshots.restore.create import create_filled
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import Channel
from service.storage.records import LOG_START, Follower, Follows, Meta, ModelKeys
from service.storage.scripts.models import set_promotion


async def challenge(
    models: Models,
    aliases: Aliases,
    store: SnapshotStore,
    name: str,
    champion: str,
    start: str | None,
    body: Mapping[str, Any],
    promote_after: int | None = None,
) -> tuple[OpenModel, bool]:
    """Create a challenger of a model, or of the one that an alias means; return it, and True if it is new.
    If it exists, only `promote_after` is changed.

    `start`: STATE, NOW, LOG, or the id or tag of a snapshot of the champion; None: STATE if the configuration
    allows that, else NOW. `body`: its configuration, as in a PUT; what is left out is that of the champion.
    `promote_after`: for how many examples it has to stay better to be promoted automatically; None: never.

    Raises ServiceError, InvalidInput.
    """
    model = await aliases.named(champion)
    await aliases.refuse(name)
    async with models.channel() as channel:
        try:
            meta = await read_meta(channel, model)
        except ModelGone:
            raise UnknownModel(model, alias=champion if champion != model else None) from None
        config = challenger_config(checked_config(model, meta), body)
        keys = ModelKeys(model, meta.incarnation)
        created = await create_challenger(channel, store, name, keys, start, config)
        stored = ModelKeys(name, (await read_meta(channel, name)).incarnation)
        await set_promotion(channel, stored, promote_after)
    return await models.get(name), created


async def create_challenger(
    channel: Channel,
    store: SnapshotStore,
    name: str,
    champion: ModelKeys,
    start: str | Replica | None,
    config: ModelConfig,
) -> bool:
    """Create a challenger; return False if that very challenger exists.

    `start`: as of `challenge`, or a state that this configuration has made of the champion's log up to
    `applied`, as a replica of the champion with that state.

    Raises ServiceError, and what Channel.call raises.
    """
    _refuse(name, champion.model, await champion_meta(channel, champion))
    if await _exists(channel, name, champion.model, config):
        return False
    others = await read_followers(channel, champion)
    if len(others.keys() - {name}) >= MAX_CHALLENGERS:
        raise ChallengerRefused(
            f"Model {champion.model!r} has {MAX_CHALLENGERS} challengers: delete one of them first."
        )
    return await _create(channel, store, name, champion, start, config)


def _refuse(name: str, champion: str, meta: Meta) -> None:
    """Raises ChallengerRefused."""
    if name == champion:
        raise ChallengerRefused("A model cannot follow itself.", extra={"field": "follows"})
    if meta.follows:
        raise ChallengerRefused(
            f"Model {champion!r} is a challenger itself: follow its champion {meta.follows.model!r}.",
            extra={"field": "follows"},
        )


async def _exists(channel: Channel, name: str, champion: str, config: ModelConfig) -> bool:
    """Return whether that very challenger exists. Raises ModelConflict if the model is another one."""
    try:
        meta = await read_meta(channel, name)
    except ModelGone:
        return False
    if meta.follows is None or meta.follows.model != champion:
        follows = f"follows {meta.follows.model!r}" if meta.follows else "has a log of its own"
        raise ModelConflict(f"Model {name!r} exists and {follows}; delete it first.")
    stored = checked_config(name, meta)
    if stored.canonical() != config.canonical():
        raise ModelConflict(f"Model {name!r} exists with {difference(stored, config)}; delete it first.")
    return True


async def _create(
    channel: Channel,
    store: SnapshotStore,
    name: str,
    champion: ModelKeys,
    start: str | Replica | None,
    config: ModelConfig,
) -> bool:
    """Return False if another request has created it meanwhile.

    The champion is asked first to keep its log, and no longer if the model is not created.
    """
    incarnation = secrets.token_hex(8)
    meta = await read_meta(channel, champion.model)
    clock = channel.clock.milliseconds()
    held = LOG_START if start not in (STATE, NOW, None) else meta.applied
    held = start.applied if isinstance(start, Replica) else held
    await report_follower(channel, champion, name, Follower(incarnation, held, clock))
    try:
        if start is None:
            stored = checked_config(champion.model, meta)
            start = NOW if mismatch_of(stored, config) else STATE
        begins = await begin(channel, store, name, champion, start, config)
        await check_memory(channel, begins.state.features_seen, begins.state.experts)
        where = start if isinstance(start, str) else WHAT_IF
        created = await create_filled(
            channel,
            name,
            config,
            begins.state,
            begins.base,
            following={
                "incarnation": incarnation,
                "follows": Follows(champion.model, champion.incarnation, where).packed(),
                "applied": str(begins.at.id),
                "applied_number": begins.at.number,
                "base_applied": str(begins.at.id),
                "base_number": begins.at.number,
                "learned_digest": begins.digest,
            },
        )
    except (StateUnavailable, asyncio.CancelledError):  # it may exist
        raise
    except BaseException:
        await forget_follower(channel, champion, name)
        raise
    if not created:
        raise ModelConflict(f"Model {name!r} was created meanwhile by another client.")
    return True
