"""The appenders of all models of a process."""

from __future__ import annotations

from redis.asyncio import Redis

from service.appending import Appender, NewExamples, Placed
from service.errors import LogFull, StateUnavailable
from service.metrics import Metrics
from service.models import OpenModel
from service.replica import ModelGone
from service.server_health import ServerHealth
from service.settings import Settings


class Updates:
    def __init__(self, client: Redis, settings: Settings, health: ServerHealth, metrics: Metrics) -> None:
        self._client = client
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._appenders: dict[str, Appender] = {}  # by incarnation

    async def append(self, model: OpenModel, examples: NewExamples, deadline: float) -> Placed:
        """Durable when it returns.

        Raises LogFull, UpdateUnavailable, StateUnavailable (the model was deleted meanwhile).
        """
        if not len(examples.batch):
            return Placed([], [])
        if self._health.shedding:
            raise LogFull(
                f"Redis uses {self._health.used_share:.0%} of its memory limit; examples are refused above"
                f" {self._settings.memory_share_limit:.0%}, so that what is in the log can still be learned."
            )
        try:
            placed = await self._appender(model).append(examples, deadline)
        except ModelGone:
            raise StateUnavailable(
                f"Model {model.name!r} was deleted or created anew; nothing was appended."
            ) from None
        model.slices.told(examples.slice_names)
        return placed

    def _appender(self, model: OpenModel) -> Appender:
        keys = model.mirror.replica.keys
        appender = self._appenders.get(keys.incarnation)
        if appender is None:
            model.belongs(self._retire_appender, keys.incarnation)
            appender = Appender(self._client, keys, self._settings, self._metrics)
            self._appenders[keys.incarnation] = appender
        return appender

    async def _retire_appender(self, incarnation: str) -> None:
        """Of a model that was deleted: what is under way is answered first, as the server knows what became
        of it.
        """
        if incarnation in self._appenders:
            await self._appenders[incarnation].drain(self._settings.update_timeout_seconds)
            await self._close_appender(incarnation)

    async def _close_appender(self, incarnation: str) -> None:
        appender = self._appenders.pop(incarnation, None)
        if appender is not None:
            await appender.close()

    async def close(self) -> None:
        for incarnation in list(self._appenders):
            await self._close_appender(incarnation)
