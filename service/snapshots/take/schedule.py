"""The schedule of a learner's snapshots: when the next is due, and whether there is anything to save."""

from __future__ import annotations

import math
import time

from service.models.replica import Replica
from service.settings.groups import SnapshotSettings

RETRY_SECONDS = 60.0


class Schedule:
    """Snapshots by time and by examples, each only if the settings say so."""

    def __init__(self, settings: SnapshotSettings) -> None:
        self._every_seconds = settings.snapshot_seconds
        self._every_examples = settings.snapshot_examples
        self._due = math.inf  # of time.monotonic()
        self._number = math.inf  # of the log example with which the newest snapshot ended
        self._saved: bytes | None = None  # token of the commit that is in the store

    def begin(self, replica: Replica) -> None:
        """Begin to lead. Time and examples since the last snapshot count on from an earlier leadership: short
        absences of Redis must not put off every snapshot.
        """
        self._due = min(self._due, time.monotonic() + self._every_seconds)
        self._number, self._saved = min(self._number, replica.applied_number), None

    def count_from(self, seconds: float) -> None:
        """Count the interval from so many seconds ago: when the newest snapshot was written, or without any,
        when the oldest example was logged.
        """
        self._due = time.monotonic() + self._every_seconds - min(max(seconds, 0.0), self._every_seconds)

    def started(self, number: int) -> None:
        self._due = time.monotonic() + self._every_seconds
        self._number = number

    def failed(self) -> None:
        self._due = min(self._due, time.monotonic() + RETRY_SECONDS)

    def saved(self, token: bytes) -> None:
        self._saved = token

    @property
    def has_saved(self) -> bool:
        return self._saved is not None

    def is_due(self, replica: Replica) -> bool:
        by_time = self._every_seconds > 0 and time.monotonic() >= self._due
        by_count = 0 < self._every_examples <= replica.applied_number - self._number
        return (by_time or by_count) and not self._is_saved(replica)

    def needs_last(self, replica: Replica) -> bool:
        """Return whether a learner that ends needs a last snapshot."""
        return (self._every_seconds > 0 or self._every_examples > 0) and not self._is_saved(replica)

    def _is_saved(self, replica: Replica) -> bool:
        return replica.state.t == 0 or self._saved == replica.token
