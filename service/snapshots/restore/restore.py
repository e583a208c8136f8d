"""Restore of a snapshot as the model's state, in one step, while requests go on.

The new state is filled beside the old one, and then the model is switched to it. Updates in flight are
learned on one of them: a commit for the old state is refused by its generation, and the learner reads its
entries from the log again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from model_core.learning.hyperparameters import Hyperparameters
from model_core.snapshot import Snapshot
from service.errors import (
    IncompleteState,
    LogIncomplete,
    RestoreConflict,
    ServiceError,
    StateUnavailable,
    UnknownModel,
)
from service.models.aliases import Aliases
from service.models.bulk_load import PATIENCE_SECONDS, PatientChannel, check_memory, fill
from service.models.config.model import ModelConfig, config_at_creation
from service.models.registry import Models
from service.models.replica import ModelGone, read_meta
from service.snapshots.restore.create import create_filled
from service.snapshots.restore.log_replay import MAX_ROUNDS, Replay
from service.snapshots.store.catalogue import BEFORE_RESTORE, Entry, SnapshotStore
from service.snapshots.store.formats import LogArchive, config_of, restored_config
from service.snapshots.take.capture import capture_stored, write_and_retain
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import LogId, Meta, ModelKeys
from service.storage.scripts.models import (
    LogPoint,
    Switch,
    SwitchReply,
    new_generation,
    switch_to_restored,
)

log = logging.getLogger(__name__)

FEW_EXAMPLES = 200
FOLLOW_SECONDS = 30.0
FOLLOW_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class RestorePlan:
    """`snapshot`: an id, a tag or "newest". `replay_log`: replay the log since it, with `hyper` if given;
    otherwise learning continues with new entries. `may_create`: create the model if there is none.
    `instead_of`: for an automatic rollback, the only incarnation and generation that may be replaced.
    """

    model: str
    snapshot: str
    replay_log: bool = False
    hyper: Hyperparameters | None = None
    may_create: bool = True
    instead_of: tuple[str, int] | None = None
    patience_seconds: float = PATIENCE_SECONDS


@dataclass(frozen=True)
class Restored:
    """`before`: id of the snapshot of the replaced state, None if there was none that is complete. `t`:
    rounds at the switch; `replayed`: examples replayed before it; `seconds`: total duration. `revision`: of
    the model after the switch, empty if it was not read.
    """

    model: str
    snapshot: str
    before: str | None
    t: int
    replayed: int
    seconds: float
    revision: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def restore_model(
    models: Models, aliases: Aliases, store: SnapshotStore, plan: RestorePlan
) -> Restored:
    """Restore a snapshot, as `restore` does, unless the name is that of an alias, and wait until this process
    predicts from the new state. Raises ServiceError.
    """
    await aliases.refuse(plan.model)
    async with models.channel() as channel:
        restored = await restore(channel, store, plan)
        return replace(restored, revision=await revision_followed(models, channel, plan.model))


async def revision_followed(models: Models, channel: Channel, name: str) -> str:
    """The revision after a switch, once this process predicts from it, or after FOLLOW_SECONDS; empty if it
    cannot be read. The switch has happened in any case, so no failure is raised.
    """
    revision = ""
    with contextlib.suppress(ServiceError, ModelGone, *CONNECTION_FAILURES):
        meta = await read_meta(channel, name)
        revision = meta.revision
        async with asyncio.timeout(FOLLOW_SECONDS):
            await _until_followed(models, name, meta)
    return revision


async def _until_followed(models: Models, name: str, meta: Meta) -> None:
    """Wait until the mirror has the generation of `meta` or a later one. Raises what Models.get raises."""
    while True:
        replica = (await models.get(name)).mirror.replica
        if replica.keys.incarnation == meta.incarnation and replica.generation >= meta.generation:
            return
        await asyncio.sleep(FOLLOW_POLL_SECONDS)


async def restore(channel: Channel, store: SnapshotStore, plan: RestorePlan) -> Restored:
    """Restore a snapshot; if there is no such model, create it from the snapshot. A stored state that is not
    complete is replaced without a snapshot of it.

    Raises UnknownSnapshot, DamagedSnapshot, StoreUnavailable, SnapshotMismatch, LogIncomplete,
    DamagedLogSegment, ServerFull, AliasConflict, RestoreConflict, StateUnavailable, and what Channel.call
    raises; the model is then unchanged.
    """
    started = time.monotonic()
    entry, snapshot = await asyncio.to_thread(_load, store, plan)
    try:
        meta = await read_meta(channel, plan.model)
    except ModelGone:
        if not plan.may_create:
            raise UnknownModel(plan.model) from None
        return await _create(channel, plan, entry, snapshot, started)
    if plan.instead_of not in (None, (meta.incarnation, meta.generation)):
        raise RestoreConflict(f"Model {plan.model!r} was restored or replaced meanwhile.")
    learned = meta.log_keys(plan.model)
    archive = await asyncio.to_thread(store.log_archive, learned.model, learned.incarnation)
    restoration = Restoration.of(plan, entry, snapshot, meta)
    try:
        await restoration.check(channel, archive)
        before = await save(channel, store, plan.model, entry)
        replay = await run(channel, archive, restoration)
    except ModelGone:
        raise RestoreConflict(f"Model {plan.model!r} was deleted meanwhile.") from None
    t, replayed, seconds = replay.state.t, replay.examples, time.monotonic() - started
    log.warning(
        "model %s was restored from snapshot %s (t = %d, %d examples replayed, %.1f s); saved before as %s",
        *(plan.model, entry.id, t, replayed, seconds, before),
    )
    return Restored(plan.model, entry.id, before, t, replayed, seconds)


async def run(channel: Channel, archive: LogArchive, restoration: Restoration) -> Replay:
    """Build the new state and switch to it; return the replay.

    Raises what Restoration.fill and _switch raise.
    """
    keys, plan = restoration.keys, restoration.plan
    server = PatientChannel(channel, plan.patience_seconds)
    generation = await server.run(lambda channel: new_generation(channel, keys))
    if not generation:
        raise RestoreConflict(f"Model {plan.model!r} was deleted meanwhile.")
    replay, filled = restoration.replay(channel, archive), keys.state(generation)
    try:
        slots = await restoration.fill(server, replay, filled)
    except BaseException:
        await server.discard(filled)
        raise
    await _switch(server, restoration, generation, replay, slots)
    return replay


async def save(channel: Channel, store: SnapshotStore, model: str, restored: Entry) -> str | None:
    """Save the current state from Redis, as there may be no learner; the restored snapshot is not deleted."""
    try:
        copied = await capture_stored(channel, model)
    except IncompleteState as incomplete:
        log.warning("what is replaced is not saved: %s", incomplete.detail)
        return None
    entry, _ = await asyncio.to_thread(write_and_retain, store, copied, BEFORE_RESTORE, needed=restored.id)
    return entry.id


async def _create(
    channel: Channel, plan: RestorePlan, entry: Entry, snapshot: Snapshot, started: float
) -> Restored:
    if plan.replay_log:
        raise LogIncomplete(f"There is no model {plan.model!r}, and so no log of it to learn again.")
    config: ModelConfig = config_of(snapshot.header)
    await check_memory(channel, snapshot.header.slots, snapshot.header.experts)
    state = await asyncio.to_thread(snapshot.state)
    if not await create_filled(channel, plan.model, config, state, entry.id):
        raise RestoreConflict(f"Model {plan.model!r} was created meanwhile by another client.")
    log.warning("model %s was created from snapshot %s", plan.model, entry.id)
    return Restored(plan.model, entry.id, None, state.t, 0, time.monotonic() - started)


def _load(store: SnapshotStore, plan: RestorePlan) -> tuple[Entry, Snapshot]:
    catalogue = store.of(plan.model)
    entry = catalogue.find(plan.snapshot)
    return entry, catalogue.load(entry)


@dataclass(frozen=True, eq=False)
class Restoration:
    """One restore. `meta`: of the model as found; `config`: of the restored model, before changes that were
    made in place, which are kept. `promotion`: a note of it, where the restored state is a challenger's.
    """

    plan: RestorePlan
    entry: Entry
    snapshot: Snapshot
    meta: Meta
    config: ModelConfig
    promotion: str = ""

    @classmethod
    def of(cls, plan: RestorePlan, entry: Entry, snapshot: Snapshot, meta: Meta) -> Restoration:
        """Prepare a restore. Raises SnapshotMismatch, ContractMismatch."""
        hyper = plan.hyper if plan.replay_log else None
        config = restored_config(snapshot.header, config_at_creation(plan.model, meta), hyper)
        return cls(plan, entry, snapshot, meta, config)

    @property
    def keys(self) -> ModelKeys:
        return ModelKeys(self.plan.model, self.meta.incarnation)

    @property
    def log_keys(self) -> ModelKeys:
        return self.meta.log_keys(self.plan.model)

    def replay(self, channel: Channel, archive: LogArchive) -> Replay:
        """Return a replay of the log from the snapshot on; the caller sets its state."""
        header = self.snapshot.header
        applied, number = LogId.parse(header.applied), header.applied_number
        return Replay(channel, archive, self, applied, number)

    async def check(self, channel: Channel, archive: LogArchive) -> None:
        """Check what can be checked before anything is changed. Raises LogIncomplete, ServerFull."""
        header = self.snapshot.header
        if self.plan.replay_log and header.incarnation != self.meta.incarnation:
            raise LogIncomplete(
                f"Snapshot {self.entry.id} is of the model that this one was cloned from, or of a model"
                f" {self.plan.model!r} that was deleted, and its log with it. Nothing was changed; restore"
                " it without the log."
            )
        if self.plan.replay_log:
            await self.replay(channel, archive).check_reaches_back()
        await check_memory(channel, header.slots, header.experts)

    async def fill(self, server: PatientChannel, replay: Replay, filled: str) -> int:
        """Fill the key `filled` with the new state; return its number of slots."""
        replay.state = await asyncio.to_thread(self.snapshot.state)
        if not self.plan.replay_log:
            return await fill(server, filled, replay.state, self.snapshot.slots)
        await replay.catch_up()
        replay.state.take_changed()
        slots = await fill(server, filled, replay.state, replay.state.seen_slots())
        return await _follow(server, replay, filled, slots)


async def _follow(server: PatientChannel, replay: Replay, filled: str, slots: int) -> int:
    """Fill with what was learned meanwhile, until that is little; the learner learns the rest after the
    switch. `slots`: how many there are; return how many there are then.
    """
    for _ in range(MAX_ROUNDS):
        few = await replay.catch_up() < FEW_EXAMPLES
        changes = replay.state.take_changed()
        changed = np.concatenate([changes.slots, changes.dropped])
        if changed.size:
            slots = await fill(server, filled, replay.state, changed)
        if few:
            break
    return slots


async def _switch(
    server: PatientChannel, restoration: Restoration, generation: int, replay: Replay, slots: int
) -> None:
    """Switch to `generation`, which holds the new state of so many slots.

    Raises RestoreConflict, LogIncomplete, StateUnavailable. The filled state is removed if it is certain that
    the model does not use it.
    """
    keys, meta, header = restoration.keys, restoration.meta, restoration.snapshot.header
    base = learned = None
    if restoration.plan.replay_log:
        base = LogPoint(header.applied, header.applied_number)
        learned = LogPoint(replay.applied, replay.number)
    filled = keys.state(generation)
    switched = partial(
        switch_to_restored,
        keys=keys,
        generation=meta.generation,
        new_generation=generation,
        new_token=secrets.token_bytes(8),
        t=replay.state.t,
        discount=replay.state.discount.text(),
        slots=slots,
        config=restoration.config.canonical(),
        fingerprint=restoration.config.hashing.fingerprint,
        promotion=restoration.promotion,
        snapshot=restoration.entry.id,
        base=base,
        learned=learned,
        rolled_back=restoration.plan.instead_of is not None,
    )
    try:
        reply = await server.run(switched)
    except StateUnavailable as away:
        unknown = "Whether the snapshot was restored is not known; check the model's revision."
        raise StateUnavailable(f"{away.detail} {unknown}") from away
    if reply.status is not Switch.SWITCHED:
        await server.discard(filled)
        raise _refusal(restoration.plan.model, reply)


def _refusal(model: str, reply: SwitchReply) -> Exception:
    if reply.status is Switch.MOVED:
        return RestoreConflict(
            f"Model {model!r} was restored, replaced or deleted meanwhile. This restore changed nothing."
        )
    if reply.status is Switch.TRIMMED:
        first = reply.first_entry or "nothing"
        return LogIncomplete(f"The log was trimmed meanwhile; it goes on with {first}. Nothing was changed.")
    return StateUnavailable("Redis lost part of the restored state; the model stays as it was. Try again.")
