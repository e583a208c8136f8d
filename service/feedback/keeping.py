"""Predictions on their way to Redis, where they wait for labels: requests that come together share a call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from redis.exceptions import ResponseError

from service.coalescing import Asked, Coalescer
from service.errors import StateUnavailable
from service.evaluation.slice_names import SliceName
from service.feedback.waiting import Waiting
from service.metrics import Metrics
from service.models import OpenModel
from service.redis_client import CONNECTION_FAILURES, Channel, was_cut
from service.replica import ModelGone
from service.server_health import ServerHealth
from service.settings import Settings

log = logging.getLogger(__name__)

MOST_A_CALL = 1000
TELL_EVERY_SECONDS = 60.0
AGAIN_SECONDS = 0.1
PART_BYTES = 33 + 8  # of a bytes object and its place in a list, beyond its own


class Served(NamedTuple):
    """Predictions to be kept. `entries`: as entries_of makes them; `look`: whether some may have been kept
    before; `slice_names`: values of sliced features that are new here; `pending_bytes`: what they count
    while nobody waits for them.
    """

    entries: Sequence[bytes]
    look: bool
    slice_names: Mapping[int, SliceName] = MappingProxyType({})
    pending_bytes: int = 0

    @property
    def predictions(self) -> int:
        return len(self.entries) // 2

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        return sum(map(len, self.entries)) + PART_BYTES * len(self.entries)


class Keeper:
    """Whoever predicts does not wait for a server that is away or full, and is told that nothing was kept."""

    def __init__(
        self,
        waiting: Waiting,
        channel: Channel,
        model: OpenModel,
        settings: Settings,
        health: ServerHealth,
        metrics: Metrics,
    ) -> None:
        self._waiting = waiting
        self._channel = channel
        self._model = model
        self._settings = settings
        self._health = health
        self._metrics = metrics
        metrics.unlogged(model.name, "away", 0)  # there at 0, or Prometheus would miss the first ones
        metrics.unlogged(model.name, "full", 0)
        self._pending_bytes = 0  # of predictions that nobody waits for
        self._silent_until = 0.0
        self._requests = Coalescer[Served, str](self._keep_together, MOST_A_CALL)

    async def keep(self, served: Served) -> str:
        """A letter for each prediction as log_predictions.lua says it, "A" where Redis is away or full."""
        if not self._may_keep():
            return self._lost(served.predictions)
        try:
            return await self._requests.submit(served, served.predictions)
        except StateUnavailable:  # the service stops
            return self._lost(served.predictions)

    def keep_soon(self, served: Served) -> bool:
        """Keeps them while nobody waits, as soon as the server answers. False: that is not even begun."""
        size = served.size
        if not self._may_keep() or self._pending_bytes + size > self._settings.pending_log_bytes:
            self._lost(served.predictions)
            return False
        self._pending_bytes += size
        self._requests.submit_soon(served._replace(pending_bytes=size), served.predictions)
        return True

    def _may_keep(self) -> bool:
        return self._health.up and not self._health.shedding

    def _lost(self, count: int) -> str:
        reason: Literal["full", "away"] = "full" if self._health.shedding else "away"
        self._metrics.unlogged(self._model.name, reason, count)
        return "A" * count

    async def _keep_together(self, together: list[Asked[Served, str]]) -> None:
        requests = [asked.request for asked in together]
        letters = await self._kept(requests)
        self._pending_bytes -= sum(served.pending_bytes for served in requests)
        start = 0
        for asked in together:
            stop = start + asked.size
            asked.answer(letters[start:stop])
            start = stop

    async def _kept(self, requests: list[Served]) -> str:
        entries = [part for served in requests for part in served.entries]
        names = {hashed: name for served in requests for hashed, name in served.slice_names.items()}
        look = any(served.look for served in requests)
        promised = any(served.pending_bytes for served in requests)
        letters = ""
        for start in range(0, len(entries), 2 * MOST_A_CALL):
            letters += await self._keep(entries[start : start + 2 * MOST_A_CALL], names, look, promised)
        if refused := letters.count("F"):
            self._metrics.unlogged(self._model.name, "full", refused)
        return letters

    async def _keep(
        self, entries: list[bytes], names: Mapping[int, SliceName], look: bool, promised: bool
    ) -> str:
        """`promised`: they were answered as logged already, and are tried until the server answers."""
        while True:
            if self._may_keep():
                try:
                    letters = await self._attempts(entries, names, look)
                    self._model.slices.told(names)
                    return letters
                except CONNECTION_FAILURES:
                    self._health.doubt()
                    look = True
                except (ResponseError, ModelGone) as refusal:
                    self._tell(refusal)
                    return self._lost(len(entries) // 2)
            if not promised:
                return self._lost(len(entries) // 2)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _attempts(self, entries: list[bytes], names: Mapping[int, SliceName], look: bool) -> str:
        """A second one where the connection ended under the first, as at a restart, and then with a look,
        since they may be kept already. Raises what Waiting.log raises.
        """
        try:
            return await self._attempt(entries, names, look)
        except CONNECTION_FAILURES as failure:
            if not was_cut(failure):
                raise
            return await self._attempt(entries, names, look=True)

    async def _attempt(self, entries: list[bytes], names: Mapping[int, SliceName], look: bool) -> str:
        if names:
            await self._waiting.note_slices(self._channel, names)
        return await self._waiting.log(self._channel, entries, look)

    def _tell(self, refusal: Exception) -> None:
        """Why a server that answers keeps nothing: once a minute, however many are refused."""
        if time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + TELL_EVERY_SECONDS
            log.warning("predictions of %s are not kept: %s", self._model.name, refusal)

    async def close(self) -> None:
        await self._requests.drain(self._settings.redis_timeout_seconds)
        if self._pending_bytes:
            log.warning("predictions of %s that were answered as logged are lost", self._model.name)
        await self._requests.close()
        await self._channel.close()
