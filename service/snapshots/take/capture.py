"""A consistent copy of a model, taken while its arrays go on learning."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from model_core.learning.state import Evidence
from model_core.snapshot import Snapshot, SnapshotHeader, compact_state, pack_fields
from service.models.config.model import ModelConfig
from service.models.replica import FellBehind, ModelGone, Replica, load_replica
from service.snapshots.store.catalogue import Entry, SnapshotStore, description_of
from service.storage.channel import Channel
from service.storage.records import FIGURES, FIGURES_OF_SLICES, Commit, LogId, ModelKeys, mark_of
from service.storage.scripts.models import read_since


@dataclass(frozen=True, eq=False)
class Capture:
    """Copy of a replica: the rows of all slots seen, and its position in the log."""

    keys: ModelKeys
    config: ModelConfig
    generation: int
    commit: int
    token: bytes
    applied: LogId
    applied_number: int
    t: int
    discount: Evidence
    skipped: int
    features_seen: int
    slots: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.float64]
    evaluation: Mapping[bytes, bytes]
    taken: datetime

    def snapshot(self, reason: str) -> Snapshot:
        """Build the snapshot. Reads all weights, to count them, so it belongs in a thread."""
        hashing, hyper = self.config.hashing, self.config.hyper
        compact = compact_state(self.slots, self.rows, hashing.bits, self.t, self.discount)
        weights, _ = compact.readings_of_experts(np.arange(self.slots.size, dtype=np.uint32), hyper)
        penalised = weights[:, : np.searchsorted(self.slots, hashing.size)]
        evaluation = pack_fields(self.evaluation)
        header = SnapshotHeader(
            model=self.keys.model,
            incarnation=self.keys.incarnation,
            generation=self.generation,
            commit=self.commit,
            applied=str(self.applied),
            applied_number=self.applied_number,
            t=self.t,
            skipped=self.skipped,
            config=self.config.to_json(),
            fingerprint=hashing.fingerprint,
            family=hyper.family,
            features_seen=self.features_seen,
            nonzero=int(np.count_nonzero(penalised.any(axis=0))),
            slots=len(self.slots),
            evaluation_bytes=len(evaluation),
            time=self.taken.isoformat(timespec="milliseconds"),
            reason=reason,
            figures=_figures(self.evaluation),
            mark=mark_of(self.token),
            discount=self.discount.text(),
        )
        return Snapshot(header, self.slots, self.rows, evaluation)


def capture(replica: Replica, evaluation: Mapping[bytes, bytes]) -> Capture:
    """Copy the replica, which must not change meanwhile. May run in a thread."""
    state = replica.state
    slots = state.seen_slots()
    return Capture(
        replica.keys,
        replica.config,
        replica.generation,
        replica.commit,
        replica.token,
        replica.applied,
        replica.applied_number,
        state.t,
        state.discount,
        replica.skipped,
        state.features_seen,
        slots,
        state.rows_at(slots),
        {name: value for name, value in evaluation.items() if name not in FIGURES_OF_SLICES},
        datetime.now(UTC),
    )


async def capture_stored(channel: Channel, model: str) -> Capture:
    """Capture what Redis holds: the state, and the evaluation of the same commit. Needs no learner.

    Raises ModelGone, ContractMismatch, and what Channel.call raises.
    """
    while True:
        replica = await load_replica(channel, model)
        since = await read_since(channel, replica.keys, replica.position)
        if since is None:
            raise ModelGone(model)
        with contextlib.suppress(FellBehind):  # restored or trimmed meanwhile: start again
            for position, fields in since.commits:
                replica.apply(position, Commit.parse(fields))
            if replica.token == since.token:
                return await asyncio.to_thread(capture, replica, since.evaluation)


def _figures(evaluation: Mapping[bytes, bytes]) -> dict[str, object] | None:
    """Parse the field in which the learner stores its figures as JSON."""
    packed = evaluation.get(FIGURES)
    if packed is None:
        return None
    figures: dict[str, object] = json.loads(packed)
    return figures


def write_and_retain(
    store: SnapshotStore,
    copied: Capture,
    reason: str,
    tags: Sequence[str] = (),
    needed: str | None = None,
) -> tuple[Entry, dict[str, Any]]:
    """Write the snapshot and delete superfluous ones, except `needed`; return its entry and description.

    Raises StoreUnavailable, UnusableStore.
    """
    catalogue = store.of(copied.keys.model)
    snapshot = copied.snapshot(reason)
    entry = catalogue.write(snapshot, tags)
    catalogue.retain(store.retained, needed)
    return entry, description_of(entry, snapshot.header)
