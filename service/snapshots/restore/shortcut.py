"""Loading of a replica from its newest snapshot and the log since, rather than from the state in Redis."""

from __future__ import annotations

import asyncio
import logging

from model_core.learning.state import ModelState
from service.errors import ServiceError
from service.models.replica import Replica
from service.settings.groups import SnapshotSettings
from service.snapshots.restore.log_replay import Replay
from service.snapshots.store.catalogue import Catalogue, SnapshotStore
from service.snapshots.store.formats import config_of, is_of_state
from service.storage.channel import Channel
from service.storage.records import LogId

log = logging.getLogger(__name__)


def shortcut_of(settings: SnapshotSettings, store: SnapshotStore) -> SnapshotShortcut | None:
    """Return the shortcut if the settings enable it."""
    return SnapshotShortcut(store) if settings.start_from_snapshot else None


class SnapshotShortcut:
    """Fills a replica that has no state yet, or leaves it as it is."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store

    async def __call__(self, replica: Replica, channel: Channel) -> bool:
        """Return whether the arrays are now those of the replica's commit.

        Raises what Channel.call raises.
        """
        try:
            found = await asyncio.to_thread(self._load, replica)
            if found is None:
                return False
            applied, number, state = found
            keys = replica.log_keys
            archive = await asyncio.to_thread(self._store.log_archive, keys.model, keys.incarnation)
            replay = Replay(channel, archive, replica, applied, number)
            replay.state = state
            await replay.catch_up(replica.applied)
        except ServiceError as failure:
            log.info("%s is read from Redis: %s", replica.keys.model, failure.detail)
            return False
        # If an operator had examples skipped, a replay of the log leads to another state.
        same = (state.t, state.discount) == (replica.state.t, replica.state.discount)
        if replay.number != replica.applied_number or not same:
            log.info("%s is read from Redis: not all of its log was learned", replica.keys.model)
            return False
        replica.state = state
        log.info("%s is loaded from a snapshot and %d examples", replica.keys.model, replay.examples)
        return True

    def _load(self, replica: Replica) -> tuple[LogId, int, ModelState] | None:
        """Return the position in the log of the newest snapshot of the replica's state, and its arrays."""
        catalogue: Catalogue = self._store.of(replica.keys.model)
        same = f"{replica.keys.incarnation[:8]}-{replica.generation}-"
        for entry in reversed(catalogue.entries()):
            if not entry.revision.startswith(same) or int(entry.revision.split("-")[2]) > replica.commit:
                continue
            snapshot = catalogue.load(entry)
            header = snapshot.header
            if is_of_state(header, replica) and config_of(header).hyper == replica.config.hyper:
                return LogId.parse(header.applied), header.applied_number, snapshot.state()
        return None
