"""The long-lived objects of one process that routes work with, and how they start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from service.errors import (
    AliasConflict,
    CommandFailure,
    ContractMismatch,
    ModelConflict,
    ServerFull,
    StateUnavailable,
    StoreUnavailable,
    UnknownModel,
)
from service.example_log.appender import Updates
from service.feedback.service import Feedback
from service.feedback.unknown_ids import UnknownIds
from service.learning.learners import Learners
from service.models.alias_store import check_free
from service.models.aliases import Aliases
from service.models.config.model import DEFAULT_MODEL, ModelConfig
from service.models.feature_names import FeatureNames
from service.models.lost_models import read_loss, way_back
from service.models.registry import Models
from service.runtime.kernels import warm_up_unless
from service.runtime.tasks import RETRY_SECONDS, background, for_ever
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import Channel
from service.storage.embedded import EmbeddedServer
from service.storage.errors import CONNECTION_FAILURES
from service.storage.health import ServerHealth, UnfitServer
from service.storage.records import deleted_key
from service.storage.topology import Topology
from service.telemetry.metrics import GAUGE_REFRESH_SECONDS, Metrics

log = logging.getLogger(__name__)


class Phase:
    """The progress of a process from its start to its stop.

    `prepared`: Redis was found fit, and the model `default` exists or must not be created. `obstacle`: why it
    is not prepared.
    """

    def __init__(self) -> None:
        self.prepared = False
        self.obstacle = "Redis has not answered since the start."
        self.stopping = False

    def stop_soon(self) -> None:
        """From now on the process is not ready, so that load balancers use another one."""
        self.stopping = True


@dataclass(frozen=True)
class Services:
    """They connect to Redis when they are first used."""

    topology: Topology
    health: ServerHealth
    models: Models
    updates: Updates
    snapshots: SnapshotStore
    aliases: Aliases
    feedback: Feedback
    unknown: UnknownIds
    names: FeatureNames
    phase: Phase = field(default_factory=Phase)

    def channel(self) -> Channel:
        """A connection that the caller closes."""
        return Channel(self.topology)

    async def close(self) -> None:
        """In the reverse of the order in which they use each other."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.topology.close)
            for service in (self.health, self.models, self.updates, self.feedback, self.unknown, self.names):
                stack.push_async_callback(service.close)


@dataclass(frozen=True)
class DefaultModel:
    """The model `default`, which a process creates at its start if there is none: `config` makes its
    configuration. `despite_loss`: also if Redis seems to have lost it.
    """

    config: Callable[[], ModelConfig]
    despite_loss: bool = False

    async def ensure(self, services: Services, *, load: bool) -> None:
        """`load`: for a process that predicts. Raises CommandFailure, StateUnavailable, StoreUnavailable,
        ServerFull.
        """
        models = services.models
        try:
            await (models.get if load else models.check)(DEFAULT_MODEL)
        except UnknownModel:
            # Another process created it first, or it is an alias.
            with contextlib.suppress(ModelConflict, AliasConflict):
                if self.despite_loss or not await _was_lost(services):
                    await (models.create if load else models.ensure)(DEFAULT_MODEL, self.config())
        except ContractMismatch as refusal:
            log.error("%s", refusal.detail)  # noqa: TRY400  the message says it all


async def _was_lost(services: Services) -> bool:
    """Returns whether the server had a model `default` that no client has deleted, and reports that."""
    models = services.models
    async with models.channel() as channel:
        await check_free(channel, DEFAULT_MODEL)
        text = await read_loss(channel, DEFAULT_MODEL)
        if not text and (models.exist or await channel.call("EXISTS", deleted_key(DEFAULT_MODEL))):
            return False
        if not text:
            entries = await asyncio.to_thread(services.snapshots.of(DEFAULT_MODEL).entries)
            if not entries:
                return False
            text = (
                f"Redis has no model, although the snapshot store has snapshot {entries[-1].id} of the model"
                f" {DEFAULT_MODEL!r}: it seems to have lost its data. {way_back(DEFAULT_MODEL)}"
            )
        await models.lost.report(channel, DEFAULT_MODEL, text)
    return True


class Lifecycle:
    """Starts the embedded server if there is one, prepares Redis, and runs what works in the background.

    If Redis does not answer at the start, it is tried again in the background. `default_model`: None where
    another process creates it; `learners`: None where another process learns. `predicts`: whether requests
    are answered here; else no model is loaded for them.
    """

    def __init__(
        self,
        services: Services,
        metrics: Metrics,
        default_model: DefaultModel | None,
        embedded: EmbeddedServer | None,
        learners: Learners | None,
        *,
        predicts: bool = True,
    ) -> None:
        self._services = services
        self._metrics = metrics
        self._default_model = default_model
        self._embedded = embedded
        self._learners = learners
        self._predicts = predicts

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Raises UnfitServer, CommandFailure, EmbeddedServerError, StoppedBeforeStart."""
        async with contextlib.AsyncExitStack() as stack:
            await warm_up_unless(lambda: self._services.phase.stopping)
            if self._embedded is not None:
                stack.push_async_callback(asyncio.to_thread, self._embedded.stop)
                await asyncio.to_thread(self._embedded.start)
            stack.push_async_callback(self._services.close)
            await self._prepare()
            await stack.enter_async_context(background(self._work()))
            yield

    async def _work(self) -> None:
        services = self._services
        while not services.phase.prepared:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self._prepare()
            except (UnfitServer, CommandFailure) as refusal:
                self._note_obstacle(str(refusal), logging.ERROR, str(refusal))
        async with asyncio.TaskGroup() as group:
            group.create_task(for_ever(services.health.watch), name="health of Redis")
            group.create_task(for_ever(services.models.watch), name="models")
            if self._predicts:
                group.create_task(for_ever(services.aliases.watch), name="aliases")
                group.create_task(for_ever(services.unknown.watch), name="unknown ids")
                group.create_task(for_ever(services.names.watch), name="names of features")
            if self._metrics.shared is not None:  # a scrape of one process reports what all have last set
                group.create_task(for_ever(self._refresh_metrics), name="shared metrics")
            if self._learners is not None:
                group.create_task(for_ever(self._learners.run), name="learners")

    async def _refresh_metrics(self) -> None:
        while True:
            self._metrics.refresh()
            await asyncio.sleep(GAUGE_REFRESH_SECONDS)

    async def _prepare(self) -> None:
        """Raises UnfitServer, CommandFailure."""
        models, phase = self._services.models, self._services.phase
        try:
            await self._services.health.check()
            await models.repair_index()
            await models.refresh()
            if self._default_model is not None:
                await self._default_model.ensure(self._services, load=self._predicts)
            await models.refresh()
        except StoreUnavailable as failure:
            obstacle = f"Whether Redis has lost its models is not known: {failure.detail}"
            self._note_obstacle(obstacle, logging.WARNING, obstacle)
            return
        except (*CONNECTION_FAILURES, ResponseError, ServerFull, StateUnavailable) as failure:
            self._note_obstacle(
                f"Redis has not been ready since the start: {failure}",
                logging.WARNING,
                f"Redis is not ready ({failure}); the service begins as soon as it is",
            )
            return
        phase.prepared = True

    def _note_obstacle(self, obstacle: str, level: int, text: str) -> None:
        """Logs `text`, unless the last attempt met the same obstacle."""
        if obstacle != self._services.phase.obstacle:
            log.log(level, "%s", text)
        self._services.phase.obstacle = obstacle
