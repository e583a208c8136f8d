"""Where in its champion's log, and with which state, a challenger begins, or starts again."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from model_core.learning.state import ModelState
from model_core.snapshot import Snapshot
from service.errors import (
    LogIncomplete,
    RestoreConflict,
    SnapshotMismatch,
    UnknownModel,
)
from service.models.bulk_load import PATIENCE_SECONDS, PatientChannel, fill
from service.models.config.model import ModelConfig, checked_config
from service.models.replica import Replica, gone_is_unknown, load_replica, read_meta
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.store.formats import check_family, config_of
from service.snapshots.take.capture import capture
from service.snapshots.take.origin import FROM_NOTHING
from service.storage.channel import Channel
from service.storage.records import LOG_START, LogEntry, LogId, Meta, ModelKeys
from service.storage.scripts.models import LogPoint, Switch, new_generation, switch_to_restored

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


async def begin(
    channel: Channel,
    store: SnapshotStore,
    name: str,
    champion: ModelKeys,
    start: str | Replica,
    config: ModelConfig,
) -> Beginning:
    """Find or make the state with which the challenger `name` begins; where there is one, it is saved as its
    first snapshot.

    `start`: STATE, NOW, LOG, the id or tag of a snapshot of the champion, or the champion's replica with a
    state that `config` has made of its log up to `applied`.

    Raises ServiceError, and what Channel.call raises.
    """
    if isinstance(start, Replica):
        return await _from_learned(channel, store, name, champion, replace(start, config=config))
    if start == STATE:
        return await _from_state(channel, store, name, champion, config)
    if start == NOW:
        meta = await champion_meta(channel, champion)
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
    if mismatch := mismatch_of(replica.config, config):
        raise SnapshotMismatch(f'{mismatch} Begin with `"start": "now"`.')
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
    if mismatch := mismatch_of(config_of(header), config):
        raise SnapshotMismatch(f'{mismatch} Begin with `"start": "log"`.')
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


def mismatch_of(champion: ModelConfig, config: ModelConfig) -> str:
    """Describe why a state of the champion has another meaning in the challenger; empty if it has not."""
    for name in ("bits", "bias", "prior_probability"):
        had, wanted = getattr(champion.hashing, name), getattr(config.hashing, name)
        if had != wanted:
            return f"The champion's state has hashing.{name} = {had!r}, not {wanted!r}."
    try:
        check_family(champion, config.hyper, "The champion's state")
    except SnapshotMismatch as mismatch:
        return mismatch.detail
    return ""


async def _first_in_log(channel: Channel, champion: ModelKeys) -> tuple[int, LogId]:
    """The number of the first example in the log, or of the next one if it is empty, and its entry."""
    found = await channel.call("XRANGE", champion.log, "-", "+", "COUNT", 1)
    if not found:
        meta = await champion_meta(channel, champion)
        return meta.appended, LogId(meta.applied.milliseconds, meta.applied.sequence + 1)
    entry = LogEntry.parse(*found[0])
    return entry.first_number or 0, entry.id


async def champion_meta(channel: Channel, champion: ModelKeys) -> Meta:
    """Return meta of that incarnation of the champion. Raises UnknownModel, and what Channel.call raises."""
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
    ends = (entry.first_number or 0) + entry.examples
    return entry.digest if ends == at.number else ""


async def start_again(channel: Channel, store: SnapshotStore, challenger: Replica) -> None:
    """Give a challenger the present state of its champion, or an empty one if that does not fit, and have it
    learn on from there. Nothing happens if it has another generation meanwhile.

    Raises ServiceError, and what Channel.call raises.
    """
    keys, config, champion = challenger.keys, challenger.config, challenger.log_keys
    meta = await champion_meta(channel, champion)
    start = NOW if mismatch_of(checked_config(champion.model, meta), config) else STATE
    begins = await begin(channel, store, keys.model, champion, start, config)
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
    except BaseException:
        await server.discard(filled)
        raise
    reply = await server.run(switched)  # if that fails, the filled state may be in use: it is not discarded
    if reply.status is not Switch.SWITCHED:
        await server.discard(filled)
