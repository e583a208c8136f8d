"""Creation of challengers, which learn the log of another model, and their new start if they cannot go on."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from model_core.learning.state import ModelState
from model_core.snapshot import Snapshot
from service.errors import (
    ChallengerRefused,
    LogIncomplete,
    ModelConflict,
    RestoreConflict,
    SnapshotMismatch,
    StateUnavailable,
    UnknownModel,
)
from service.models.aliases import Aliases
from service.models.bulk_load import PATIENCE_SECONDS, PatientChannel, check_memory, fill
from service.models.challengers import (
    MAX_CHALLENGERS,
    challenger_config,
    forget_follower,
    read_followers,
    report_follower,
)
from service.models.config.model import ModelConfig, checked_config
from service.models.registry import Models, OpenModel, difference
from service.models.replica import ModelGone, Replica, gone_is_unknown, load_replica, read_meta
from service.snapshots.restore.create import create_filled
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.store.formats import check_family, config_of
from service.snapshots.take.capture import capture
from service.snapshots.take.origin import FROM_NOTHING
from service.storage.channel import Channel
from service.storage.records import LOG_START, Follower, Follows, LogEntry, LogId, Meta, ModelKeys
from service.storage.scripts.models import LogPoint, Switch, new_generation, set_promotion, switch_to_restored

STATE, NOW, LOG = "state", "now", "log"
"""Where a challenger begins, unless it is a snapshot of its champion: from the champion's present state;
empty, from the present position in its log; empty, from where the log begins.
"""
WHAT_IF = "what-if"
"""Where a challenger began that continues from the state that `ftrl whatif` has reached."""


class Beginning(NamedTuple):
    """The state with which a challenger begins, the snapshot that holds it, and the position in the
    champion's log after which it learns on; `digest`: of the entry there, empty if there is none.
    """

    state: ModelState
    base: str
    at: LogPoint
    digest: str


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
    _refuse(name, champion.model, await _meta_of(channel, champion))
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
            start = NOW if _unfit(stored, config) else STATE
        begins = await _beginning(channel, store, name, champion, start, config)
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


async def _beginning(
    channel: Channel,
    store: SnapshotStore,
    name: str,
    champion: ModelKeys,
    start: str | Replica,
    config: ModelConfig,
) -> Beginning:
    """Raises ServiceError, and what Channel.call raises."""
    if isinstance(start, Replica):
        return await _from_learned(channel, store, name, champion, replace(start, config=config))
    if start == STATE:
        return await _from_state(channel, store, name, champion, config)
    if start == NOW:
        meta = await _meta_of(channel, champion)
        return await _from_nothing(channel, champion, LogPoint(meta.applied, meta.applied_number), config)
    first, entry = await _first_in_log(channel, champion)
    if start == LOG:
        at = LogPoint(LOG_START if first == 0 else entry.before(), first)
        return Beginning(config.empty_state(), FROM_NOTHING, at, "")
    return await _from_snapshot(channel, store, name, champion, start, first, config)


async def _from_nothing(
    channel: Channel, champion: ModelKeys, at: LogPoint, config: ModelConfig
) -> Beginning:
    return Beginning(config.empty_state(), FROM_NOTHING, at, await digest_at(channel, champion, at))


async def _from_state(
    channel: Channel, store: SnapshotStore, name: str, champion: ModelKeys, config: ModelConfig
) -> Beginning:
    """The champion's present state, saved as a snapshot of the challenger."""
    with gone_is_unknown():
        replica = await load_replica(channel, champion.model)
    if replica.keys != champion:
        raise UnknownModel(champion.model)
    if unfit := _unfit(replica.config, config):
        raise SnapshotMismatch(f'{unfit} Begin with `"start": "now"`.')
    return await _saved(channel, store, name, champion, replica)


async def _from_learned(
    channel: Channel, store: SnapshotStore, name: str, champion: ModelKeys, learned: Replica
) -> Beginning:
    """Raises LogIncomplete if the log no longer has what comes after it."""
    first, _ = await _first_in_log(channel, champion)
    if first > learned.applied_number:
        raise LogIncomplete(
            f"The log of {champion.model!r} was trimmed up to example {first} meanwhile, and example"
            f" {learned.applied_number} comes next. Nothing was created."
        )
    return await _saved(channel, store, name, champion, learned)


async def _saved(
    channel: Channel, store: SnapshotStore, name: str, champion: ModelKeys, replica: Replica
) -> Beginning:
    """Begin with the state of a replica, which is saved as a snapshot of the challenger."""
    copied = capture(replica, {})
    catalogue = await asyncio.to_thread(store.of, name)
    snapshot = await asyncio.to_thread(copied.snapshot, f"challenger of {champion.model}")
    entry = await asyncio.to_thread(catalogue.write, snapshot)
    at = LogPoint(replica.applied, replica.applied_number)
    return Beginning(replica.state, entry.id, at, await digest_at(channel, champion, at))


async def _from_snapshot(
    channel: Channel,
    store: SnapshotStore,
    name: str,
    champion: ModelKeys,
    wanted: str,
    first: int,
    config: ModelConfig,
) -> Beginning:
    """`first`: the number of the first example in the log."""
    theirs = await asyncio.to_thread(store.of, champion.model)
    entry = await asyncio.to_thread(theirs.find, wanted)
    snapshot = await asyncio.to_thread(theirs.load, entry)
    header = snapshot.header
    if header.incarnation != champion.incarnation or header.applied_number < first:
        raise LogIncomplete(
            f"The log of {champion.model!r} begins with example {first} and does not reach back to snapshot"
            f' {entry.id}: begin with a later one, or with `"start": "state"`.'
        )
    if unfit := _unfit(config_of(header), config):
        raise SnapshotMismatch(f'{unfit} Begin with `"start": "log"`.')
    return await beginning_of(channel, store, name, champion, snapshot)


async def beginning_of(
    channel: Channel, store: SnapshotStore, name: str, champion: ModelKeys, snapshot: Snapshot
) -> Beginning:
    """Begin with a snapshot of the champion, which is stored as one of the challenger `name`, too.

    Raises StoreUnavailable, and what Channel.call raises.
    """
    state = await asyncio.to_thread(snapshot.state)
    ours = await asyncio.to_thread(store.of, name)
    entry = await asyncio.to_thread(ours.write, snapshot)
    at = LogPoint(LogId.parse(snapshot.header.applied), snapshot.header.applied_number)
    return Beginning(state, entry.id, at, await digest_at(channel, champion, at))


def _unfit(champion: ModelConfig, config: ModelConfig) -> str:
    """Describe why a state of the champion has another meaning in the challenger; empty if it has not."""
    for name in ("bits", "bias", "prior_probability"):
        had, wanted = getattr(champion.hashing, name), getattr(config.hashing, name)
        if had != wanted:
            return f"The champion's state has hashing.{name} = {had!r}, not {wanted!r}."
    try:
        check_family(champion, config.hyper, "The champion's state")
    except SnapshotMismatch as unfit:
        return unfit.detail
    return ""


async def _first_in_log(channel: Channel, champion: ModelKeys) -> tuple[int, LogId]:
    """The number of the first example in the log, or of the next one if it is empty, and its entry."""
    found = await channel.call("XRANGE", champion.log, "-", "+", "COUNT", 1)
    if not found:
        meta = await _meta_of(channel, champion)
        return meta.appended, LogId(meta.applied.milliseconds, meta.applied.sequence + 1)
    entry = LogEntry.parse(*found[0])
    return entry.first_number or 0, entry.id


async def _meta_of(channel: Channel, champion: ModelKeys) -> Meta:
    with gone_is_unknown():
        meta = await read_meta(channel, champion.model)
    if meta.incarnation != champion.incarnation:
        raise UnknownModel(champion.model)
    return meta


async def digest_at(channel: Channel, champion: ModelKeys, at: LogPoint) -> str:
    """Return the digest of the log entry that ends at `at`; empty if it is not in the log.

    Raises what Channel.call raises.
    """
    found = await channel.call("XRANGE", champion.log, str(at.id), str(at.id))
    if not found:
        return ""
    entry = LogEntry.parse(*found[0])
    ends = (entry.first_number or 0) + len(entry.records)
    return entry.digest if ends == at.number else ""


async def start_again(channel: Channel, store: SnapshotStore, challenger: Replica) -> None:
    """Give a challenger the present state of its champion, or an empty one if that does not fit, and have it
    learn on from there. Nothing happens if it has another generation meanwhile.

    Raises ServiceError, and what Channel.call raises.
    """
    keys, config, champion = challenger.keys, challenger.config, challenger.log_keys
    meta = await _meta_of(channel, champion)
    start = NOW if _unfit(checked_config(champion.model, meta), config) else STATE
    begins = await _beginning(channel, store, keys.model, champion, start, config)
    await begin_again(channel, challenger, config, begins)


async def begin_again(channel: Channel, challenger: Replica, config: ModelConfig, begins: Beginning) -> None:
    """Give a challenger another state and configuration. Nothing happens if it has another generation
    meanwhile.

    Raises ServiceError, and what Channel.call raises.
    """
    keys = challenger.keys
    server = PatientChannel(channel, PATIENCE_SECONDS)
    generation = await server.run(lambda channel: new_generation(channel, keys))
    if not generation:
        raise RestoreConflict(f"Model {keys.model!r} was deleted meanwhile.")
    filled, slots = keys.state(generation), begins.state.seen_slots()
    switched = partial(
        switch_to_restored,
        keys=keys,
        generation=challenger.generation,
        new_generation=generation,
        new_token=secrets.token_bytes(8),
        t=begins.state.t,
        discount=begins.state.discount.text(),
        slots=len(slots),
        config=config.canonical(),
        fingerprint=config.hashing.fingerprint,
        snapshot=begins.base,
        base=begins.at,
        learned=begins.at,
        rolled_back=False,
        learned_digest=begins.digest,
    )
    try:
        await fill(server, filled, begins.state, slots)
        reply = await server.run(switched)
    except BaseException:
        await server.discard(filled)
        raise
    if reply.status is not Switch.SWITCHED:
        await server.discard(filled)
