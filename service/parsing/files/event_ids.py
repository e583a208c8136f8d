"""Remembers the event ids of a file, so that an example whose id came before is learned once."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b

MAX_EVENT_IDS = 1_000_000
"""The last ids that are remembered; each takes about 140 bytes, so that all take about 140 MB."""


class EventIds:
    """The last `max_ids` different ids, each as 16 bytes of its BLAKE2b hash."""

    def __init__(self, max_ids: int = MAX_EVENT_IDS) -> None:
        self._max_ids = max_ids
        self._known: set[bytes] = set()
        self._in_order: deque[bytes] = deque()

    def is_new(self, event_id: str | None) -> bool:
        """Remember an id, and return whether it was unknown; an example without one is always new."""
        if event_id is None:
            return True
        digest = blake2b(event_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._known:
            return False
        if len(self._known) == self._max_ids:
            self._known.discard(self._in_order.popleft())
        self._known.add(digest)
        self._in_order.append(digest)
        return True
