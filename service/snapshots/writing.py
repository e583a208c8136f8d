"""One snapshot into the store, and what went wrong where it did not get there."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

from service.errors import ServiceError
from service.settings import Settings
from service.snapshots.capture import Capture
from service.snapshots.catalogue import Entry
from service.snapshots.description import described
from service.snapshots.store import SnapshotStore

FULL, STORE, STOPPED, ERROR = "full", "store", "stopped", "error"
FAILURES = (FULL, STORE, STOPPED, ERROR)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_and_retain(
    store: SnapshotStore,
    settings: Settings,
    copied: Capture,
    reason: str,
    tags: Sequence[str] = (),
    needed: str | None = None,
) -> tuple[Entry, dict[str, Any]]:
    """The snapshot's entry and description; an older one that is `needed` stays.

    Raises StoreUnavailable, UnusableStore.
    """
    catalogue = store.of(copied.keys.model)
    snapshot = copied.snapshot(reason)
    entry = catalogue.write(snapshot, tags)
    catalogue.retain(settings.snapshots_kept, needed)
    return entry, described(entry, snapshot.header)


def reason_of(failure: BaseException) -> str:
    """One of FAILURES: a fault of this service is an "error"."""
    if not isinstance(failure, ServiceError):
        return ERROR
    cause = failure.__cause__
    return FULL if isinstance(cause, OSError) and cause.errno in _FULL else STORE


def detail_of(failure: BaseException) -> str:
    if isinstance(failure, ServiceError):
        return failure.detail
    return f"The snapshot could not be made: {type(failure).__name__}: {failure}"
