"""The learners of all models, as `ftrl learn` runs them, and `ftrl serve` beside its API."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time

from service.errors import ServerFull, ServiceError, StateUnavailable
from service.learning.learner import learn_model
from service.learning.lease import new_holder
from service.models.registry import Models
from service.runtime.tasks import cancel_all
from service.settings.groups import LearningSettings
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.health import ServerHealth
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

MODELS_POLL_SECONDS = 0.5
POLLS_PER_REPAIR = 60
RETRY_SECONDS = 2.0
REFUSED_RETRY_SECONDS = 30.0


class Learners:
    """Runs one learner task per model; polls for new models. `holder`: of their leases; None: a new one."""

    def __init__(
        self,
        topology: Topology,
        models: Models,
        settings: LearningSettings,
        health: ServerHealth,
        metrics: Metrics,
        holder: str | None = None,
    ) -> None:
        self._topology = topology
        self._models = models
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._store = SnapshotStore(settings)
        self._holder = holder or new_holder()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}

    async def run(self) -> None:
        try:
            for polls in itertools.count():
                await self._poll(repair=polls % POLLS_PER_REPAIR == POLLS_PER_REPAIR - 1)
                await asyncio.sleep(MODELS_POLL_SECONDS)
        finally:
            await cancel_all(self._tasks.values())

    async def _poll(self, *, repair: bool) -> None:
        for name in [name for name, task in self._tasks.items() if task.done()]:
            self._ended(name, self._tasks.pop(name))
        try:
            if repair:
                await self._models.repair_index()
            names = await self._models.names()
        except (ServerFull, StateUnavailable) as failure:
            log.debug("cannot list the models: %s", failure.detail)
            return
        # Models that were deleted while they had no learner.
        for name in self._not_before.keys() - set(names) - self._tasks.keys():
            del self._not_before[name]
            self._metrics.model_deleted(name)
        for name in names:
            if name not in self._tasks and time.monotonic() >= self._not_before.get(name, 0.0):
                self._tasks[name] = asyncio.create_task(self._learn(name), name=f"learner of {name}")

    async def _learn(self, name: str) -> None:
        topology, settings, health = self._topology, self._settings, self._health
        gone = await learn_model(topology, name, settings, health, self._metrics, self._store, self._holder)
        if gone is not None:
            await self._models.report_gone(gone)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        failure = task.exception()
        if isinstance(failure, ServiceError):
            log.error("model %s is not learned: %s", name, failure.detail)
            self._not_before[name] = time.monotonic() + REFUSED_RETRY_SECONDS
        elif failure is not None:
            log.error("the learner of %s failed and is restarted", name, exc_info=failure)
            self._not_before[name] = time.monotonic() + RETRY_SECONDS
