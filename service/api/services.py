"""Everything of an application that talks to Redis: opened together, closed in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from model_core.errors import InvalidInput
from service.errors import (
    AliasConflict,
    ContractMismatch,
    ModelConflict,
    ServerFull,
    StateUnavailable,
    UnknownModel,
)
from service.example_log.appender import Updates
from service.feedback.former_models import Looks
from service.feedback.service import Feedback
from service.feedback.unknown_ids import UnknownIds
from service.learning.learners import Learners
from service.models.aliases import Aliases
from service.models.config.model import DEFAULT_MODEL, default_config
from service.models.registry import Models
from service.runtime.kernels import warm_up_unless
from service.runtime.tasks import RETRY_SECONDS, background, for_ever
from service.settings import Settings
from service.snapshots.restore.shortcut import shortcut_of
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.client import CONNECTION_FAILURES, Channel, connect
from service.storage.embedded import EmbeddedServer
from service.storage.health import ServerHealth, UnfitServer
from service.telemetry.metrics import LOOK_EVERY_SECONDS, Metrics

log = logging.getLogger(__name__)


class Backend:
    """`models`, `updates`, `feedback` and `health` are there while it is open.

    A Redis that does not answer at the start is waited for in the background; `prepared` says whether the
    server was found fit and the model `default` made sure of.
    """

    health: ServerHealth
    models: Models
    updates: Updates
    snapshots: SnapshotStore
    aliases: Aliases
    _client: Redis
    feedback: Feedback
    looks: Looks
    unknown: UnknownIds

    def __init__(self, settings: Settings, metrics: Metrics, *, run_learner: bool) -> None:
        self.prepared = False
        self.stopping = False
        self._settings = settings
        self._metrics = metrics
        self._run_learner = run_learner

    def stop_soon(self) -> None:
        """From now on it is not ready, so that load balancers look elsewhere."""
        self.stopping = True

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Raises UnfitServer, EmbeddedServerError, StoppedBeforeStart."""
        settings = self._settings
        async with contextlib.AsyncExitStack() as stack:
            await warm_up_unless(lambda: self.stopping)
            client = connect(settings, await self._url(stack))
            stack.push_async_callback(client.aclose)
            self._client = client
            self.health = ServerHealth(client, settings)
            stack.push_async_callback(self.health.close)
            self.snapshots = SnapshotStore(settings)
            self.models = Models(client, settings, shortcut_of(settings, self.snapshots))
            stack.push_async_callback(self.models.close)
            self.updates = Updates(client, settings, self.health, self._metrics)
            stack.push_async_callback(self.updates.close)
            self.aliases = Aliases(self.models)
            self.looks = Looks(client, self.models, settings)
            stack.push_async_callback(self.looks.close)
            self.feedback = Feedback(client, settings, self.health, self._metrics)
            stack.push_async_callback(self.feedback.close)
            self.unknown = UnknownIds(client)
            stack.push_async_callback(self.unknown.close)
            learners = Learners(client, self.models, settings, self.health, self._metrics)
            await self._prepare()
            await stack.enter_async_context(background(self._work(learners)))
            yield

    def channel(self) -> Channel:
        """A connection of the caller's own, who closes it."""
        return Channel(self._client)

    async def _url(self, stack: contextlib.AsyncExitStack) -> str:
        if self._settings.redis_url is not None:
            return self._settings.redis_url
        server = EmbeddedServer(self._settings)
        stack.push_async_callback(asyncio.to_thread, server.stop)
        return await asyncio.to_thread(server.start)

    async def _work(self, learners: Learners) -> None:
        while not self.prepared:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self._prepare()
            except (UnfitServer, InvalidInput, ValueError, OSError) as refusal:
                log.error("%s", refusal)  # noqa: TRY400  the message says it all
        async with asyncio.TaskGroup() as group:
            group.create_task(for_ever(self.health.watch))
            group.create_task(for_ever(self.aliases.watch))
            group.create_task(for_ever(self.unknown.watch))
            if self._metrics.shared is not None:  # whoever is asked tells what all have last seen
                group.create_task(for_ever(self._look))
            if self._run_learner:
                group.create_task(for_ever(learners.run))

    async def _look(self) -> None:
        while True:
            self._metrics.look()
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def _prepare(self) -> None:
        """Raises UnfitServer."""
        try:
            await self.health.check()
            await self.models.repair_index()
            await self._ensure_default_model()
        except (*CONNECTION_FAILURES, ResponseError, ServerFull, StateUnavailable) as failure:
            log.warning("Redis is not ready (%s); the service begins as soon as it is", failure)
            return
        self.prepared = True

    async def _ensure_default_model(self) -> None:
        try:
            await self.models.get(DEFAULT_MODEL)
        except UnknownModel:
            # another process was quicker, or it is an alias
            with contextlib.suppress(ModelConflict, AliasConflict):
                await self.models.create(DEFAULT_MODEL, default_config(self._settings))
        except ContractMismatch as refusal:
            log.error("%s", refusal.detail)  # noqa: TRY400  the message says it all
