"""The outermost ASGI application: it counts and times every request, and leads straight to the raw routes."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import problem_of
from service.api.security.guard import Guard
from service.api.server.raw_route import RawRoute
from service.errors import ServiceError
from service.models.config.model import DEFAULT_MODEL
from service.telemetry.metrics import Metrics

MODEL_PREFIX = "/models/"
MODEL_TEMPLATE = "/models/{name}/"
UNROUTED = "unrouted"
OTHER = "other"
STREAMS = frozenset({(b"content-type", b"text/event-stream; charset=utf-8")})
HEALTH_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class FrontDoor:
    """A POST to a raw route goes past the router and all middleware; anything else goes the long way.

    Both ways lead to the same `RawRoute.answer`: the short one is an optimisation only.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Iterable[RawRoute],
        metrics: Metrics,
        guard: Guard | None = None,
        health_port: int | None = None,
    ) -> None:
        self._app = app
        self._guard = guard
        self._health_port = health_port
        self._metrics = metrics
        posts = [route for route in routes if route.methods == {"POST"}]
        self._by_path = {route.path: route for route in posts if "{" not in route.path}
        self._by_verb = {
            route.path.removeprefix(MODEL_TEMPLATE): route
            for route in posts
            if route.path.startswith(MODEL_TEMPLATE)
        }
        self._in_progress = dict.fromkeys((*(route.path for route in posts), OTHER), 0)
        metrics.refresh_with(self._look)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        model = DEFAULT_MODEL
        route = self._by_path.get(path)
        if route is None and path.startswith(MODEL_PREFIX):
            model, _, verb = path[len(MODEL_PREFIX) :].partition("/")
            route = self._by_verb.get(verb) if model else None
        if scope["method"] != "POST":
            route = None
        if self._health_port is not None or self._guard is not None:
            try:
                self._let_in(scope, path, route, model)
            except (ServiceError, HTTPException) as refusal:
                await self._refuse(refusal, scope, send)
                return
        if route is None:
            await self._long_way(scope, receive, send)
        else:
            await self._short_way(route, model, scope, receive, send)

    def _let_in(self, scope: Scope, path: str, route: RawRoute | None, model: str) -> None:
        """Raises ServiceError, HTTPException."""
        if self._health_port is not None:
            at_health_port = scope["server"][1] == self._health_port
            if at_health_port is not (path in HEALTH_PATHS):
                raise HTTPException(404)
            if at_health_port:
                return
        if self._guard is None:
            return
        if route is None:
            self._guard.check(scope)
        else:
            self._guard.check_post(scope, route.path, model)

    async def _refuse(self, refusal: Exception, scope: Scope, send: Send) -> None:
        problem = problem_of(refusal, scope["path"])
        await send(
            {"type": "http.response.start", "status": problem.status, "headers": problem.raw_headers()}
        )
        await send({"type": "http.response.body", "body": problem.body})
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
        self._metrics.observe_request(UNROUTED, method, problem.status, 0.0)

    def _look(self) -> None:
        for path, count in self._in_progress.items():
            self._metrics.requests_in_progress.labels(path).set(count)

    async def _short_way(
        self, route: RawRoute, model: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        started = perf_counter()
        self._in_progress[route.path] += 1
        status = 500
        try:
            status = await route.answer(model, scope, receive, send)
        finally:
            self._in_progress[route.path] -= 1
            self._metrics.observe_request(route.path, "POST", status, perf_counter() - started)

    async def _long_way(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        status = 500
        seconds: float | None = None

        async def noting_status(message: Message) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                status = message["status"]
                if any(header in STREAMS for header in message["headers"]):
                    seconds = perf_counter() - started  # how long it goes on is up to its reader
            await send(message)

        self._in_progress[OTHER] += 1
        try:
            await self._app(scope, receive, noting_status)
        finally:
            self._in_progress[OTHER] -= 1
            route = getattr(scope.get("route"), "path", UNROUTED)
            method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
            if seconds is None:
                seconds = perf_counter() - started
            self._metrics.observe_request(route, method, status, seconds)
