"""How much of a stream is kept: where to cut so that at most so many bytes stay."""

from __future__ import annotations

from collections import deque

from service.redis_keys import LOG_START, LogId

PARTS = 64


class RetainedBytes:
    """Sizes of the entries that were seen, oldest first.

    Of what was there before only the ends and the size are known; it counts as spread evenly over that time.
    """

    def __init__(
        self, limit: int, oldest: LogId = LOG_START, newest: LogId = LOG_START, size: int = 0
    ) -> None:
        self._limit = limit
        self._entries: deque[tuple[LogId, int]] = deque(
            (LogId(oldest.milliseconds + (newest.milliseconds - oldest.milliseconds) * i // PARTS, 0), part)
            for i, part in enumerate([size // PARTS] * PARTS)
        )
        self._total = size // PARTS * PARTS

    def add(self, entry: LogId, size: int) -> None:
        self._entries.append((entry, size))
        self._total += size

    def keep_from(self) -> LogId:
        """The oldest entry to keep; all before it may go."""
        while self._total > self._limit and len(self._entries) > 1:
            _, size = self._entries.popleft()
            self._total -= size
        return self._entries[0][0]
