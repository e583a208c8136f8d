"""What a restore makes of a model that is there: whether it can be, and the state beside the one in use."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

from model_core.learning.hyperparameters import Hyperparameters
from model_core.snapshot import Snapshot
from service.errors import LogIncomplete
from service.models.bulk_load import PATIENCE_SECONDS, PatientChannel, fill
from service.models.config.model import ModelConfig
from service.models.config.stored import config_at_creation
from service.snapshots.restore.create import check_memory
from service.snapshots.restore.log_replay import MOST_ROUNDS, Replay
from service.snapshots.store.catalogue import Entry
from service.snapshots.store.compatibility import (
    restored_config,
)
from service.snapshots.store.log_archive import LogArchive
from service.storage.channel import Channel
from service.storage.keys import ModelKeys
from service.storage.records import LogId, Meta

FEW_EXAMPLES = 200


@dataclass(frozen=True)
class RestorePlan:
    """`snapshot`: an id, a tag or "newest". `replay_log`: learn again what came after it, with `hyper` if
    given; else learning goes on from now. `may_create`: a model that is not there. `instead_of`: of a model
    that goes back by itself, the incarnation and the generation that it is to replace, and no other.
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
    """`before`: id of the snapshot of the state that was replaced, None where there was no model. `t`: rounds
    at the switch; `replayed`: examples that were learned again until then; `seconds`: of all of it.
    """

    model: str
    snapshot: str
    before: str | None
    t: int
    replayed: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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
