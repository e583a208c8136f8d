"""The composition root: builds every long-lived object of a process once, and hands it to what uses it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

from model_core.errors import InvalidInput
from service import __version__
from service.api.dashboard.feed import Feed
from service.api.dashboard.routes import add_dashboard
from service.api.dashboard.sampling import Sampler
from service.api.documentation.routes import add_documentation
from service.api.openapi import TAGS, completed
from service.api.problems import problem_response
from service.api.routes.aliases import add_alias_routes
from service.api.routes.challengers import add_challenger_routes
from service.api.routes.evaluation import add_evaluation_routes
from service.api.routes.explain import explain_routes
from service.api.routes.features import add_features_route
from service.api.routes.health import add_health_routes
from service.api.routes.history import add_history_route
from service.api.routes.impressions import Impressions, impressions_routes
from service.api.routes.log import add_log_routes
from service.api.routes.models import add_admin_routes
from service.api.routes.predict import Predict, predict_routes
from service.api.routes.promotions import add_promotion_routes
from service.api.routes.snapshots import add_snapshot_routes
from service.api.routes.update import Update, update_routes
from service.api.routes.update_stream import OpenStreams, StreamUpdate
from service.api.security.guard import Guard
from service.api.security.tokens import TokenFile
from service.api.server.front_door import BodyReader, FrontDoor, RawRoute
from service.api.services import DefaultModel, Lifecycle, Phase, Services
from service.errors import ServiceError
from service.example_log.appender import Updates
from service.feedback.service import Feedback
from service.feedback.unknown_ids import UnknownIds
from service.learning.learners import Learners
from service.models.aliases import Aliases
from service.models.config.model import default_config
from service.models.feature_names import FeatureNames
from service.models.registry import Models
from service.parsing.requests import RequestReader
from service.parsing.schemas import limits_of, with_limits
from service.runtime.memory import collect_as_usual
from service.settings import Settings
from service.snapshots.restore.shortcut import shortcut_of
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.embedded import EmbeddedServer
from service.storage.health import ServerHealth
from service.storage.topology import connect
from service.telemetry.metrics import Metrics

DESCRIPTION = """\
Calibrated click probabilities from a model that learns online, from every click that is sent back.

`/predict` and `/update` mean the model `default`; `/models/{name}/predict` and `/models/{name}/update` any
other.
Errors are `application/problem+json` (RFC 9457).
"""
Lifespan = Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]
EXPECTED = (ServiceError, InvalidInput, HTTPException, RequestValidationError, Exception)


async def wrong_method(request: Request, _: Exception) -> Response:
    """405, naming the methods of all routes of this path, where the router names those of the first."""
    matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    allowed = sorted({method for route in matching for method in route.methods})
    return await problem_response(request, HTTPException(405, headers={"Allow": ", ".join(allowed)}))


class Api(FastAPI):
    """FastAPI with a completed document, which has the limits that are set. `tokens`: calls need a token."""

    def __init__(self, limits: Mapping[str, float], *, tokens: bool, **options: Any) -> None:
        super().__init__(
            openapi_tags=TAGS,
            generate_unique_id_function=lambda route: route.name,
            docs_url=None,
            redoc_url=None,
            **options,
        )
        self._limits = limits
        self._tokens = tokens

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = completed(super().openapi(), tokens=self._tokens)
            self.openapi_schema = with_limits(document, self._limits)
        return self.openapi_schema


@dataclass(frozen=True)
class Application:
    """`entry`: the ASGI application that a server runs; `api`: the part of it that FastAPI routes.

    `end_streams` is to be called at a stop, which waits for replies that have begun: streams do not end by
    themselves.
    """

    entry: ASGIApp
    api: FastAPI
    phase: Phase
    end_streams: Callable[[], None]


def create_app(settings: Settings, *, run_learner: bool, health_port: int | None = None) -> Application:
    """An application that shares nothing with any other; its lifespan starts and stops its services.

    `health_port`: the only port of the health routes; None: they are on every port. Raises TokenFileError.
    """
    metrics = Metrics()
    services, lifecycle = build_services(settings, metrics, run_learner=run_learner)
    api = Api(
        limits_of(settings),
        tokens=settings.tokens_file is not None,
        title="ftrl-service",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan_of(lifecycle),
        redirect_slashes=False,
        exception_handlers={405: wrong_method, **dict.fromkeys(EXPECTED, problem_response)},
    )
    bodies = BodyReader(settings.body_timeout_seconds)
    reader, timeout = RequestReader(settings), settings.update_timeout_seconds
    api.router.routes.extend(predict_routes(Predict(services, reader, metrics), bodies, settings))
    update, streams = Update(services, reader, metrics, timeout), OpenStreams(settings.max_update_streams)
    streaming = StreamUpdate(services, update, metrics, settings, streams)
    api.router.routes.extend(update_routes(update, streaming, bodies, settings))
    api.router.routes.extend(impressions_routes(Impressions(services, reader, timeout), bodies, settings))
    api.router.routes.extend(explain_routes(services, bodies, settings))
    add_admin_routes(api, services, bodies, settings)
    add_alias_routes(api, services, bodies, settings)
    add_snapshot_routes(api, services, bodies, settings)
    add_promotion_routes(api, services)
    add_evaluation_routes(api, services)
    add_features_route(api, services)
    add_history_route(api, services)
    add_challenger_routes(api, services)
    add_log_routes(api, services)
    add_health_routes(api, services, settings, metrics)
    feed = Feed(lambda: Sampler(services, settings, metrics), settings.max_live_streams)
    add_dashboard(api, services, settings, feed, metrics)
    add_documentation(api)
    guard = Guard(TokenFile(settings.tokens_file), api.routes) if settings.tokens_file else None
    raw_routes = [route for route in api.routes if isinstance(route, RawRoute)]
    entry = FrontDoor(api, raw_routes, metrics, guard, health_port)

    def end_streams() -> None:
        feed.stop()
        streams.stop()

    return Application(entry, api, services.phase, end_streams)


def create_learner_app(settings: Settings, holder: str | None = None) -> Application:
    """A learner that runs alone, with the health routes and no others. `holder`: of its leases."""
    metrics = Metrics()
    services, lifecycle = build_services(settings, metrics, run_learner=True, predicts=False, holder=holder)
    return _health_app("ftrl-service learner", settings, services, metrics, lifespan_of(lifecycle))


def create_consumer_app(
    settings: Settings, consume: Callable[[Services, Metrics], contextlib.AbstractAsyncContextManager[None]]
) -> Application:
    """A process that runs `consume` beside the health routes, and neither answers other requests nor learns.
    `settings` have a `redis_url`.
    """
    metrics = Metrics()
    services, _ = build_services(settings, metrics, run_learner=False)
    lifecycle = Lifecycle(services, metrics, None, None, None)

    @contextlib.asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        async with lifespan_of(lifecycle)(api), consume(services, metrics):
            yield

    return _health_app("ftrl-service consumer", settings, services, metrics, lifespan)


def _health_app(
    title: str, settings: Settings, services: Services, metrics: Metrics, lifespan: Lifespan
) -> Application:
    api = FastAPI(
        title=title,
        version=__version__,
        lifespan=lifespan,
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers=dict.fromkeys(EXPECTED, problem_response),
    )
    add_health_routes(api, services, settings, metrics)
    return Application(api, api, services.phase, lambda: None)


def build_services(
    settings: Settings,
    metrics: Metrics,
    *,
    run_learner: bool,
    predicts: bool = True,
    holder: str | None = None,
) -> tuple[Services, Lifecycle]:
    embedded = None if settings.redis_url else EmbeddedServer(settings)
    topology = connect(settings, embedded.url if embedded else str(settings.redis_url))
    health = ServerHealth(topology, settings)
    snapshots = SnapshotStore(settings)
    models = Models(topology, settings, shortcut_of(settings, snapshots))
    services = Services(
        topology=topology,
        health=health,
        models=models,
        updates=Updates(topology, settings, health, metrics),
        snapshots=snapshots,
        aliases=Aliases(models),
        feedback=Feedback(topology, settings, health, metrics),
        unknown=UnknownIds(topology),
        names=FeatureNames(topology, models, settings, enabled=settings.feature_names),
    )
    learners = Learners(topology, models, settings, health, metrics, holder) if run_learner else None
    default_model = DefaultModel(partial(default_config, settings), settings.allow_new_default)
    return services, Lifecycle(services, metrics, default_model, embedded, learners, predicts=predicts)


def lifespan_of(lifecycle: Lifecycle) -> Lifespan:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with lifecycle.run():
            collect_as_usual()
            yield

    return lifespan
