"""What a restore makes of a model that is there: whether it can be, and the state beside the one in use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from model_core.snapshot import Snapshot
from service.bulk_load import PatientChannel, fill
from service.model_config import ModelConfig
from service.redis_client import Channel
from service.redis_keys import LogId, Meta, ModelKeys
from service.snapshots.catalogue import Entry
from service.snapshots.creating import check_memory
from service.snapshots.errors import LogIncomplete
from service.snapshots.fitting import restored_config
from service.snapshots.log_archive import LogArchive
from service.snapshots.replaying import MOST_ROUNDS, Replay
from service.snapshots.restore_plan import RestorePlan
from service.stored_config import config_at_creation

FEW_EXAMPLES = 200


@dataclass(frozen=True, eq=False)
class Restoration:
    """`meta`: of the model as it was found; `config`: the one that it will have, but for what was changed in
    place, which stays so.
    """

    plan: RestorePlan
    entry: Entry
    snapshot: Snapshot
    meta: Meta
    config: ModelConfig

    @classmethod
    def of(cls, plan: RestorePlan, entry: Entry, snapshot: Snapshot, meta: Meta) -> Restoration:
        """Raises SnapshotMismatch, ContractMismatch."""
        hyper = plan.hyper if plan.replay_log else None
        config = restored_config(snapshot.header, config_at_creation(plan.model, meta), hyper)
        return cls(plan, entry, snapshot, meta, config)

    @property
    def keys(self) -> ModelKeys:
        return ModelKeys(self.plan.model, self.meta.incarnation)

    def replay(self, channel: Channel, archive: LogArchive) -> Replay:
        """Of the log from the snapshot on; its state is to be set."""
        header = self.snapshot.header
        applied, number = LogId.parse(header.applied), header.applied_number
        return Replay(channel, archive, self.keys, self.config, applied, number)

    async def check(self, channel: Channel, archive: LogArchive) -> None:
        """What can be known before anything is done. Raises LogIncomplete, ServerFull."""
        header = self.snapshot.header
        if self.plan.replay_log and header.incarnation != self.meta.incarnation:
            raise LogIncomplete(
                f"Snapshot {self.entry.id} is of the model that this one was cloned from, or of a model"
                f" {self.plan.model!r} that was deleted, and its log with it. Nothing was changed; restore"
                " it without the log."
            )
        if self.plan.replay_log:
            await self.replay(channel, archive).check_reaches_back()
        await check_memory(channel, header.slots)

    async def fill(self, server: PatientChannel, replay: Replay, filled: str) -> int:
        """Puts the state that is to be into the key `filled`; returns how many slots that holds."""
        replay.state = await asyncio.to_thread(self.snapshot.state)
        if not self.plan.replay_log:
            return await fill(server, filled, replay.state, self.snapshot.slots)
        await replay.catch_up()
        replay.state.take_changed()
        slots = await fill(server, filled, replay.state, replay.state.seen_slots())
        return await _follow(server, replay, filled) or slots


async def _follow(server: PatientChannel, replay: Replay, filled: str) -> int:
    """Fills with what has come meanwhile, until that is little: the learner learns it again after the switch.
    How many slots there are then, or 0 where none has changed.
    """
    slots = 0
    for _ in range(MOST_ROUNDS):
        few = await replay.catch_up() < FEW_EXAMPLES
        changed, _rows = replay.state.take_changed()
        slots = await fill(server, filled, replay.state, changed) or slots
        if few:
            break
    return slots
