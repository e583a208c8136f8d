"""The composition root of an API process: everything is built here, and handed to what needs it."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from model_core.errors import InvalidInput
from service import __version__
from service.api.dashboard.routes import add_dashboard
from service.api.openapi import with_problem_media_type
from service.api.problems import problem_response
from service.api.routes.aliases import add_alias_routes
from service.api.routes.evaluation import add_evaluation_routes
from service.api.routes.explain import explain_routes
from service.api.routes.health import add_health_routes
from service.api.routes.impressions import Impressions, impressions_routes
from service.api.routes.models import add_admin_routes
from service.api.routes.predict import Predict, predict_routes
from service.api.routes.snapshots import add_snapshot_routes
from service.api.routes.update import Update, update_routes
from service.api.security.guard import Guard
from service.api.security.tokens import TokenFile
from service.api.server.front_door import FrontDoor
from service.api.server.raw_route import BodyReader, RawRoute
from service.api.services import Backend
from service.errors import ServiceError
from service.parsing.requests import RequestReader
from service.settings import Settings
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

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


class Application(FastAPI):
    """FastAPI behind a front door."""

    front_door: FrontDoor
    end_streams: Callable[[], None]
    """To be called at a stop, which waits for replies that have begun, and these do not end by themselves."""

    def add_front_door(self, metrics: Metrics, guard: Guard | None, health_port: int | None) -> None:
        """To be called when all routes are there."""
        raw_routes = [route for route in self.routes if isinstance(route, RawRoute)]
        self.front_door = FrontDoor(super().__call__, raw_routes, metrics, guard, health_port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.front_door(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = with_problem_media_type(super().openapi())
        return self.openapi_schema


def create_app(settings: Settings, *, run_learner: bool, health_port: int | None = None) -> Application:
    """An application that shares nothing with any other; its lifespan opens and closes what it holds.

    `health_port`: where alone it tells how it is; None: everywhere. Raises TokenFileError.
    """
    metrics = Metrics()
    backend = Backend(settings, metrics, run_learner=run_learner)
    app = Application(
        title="ftrl-service",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan_of(backend),
        redirect_slashes=False,
        exception_handlers={405: wrong_method, **dict.fromkeys(EXPECTED, problem_response)},
    )
    app.state.backend = backend
    bodies = BodyReader(settings.body_timeout_seconds)
    reader, timeout = RequestReader(settings), settings.update_timeout_seconds
    app.router.routes.extend(predict_routes(Predict(backend, reader, metrics), bodies, settings))
    app.router.routes.extend(update_routes(Update(backend, reader, metrics, timeout), bodies, settings))
    app.router.routes.extend(impressions_routes(Impressions(backend, reader, timeout), bodies, settings))
    app.router.routes.extend(explain_routes(backend, bodies, settings))
    add_admin_routes(app, backend, bodies, settings)
    add_alias_routes(app, backend, bodies, settings)
    add_snapshot_routes(app, backend, bodies, settings)
    add_evaluation_routes(app, backend)
    add_health_routes(app, backend, settings, metrics)
    app.end_streams = add_dashboard(app, backend, settings, metrics).stop
    guard = Guard(TokenFile(settings.tokens_file), app.routes) if settings.tokens_file else None
    app.add_front_door(metrics, guard, health_port)
    return app


def create_learner_app(settings: Settings, url: str) -> FastAPI:
    """A learner that runs alone: it answers at `url` how it is, and nothing else."""
    metrics = Metrics()
    backend = Backend(settings, metrics, run_learner=True)
    app = FastAPI(
        title="ftrl-service learner",
        version=__version__,
        lifespan=lifespan_of(backend, f"the learner's metrics are at {url}/metrics"),
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers=dict.fromkeys(EXPECTED, problem_response),
    )
    app.state.backend = backend
    add_health_routes(app, backend, settings, metrics)
    return app


def lifespan_of(backend: Backend, announcement: str = "") -> Lifespan:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with backend.open():
            if announcement:
                log.info("%s", announcement)
            gc.freeze()  # what was loaded by now stays: collections under load need not look through it
            yield

    return lifespan
