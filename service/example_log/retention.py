"""How much of a stream is kept: where to cut so that at most so many bytes stay."""

from __future__ import annotations

from collections import deque

from service.storage.records import LOG_START, LogId

PARTS = 64


class RetainedBytes:
    """Sizes of the entries that were seen, oldest first, those that are small beside the limit in parts.

    Of what was there before only the ends and the size are known; it counts as spread evenly over that time.
    """

    def __init__(
        self, limit: int, oldest: LogId = LOG_START, newest: LogId = LOG_START, size: int = 0
    ) -> None:
        self._limit = limit
        self._parts: deque[tuple[LogId, int]] = deque(
            (LogId(oldest.milliseconds + (newest.milliseconds - oldest.milliseconds) * i // PARTS, 0), part)
            for i, part in enumerate([size // PARTS] * PARTS)
        )
        self._total = size // PARTS * PARTS
        self._part_is_open = False

    def add(self, entry: LogId, size: int) -> None:
        self._total += size
        first, part = self._parts[-1]
        if self._part_is_open and part + size <= self._limit // PARTS:
            self._parts[-1] = (first, part + size)
        else:
            self._parts.append((entry, size))
        self._part_is_open = True

    def keep_from(self, limit: int | None = None) -> LogId:
        """The oldest entry to keep, for a while under a lower limit; all before it may go."""
        most = self._limit if limit is None else min(limit, self._limit)
        while self._total > most and len(self._parts) > 1:
            _, size = self._parts.popleft()
            self._total -= size
        return self._parts[0][0]
