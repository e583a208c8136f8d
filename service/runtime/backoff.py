"""Pauses between the attempts of one piece of work: each longer than the one before, up to a cap."""

from __future__ import annotations

import asyncio
import time


class Backoff:
    """`first_seconds`: the first pause. Each further one is `factor` times as long, at most `cap_seconds`."""

    def __init__(self, first_seconds: float = 0.05, cap_seconds: float = 1.0, factor: float = 2.0) -> None:
        self._first = self._next = first_seconds
        self._cap = cap_seconds
        self._factor = factor

    def outlasts(self, deadline: float) -> bool:
        """True if the next pause ends at the deadline (time.monotonic()) or later."""
        return time.monotonic() + self._next >= deadline

    async def pause(self) -> None:
        seconds = self._next
        self._next = min(self._factor * seconds, self._cap)
        await asyncio.sleep(seconds)

    def reset(self) -> None:
        """To be called after an attempt that succeeded."""
        self._next = self._first
