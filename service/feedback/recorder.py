"""Logs predictions in Redis, where they await their labels: concurrent requests share a call."""

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
from service.example_log.ids import named, new_ids, packed_id
from service.feedback.store import PendingStore, entries_of
from service.models.evaluation.slices import SliceName
from service.models.registry import OpenModel
from service.models.replica import ModelGone
from service.runtime.coalescer import Asked, Coalescer
from service.settings.groups import FeedbackSettings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, is_out_of_memory, is_transient, was_cut
from service.storage.health import ServerHealth
from service.storage.scripts.feedback import LogOutcome
from service.telemetry.metrics import Metrics, Unlogged

log = logging.getLogger(__name__)

MAX_PER_CALL = 1000
WARN_EVERY_SECONDS = 60.0
RETRY_SECONDS = 0.1
LINGER_SECONDS = 0.005  # if no request waits: calls with more predictions cost less
REQUEST_BYTES, PREDICTION_BYTES = 1800, 200  # of a batch and of each of its examples, beyond the features


@dataclass(slots=True)
class Served:
    """Predictions to be logged: by the state of that commit number and token, with margins float64[r].

    `ids`: None for predictions that get an id here. `check`: whether some may have been logged before.
    `slice_names`: values of sliced features that are new here. `pending_bytes`: their size if no request
    waits until they are logged.
    """

    batch: ExampleBatch
    margins: npt.NDArray[np.float64]
    ids: Sequence[str | None] | None
    commit: int
    token: bytes
    check: bool
    slice_names: Mapping[int, SliceName] = field(default_factory=dict)
    pending_bytes: int = 0


class Recorded(NamedTuple):
    """The ids, and for each its outcome, None if Redis accepts nothing."""

    ids: list[str]
    outcomes: Sequence[LogOutcome | None]


class Recorder:
    """Logs the predictions of one model. A request waits for a server that has just gone away, at most as
    long as a call may take. It does not wait for one that has been away longer, or is full: it is answered
    that nothing was logged.
    """

    def __init__(
        self,
        pending: PendingStore,
        channel: Channel,
        model: OpenModel,
        settings: FeedbackSettings,
        health: ServerHealth,
        metrics: Metrics,
    ) -> None:
        self._pending = pending
        self._channel = channel
        self._model = model
        self._settings = settings
        self._health = health
        self._metrics = metrics
        for reason in get_args(Unlogged):
            metrics.unlogged(model.name, reason, 0)  # from 0, or Prometheus would miss the first increase
        self._pending_bytes = 0  # of predictions that no request waits for
        self._quiet_until = 0.0
        self._requests = Coalescer[Served, Recorded](self._record_together, MAX_PER_CALL)

    async def record(self, served: Served) -> Recorded:
        if self._accepts() or self._patience() > 0:
            try:
                return await self._requests.submit(served, len(served.batch))
            except StateUnavailable:  # the service stops
                pass
        return Recorded(named(served.ids, len(served.batch)), self._lost(len(served.batch)))

    def record_soon(self, served: Served) -> Recorded:
        """Logs them as soon as the server answers; the caller does not wait. None: refused at once."""
        served.ids = ids = named(served.ids, len(served.batch))
        size = served.pending_bytes = memory_of(served.batch)
        if not (self._accepts() or self._patience() > 0):
            return Recorded(ids, self._lost(len(ids)))
        if self._pending_bytes + size > self._settings.pending_log_bytes:
            return Recorded(ids, self._lost(len(ids), "pending"))
        self._pending_bytes += size
        self._requests.submit_soon(served, len(ids), LINGER_SECONDS)
        return Recorded(ids, [LogOutcome.LOGGED] * len(ids))

    def _accepts(self) -> bool:
        return self._health.up and not self._health.shedding

    def _patience(self) -> float:
        """For how many seconds a server that does not answer is still expected back; not above 0 once it has
        been silent for as long as a call may take, or refuses what is written.
        """
        if self._health.shedding or self._health.refusal:
            return 0.0
        return self._settings.redis_timeout_seconds - self._health.silent_seconds

    def _lost(self, count: int, reason: Unlogged | None = None) -> Sequence[LogOutcome | None]:
        """Counts predictions that are not logged. `reason`: None if it is the known state of the server."""
        known: Unlogged = "full" if self._health.shedding else "away"
        self._metrics.unlogged(self._model.name, reason or known, count)
        return [None] * count

    async def _record_together(self, together: list[Asked[Served, Recorded]]) -> None:
        """Gives ids and encodes for all requests together, which is faster than in each request."""
        requests = [asked.request for asked in together]
        made = iter(new_ids(sum(asked.size for asked in together if not asked.request.ids)))
        ids = [
            named(asked.request.ids, asked.size) if asked.request.ids else list(islice(made, asked.size))
            for asked in together
        ]
        entries: list[bytes] = []
        for served, texts in zip(requests, ids, strict=True):
            packed = list(map(packed_id, texts))
            entries += entries_of(packed, served.batch, served.margins, served.commit, served.token)
        try:
            outcomes = iter(await self._record_all(requests, entries))
        finally:
            self._pending_bytes -= sum(served.pending_bytes for served in requests)
        for asked, texts in zip(together, ids, strict=True):
            asked.answer(Recorded(texts, list(islice(outcomes, asked.size))))

    async def _record_all(self, requests: list[Served], entries: list[bytes]) -> Sequence[LogOutcome | None]:
        names = {hashed: name for served in requests for hashed, name in served.slice_names.items()}
        check = any(served.check for served in requests)
        promised = any(served.pending_bytes for served in requests)
        outcomes: list[LogOutcome | None] = []
        for start in range(0, len(entries), 2 * MAX_PER_CALL):
            outcomes += await self._record_part(
                entries[start : start + 2 * MAX_PER_CALL], names, check, promised
            )
        if refused := outcomes.count(LogOutcome.NO_ROOM):
            self._metrics.unlogged(self._model.name, "full", refused)
        return outcomes

    async def _record_part(
        self, entries: list[bytes], names: Mapping[int, SliceName], check: bool, promised: bool
    ) -> Sequence[LogOutcome | None]:
        """`promised`: they were answered as logged already, so this is repeated until a server that accepts
        writes answers; else for as long as a call may take.
        """
        deadline = time.monotonic() + self._settings.redis_timeout_seconds
        while True:
            if self._accepts():
                began = time.monotonic()
                try:
                    outcomes = await self._attempts(entries, names, check)
                    if self._model.slices is not None:
                        self._model.slices.mark_logged(names)
                    return outcomes
                except CONNECTION_FAILURES:
                    self._health.doubt(began)
                    check = True
                except (ModelGone, ContractMismatch) as gone:
                    self._warn(gone)
                    return self._lost(len(entries) // 2)
                except ResponseError as refusal:
                    self._warn(refusal)
                    if not (promised and is_transient(refusal)):
                        reason: Unlogged | None = "full" if is_out_of_memory(refusal) else None
                        return self._lost(len(entries) // 2, reason)
                    check = True
            if promised:
                await asyncio.sleep(RETRY_SECONDS)
            elif not await self._is_back(deadline):
                return self._lost(len(entries) // 2)

    async def _is_back(self, deadline: float) -> bool:
        """Waits for a server that is expected back, at most until then; False if it is not worth it."""
        patience = min(self._patience(), deadline - time.monotonic())
        return patience > 0 and await self._health.until_up(patience)

    async def _attempts(
        self, entries: list[bytes], names: Mapping[int, SliceName], check: bool
    ) -> list[LogOutcome]:
        """Repeats a call whose connection was cut, as at a restart, and then checks the ids, since they may
        be logged already. Raises what PendingStore.log raises.
        """
        try:
            return await self._attempt(entries, names, check)
        except CONNECTION_FAILURES as failure:
            if not was_cut(failure):
                raise
            return await self._attempt(entries, names, check=True)

    async def _attempt(
        self, entries: list[bytes], names: Mapping[int, SliceName], check: bool
    ) -> list[LogOutcome]:
        if names:
            await self._pending.note_slices(self._channel, names)
        return await self._pending.log(self._channel, entries, check)

    def _warn(self, refusal: Exception) -> None:
        """Logs why the server refuses predictions, at most once a minute."""
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + WARN_EVERY_SECONDS
            log.warning("predictions of %s are not logged: %s", self._model.name, refusal)

    async def close(self) -> None:
        await self._requests.drain(self._settings.redis_timeout_seconds)
        if self._pending_bytes:
            log.warning("predictions of %s that were answered as logged are lost", self._model.name)
        await self._requests.close()
        await self._channel.close()


def memory_of(batch: ExampleBatch) -> int:
    """The approximate size of a batch and its ids in memory, in bytes."""
    features = batch.hashes.nbytes + batch.values.nbytes
    return REQUEST_BYTES + PREDICTION_BYTES * len(batch) + features
