"""The snapshot store of one process, opened when first used: that of an object store takes a second."""

from __future__ import annotations

import threading

from service.settings import Settings
from service.snapshots.catalogue import Catalogue
from service.snapshots.log_archive import LogArchive
from service.snapshots.object_store import ObjectStore, open_store


class SnapshotStore:
    def __init__(self, settings: Settings) -> None:
        self._url = settings.snapshot_store
        self._lock = threading.Lock()
        self._store: ObjectStore | None = None

    def of(self, model: str) -> Catalogue:
        """The snapshots of one model. For a thread that may block. Raises UnusableStore."""
        return Catalogue(self._opened(), model)

    def log_archive(self, model: str, incarnation: str) -> LogArchive:
        """What left the log of one model. For a thread that may block. Raises UnusableStore."""
        return LogArchive(self._opened(), model, incarnation)

    def _opened(self) -> ObjectStore:
        with self._lock:
            if self._store is None:
                self._store = open_store(self._url)
        return self._store
