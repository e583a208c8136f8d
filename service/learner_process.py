"""Learners for all models there are: what `ftrl learn` runs, and `ftrl serve` beside its API."""

from __future__ import annotations

import asyncio
import logging

from redis.asyncio import Redis

from service.errors import ServiceError, StateUnavailable
from service.learner import Learner
from service.metrics import Metrics
from service.models import Models
from service.server_health import ServerHealth
from service.settings import Settings

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.5


class Learners:
    """One learner task a model; looks for new models twice a second."""

    def __init__(self, client: Redis, models: Models, settings: Settings, health: ServerHealth, metrics: Metrics) -> None:
        self._client = client
        self._models = models
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        try:
            await self._look_for_ever()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _look_for_ever(self) -> None:
        while True:
            try:
                for name in await self._models.names():
                    if name not in self._tasks:
                        self._tasks[name] = asyncio.create_task(self._learn(name))
            except StateUnavailable as failure:
                log.debug("cannot look for models: %s", failure.detail)
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def _learn(self, name: str) -> None:
        try:
            await Learner(self._client, name, self._settings, self._health, self._metrics).run()
        except ServiceError as refusal:
            log.error("model %s is not learned: %s", name, refusal.detail)
            await asyncio.sleep(30)
        except Exception:
            log.exception("the learner of %s failed; it starts again", name)
            await asyncio.sleep(1)
        finally:
            del self._tasks[name]
