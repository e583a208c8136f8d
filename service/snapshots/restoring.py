"""A snapshot becomes the model's state again, in one step, while requests go on.

The new state is filled beside the old one and then switched to, whatever the model has learned meanwhile.
Updates in flight are learned on one or on the other: a commit that was made for the old state is refused by
its generation, and what it would have committed is read from the log again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time

from model_core.snapshot import Snapshot
from service.bulk_load import PatientChannel, fill
from service.errors import StateUnavailable, UnknownModel
from service.model_config import ModelConfig
from service.redis_client import Channel, new_generation, switch_to_restored
from service.redis_keys import LogId, Meta, ModelKeys
from service.replica import ModelGone, checked_config, read_meta
from service.settings import Settings
from service.snapshots.capture import capture_stored
from service.snapshots.catalogue import Entry
from service.snapshots.creating import check_memory, create_filled
from service.snapshots.errors import LogIncomplete, RestoreConflict
from service.snapshots.fitting import config_of, restored_config
from service.snapshots.log_archive import LogArchive
from service.snapshots.replaying import MOST_ROUNDS, Replay
from service.snapshots.restore_plan import Restored, RestorePlan
from service.snapshots.store import SnapshotStore
from service.snapshots.writing import write_and_retain

log = logging.getLogger(__name__)

BEFORE_RESTORE = "before restore"
FEW_EXAMPLES = 200


async def restore(channel: Channel, settings: Settings, store: SnapshotStore, plan: RestorePlan) -> Restored:
    """A model that is not there is created from the snapshot.

    Raises UnknownSnapshot, DamagedSnapshot, StoreUnavailable, SnapshotMismatch, LogIncomplete,
    DamagedLogSegment, ServerFull, AliasConflict, RestoreConflict, StateUnavailable, and what Channel.call
    raises. Then the model is as it was.
    """
    started = time.monotonic()
    entry, snapshot = await asyncio.to_thread(_load, store, plan)
    try:
        meta = await read_meta(channel, plan.model)
    except ModelGone:
        if not plan.may_create:
            raise UnknownModel(plan.model) from None
        return await _create(channel, plan, entry, snapshot, started)
    archive = await asyncio.to_thread(store.log_archive, plan.model, meta.incarnation)
    restoration = _Restoration(channel, archive, plan, entry, snapshot, meta)
    try:
        await restoration.check()
        before = await _save(channel, settings, store, plan.model, entry)
        t, replayed = await restoration.run()
    except ModelGone:
        raise RestoreConflict(f"Model {plan.model!r} was deleted meanwhile.") from None
    seconds = time.monotonic() - started
    log.warning(
        "model %s is restored from snapshot %s (t = %d, %d examples learned again, %.1f s); before it was %s",
        *(plan.model, entry.id, t, replayed, seconds, before),
    )
    return Restored(plan.model, entry.id, before, t, replayed, seconds)


class _Restoration:
    def __init__(
        self,
        channel: Channel,
        archive: LogArchive,
        plan: RestorePlan,
        entry: Entry,
        snapshot: Snapshot,
        meta: Meta,
    ) -> None:
        self._channel = channel
        self._archive = archive
        self._server = PatientChannel(channel, plan.patience_seconds)
        self._plan = plan
        self._entry = entry
        self._header = snapshot.header
        self._snapshot = snapshot
        self._meta = meta
        self._keys = ModelKeys(plan.model, meta.incarnation)
        self._config = restored_config(
            snapshot.header, checked_config(plan.model, meta), plan.hyper if plan.replay_log else None
        )

    async def check(self) -> None:
        """What can be known before anything is done. Raises LogIncomplete, ServerFull."""
        if self._plan.replay_log and self._header.incarnation != self._meta.incarnation:
            raise LogIncomplete(
                f"Snapshot {self._entry.id} is of the model that this one was cloned from, or of a model"
                f" {self._plan.model!r} that was deleted, and its log with it. Nothing was changed; restore"
                " it without the log."
            )
        if self._plan.replay_log:
            await self._replay().check_reaches_back()
        await check_memory(self._channel, self._header.slots)

    async def run(self) -> tuple[int, int]:
        """t at the switch, and how many examples were learned again before it."""
        generation = await self._server.run(new_generation, self._keys.meta, self._keys.incarnation, b"")
        if not generation:
            raise RestoreConflict(f"Model {self._plan.model!r} was deleted meanwhile.")
        filled = self._keys.state(generation)
        try:
            replay, slots = await self._fill(filled)
        except BaseException:
            await self._server.discard(filled)
            raise
        status, *told = await self._switch(generation, replay, slots)
        if status == b"SWITCHED":
            return replay.state.t, replay.examples
        await self._server.discard(filled)
        raise self._refusal(status, told)

    async def _fill(self, filled: str) -> tuple[Replay, int]:
        """Fills with what there is, then with what has come meanwhile, until that is little: the learner
        learns it again after the switch.
        """
        replay = self._replay()
        replay.state = await asyncio.to_thread(self._snapshot.state)
        if self._plan.replay_log:
            await replay.catch_up()
            replay.state.take_changed()
            slots = await fill(self._server, filled, replay.state, replay.state.seen_slots())
            for _ in range(MOST_ROUNDS):
                few = await replay.catch_up() < FEW_EXAMPLES
                changed, _rows = replay.state.take_changed()
                slots = await fill(self._server, filled, replay.state, changed) or slots
                if few:
                    break
            return replay, slots
        slots = await fill(self._server, filled, replay.state, self._snapshot.slots)
        return replay, slots

    def _replay(self) -> Replay:
        applied, number = LogId.parse(self._header.applied), self._header.applied_number
        return Replay(self._channel, self._archive, self._keys, self._config, applied, number)

    async def _switch(self, generation: int, replay: Replay, slots: int) -> list[bytes]:
        keys, meta, header = self._keys, self._meta, self._header
        learned: tuple[str, str | int] = ("", "")
        base: tuple[str, str | int] = ("", "")
        if self._plan.replay_log:
            base = (header.applied, header.applied_number)
            learned = (str(replay.applied), replay.number)
        try:
            reply: list[bytes] = await self._server.run(
                switch_to_restored,
                *(keys.meta, keys.state(meta.generation), keys.state(generation), keys.commits, keys.log),
                *(
                    keys.incarnation,
                    meta.generation,
                    secrets.token_bytes(8),
                    generation,
                    replay.state.t,
                    slots,
                ),
                *(self._config.canonical(), self._entry.id, *base, *learned),
            )
        except StateUnavailable as away:
            unknown = "Whether the snapshot was restored is not known; the model's revision tells."
            raise StateUnavailable(f"{away.detail} {unknown}") from away
        return reply

    def _refusal(self, status: bytes, told: list[bytes]) -> Exception:
        if status == b"MOVED":
            return RestoreConflict(
                f"Model {self._plan.model!r} was restored, replaced or deleted by somebody else meanwhile."
                " This restore changed nothing."
            )
        if status == b"TRIMMED":
            first = told[0].decode() or "nothing"
            return LogIncomplete(
                f"The log was trimmed meanwhile; it goes on with {first}. Nothing was changed."
            )
        return StateUnavailable(
            "Redis lost part of the restored state; the model stays as it was. Try again."
        )


async def _save(
    channel: Channel, settings: Settings, store: SnapshotStore, model: str, restored: Entry
) -> str:
    """The state as it is, as Redis has it: there may be no learner. What is restored stays in the store."""
    copied = await capture_stored(channel, model)
    entry, _ = await asyncio.to_thread(
        write_and_retain, store, settings, copied, BEFORE_RESTORE, needed=restored.id
    )
    return entry.id


async def _create(
    channel: Channel, plan: RestorePlan, entry: Entry, snapshot: Snapshot, started: float
) -> Restored:
    if plan.replay_log:
        raise LogIncomplete(f"There is no model {plan.model!r}, and so no log of it to learn again.")
    config: ModelConfig = config_of(snapshot.header)
    await check_memory(channel, snapshot.header.slots)
    state = await asyncio.to_thread(snapshot.state)
    if not await create_filled(channel, plan.model, config, state, entry.id):
        raise RestoreConflict(f"Model {plan.model!r} was created by somebody else meanwhile.")
    log.warning("model %s is created from snapshot %s", plan.model, entry.id)
    return Restored(plan.model, entry.id, None, state.t, 0, time.monotonic() - started)


def _load(store: SnapshotStore, plan: RestorePlan) -> tuple[Entry, Snapshot]:
    catalogue = store.of(plan.model)
    entry = catalogue.find(plan.snapshot)
    return entry, catalogue.load(entry)
