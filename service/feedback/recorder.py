"""Predictions on their way to Redis, where they wait for labels: requests that come together share a call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from redis.exceptions import ResponseError

from model_core.examples.batch import ExampleBatch
from service.errors import ContractMismatch, StateUnavailable
from service.example_log.ids import named, packed_id
from service.feedback.store import Waiting, entries_of
from service.models.evaluation.slices import SliceName
from service.models.registry import OpenModel
from service.models.replica import ModelGone
from service.runtime.coalescer import Asked, Coalescer
from service.settings.groups import FeedbackSettings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, is_out_of_memory, is_transient, was_cut
from service.storage.health import ServerHealth
from service.telemetry.metrics import Metrics, Unlogged

log = logging.getLogger(__name__)

MAX_PER_CALL = 1000
TELL_EVERY_SECONDS = 60.0
AGAIN_SECONDS = 0.1
LINGER_SECONDS = 0.005  # where nobody waits: calls with more predictions cost less
REQUEST_BYTES, PREDICTION_BYTES = 1800, 200  # of a batch and of each of its examples, beyond the features


@dataclass(slots=True)
class Served:
    """Predictions to be kept: by the state of that commit number and token, with margins float64[r].

    `ids`: None for those to be named here. `look`: whether some may have been kept before. `slice_names`:
    values of sliced features that are new here. `pending_bytes`: what they count while no request waits for
    them.
    """

    batch: ExampleBatch
    margins: npt.NDArray[np.float64]
    ids: Sequence[str | None] | None
    commit: int
    token: bytes
    look: bool
    slice_names: Mapping[int, SliceName] = field(default_factory=dict)
    pending_bytes: int = 0


class Kept(NamedTuple):
    """Under which ids; a letter for each as log_predictions.lua says it, "A" where Redis takes nothing."""

    ids: list[str]
    letters: str


class Recorder:
    """Whoever predicts does not wait for a server that is away or full, and is told that nothing was kept."""

    def __init__(
        self,
        waiting: Waiting,
        channel: Channel,
        model: OpenModel,
        settings: FeedbackSettings,
        health: ServerHealth,
        metrics: Metrics,
    ) -> None:
        self._waiting = waiting
        self._channel = channel
        self._model = model
        self._settings = settings
        self._health = health
        self._metrics = metrics
        for reason in get_args(Unlogged):
            metrics.unlogged(model.name, reason, 0)  # there at 0, or Prometheus would miss the first ones
        self._pending_bytes = 0  # of predictions that nobody waits for
        self._silent_until = 0.0
        self._requests = Coalescer[Served, Kept](self._keep_together, MAX_PER_CALL)

    async def keep(self, served: Served) -> Kept:
        if self._may_keep():
            try:
                return await self._requests.submit(served, len(served.batch))
            except StateUnavailable:  # the service stops
                pass
        return Kept(named(served.ids, len(served.batch)), self._lost(len(served.batch)))

    def record_soon(self, served: Served) -> Kept:
        """While nobody waits for it, as soon as the server answers. "A": that is not even begun."""
        served.ids = ids = named(served.ids, len(served.batch))
        size = served.pending_bytes = memory_of(served.batch)
        if not self._may_keep():
            return Kept(ids, self._lost(len(ids)))
        if self._pending_bytes + size > self._settings.pending_log_bytes:
            return Kept(ids, self._lost(len(ids), "pending"))
        self._pending_bytes += size
        self._requests.submit_soon(served, len(ids), LINGER_SECONDS)
        return Kept(ids, "L" * len(ids))

    def _may_keep(self) -> bool:
        return self._health.up and not self._health.shedding

    def _lost(self, count: int, reason: Unlogged | None = None) -> str:
        """`reason`: None for what is known of the server."""
        known: Unlogged = "full" if self._health.shedding else "away"
        self._metrics.unlogged(self._model.name, reason or known, count)
        return "A" * count

    async def _keep_together(self, together: list[Asked[Served, Kept]]) -> None:
        """Names and encodes them together, which takes less than doing it within each request."""
        requests = [asked.request for asked in together]
        ids = [named(served.ids, asked.size) for served, asked in zip(requests, together, strict=True)]
        entries: list[bytes] = []
        for served, texts in zip(requests, ids, strict=True):
            packed = list(map(packed_id, texts))
            entries += entries_of(packed, served.batch, served.margins, served.commit, served.token)
        try:
            letters = iter(await self._kept(requests, entries))
        finally:
            self._pending_bytes -= sum(served.pending_bytes for served in requests)
        for asked, texts in zip(together, ids, strict=True):
            asked.answer(Kept(texts, "".join(islice(letters, asked.size))))

    async def _kept(self, requests: list[Served], entries: list[bytes]) -> str:
        names = {hashed: name for served in requests for hashed, name in served.slice_names.items()}
        look = any(served.look for served in requests)
        promised = any(served.pending_bytes for served in requests)
        letters = ""
        for start in range(0, len(entries), 2 * MAX_PER_CALL):
            letters += await self._keep(entries[start : start + 2 * MAX_PER_CALL], names, look, promised)
        if refused := letters.count("F"):
            self._metrics.unlogged(self._model.name, "full", refused)
        return letters

    async def _keep(
        self, entries: list[bytes], names: Mapping[int, SliceName], look: bool, promised: bool
    ) -> str:
        """`promised`: they were answered as logged already, and are tried until a server answers that takes
        writes.
        """
        while True:
            if self._may_keep():
                try:
                    letters = await self._attempts(entries, names, look)
                    if self._model.slices is not None:
                        self._model.slices.told(names)
                    return letters
                except CONNECTION_FAILURES:
                    self._health.doubt()
                    look = True
                except (ModelGone, ContractMismatch) as gone:
                    self._tell(gone)
                    return self._lost(len(entries) // 2)
                except ResponseError as refusal:
                    self._tell(refusal)
                    if not (promised and is_transient(refusal)):
                        reason: Unlogged | None = "full" if is_out_of_memory(refusal) else None
                        return self._lost(len(entries) // 2, reason)
                    look = True
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


def memory_of(batch: ExampleBatch) -> int:
    """Bytes that a batch and its ids take, roughly."""
    features = batch.hashes.nbytes + batch.values.nbytes
    return REQUEST_BYTES + PREDICTION_BYTES * len(batch) + features
