"""The outermost ASGI application, and the routes that it leads to past FastAPI.

Why some routes are documented and found by FastAPI but not run by it: its work around a handler
(dependencies, exit stacks, validation of the reply, middleware) costs more than a prediction. A `RawRoute`
has its signature in OpenAPI and answers as a bare ASGI application: it reads the body, calls its handler, and
turns exceptions into problem documents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic, perf_counter
from typing import Any, NamedTuple, TypeVar

from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from model_core.json.shape import check_values
from service.api.problems import problem_of
from service.api.security.access import Access
from service.api.security.guard import GRANT, Guard
from service.api.security.tokens import Grant
from service.api.server.connections import EXCHANGE, STREAMING, Exchange
from service.api.server.content_encoding import unpacker_of
from service.errors import ServiceError, SlowBody, TooLarge, UnsupportedMediaType
from service.models.config.model import DEFAULT_MODEL
from service.parsing.duplicate_names import refuse_repeated_names
from service.parsing.large_bodies import MAX_VALUES
from service.telemetry.metrics import Metrics

Request = TypeVar("Request")
CLIENT_LEFT = 499
"""Status that is counted if a client disconnected before its request was read; it is never sent."""


class RawRequest(NamedTuple):
    """`model`: the name in the path, not checked yet; `default` if the path has none. `grant`: of the token;
    None where none is needed.
    """

    model: str
    query: bytes
    body: bytes
    grant: Grant | None = None

    def parsed(self, parse: Callable[[bytes], Request], most: int = MAX_VALUES) -> Request:
        """Parse a body without a list of items: of at most `most` names and values, and no name twice.

        Raises InvalidInput, and what `parse` raises.
        """
        if len(self.body) > most:  # each has a byte at least
            check_values(self.body, most)
        request = parse(self.body)
        refuse_repeated_names(self.body)
        return request


class RawReply(NamedTuple):
    status: int
    body: bytes


def json_numbers(values: list[float]) -> list[str]:
    """Each number as JSON, null where it is not finite: in a fifth of the time that `repr` takes."""
    return to_json(values, inf_nan_mode="null")[1:-1].decode().split(",") if values else []


Handler = Callable[[RawRequest], Awaitable[RawReply]]
StreamHandler = Callable[[str, Scope, Receive, Send], Awaitable[int]]
"""Answers a request whose body is not JSON, by the model in its path; returns the status."""


class RawRoute(APIRoute):
    """`documentation` is a function of which only the name, the signature and the docstring are used.

    `streams`: answers requests of other media types than JSON, or raises UnsupportedMediaType.
    """

    def __init__(
        self,
        method: str,
        path: str,
        documentation: Callable[..., Any],
        handler: Handler,
        *,
        bodies: BodyReader,
        max_bytes: int,
        access: Access,
        streams: StreamHandler | None = None,
        **openapi: Any,
    ) -> None:
        operation = documentation.__name__.lstrip("_")
        extra = {**openapi.pop("openapi_extra", {}), **access.declared["openapi_extra"]}
        super().__init__(
            path, documentation, methods=[method], operation_id=operation, openapi_extra=extra, **openapi
        )
        self.app = self._routed
        self._handler = handler
        self._bodies = bodies
        self._max_bytes = max_bytes
        self._streams = streams

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.answer(scope["path_params"].get("name", DEFAULT_MODEL), scope, receive, send)

    async def answer(self, model: str, scope: Scope, receive: Receive, send: Send) -> int:
        """Answers one request and returns the status, for the front door to count."""
        try:
            body = await self._bodies.read_json(scope, receive, self._max_bytes)
            status, reply = await self._handler(
                RawRequest(model, scope["query_string"], body, scope.get(GRANT))
            )
        except ClientLeft:
            return CLIENT_LEFT
        except Exception as error:  # noqa: BLE001  the edge: every exception becomes a reply
            if self._streams is not None and isinstance(error, UnsupportedMediaType):
                return await self._streams(model, scope, receive, send)
            problem = problem_of(error, scope["path"])
            status, reply, headers = problem.status, problem.body, problem.raw_headers()
        else:
            exchange: Exchange | None = scope.get(EXCHANGE)
            if exchange is not None:
                await exchange.reply(status, reply)
                return status
            headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(reply))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": reply})
        return status


async def send_problem(error: Exception, scope: Scope, send: Send) -> int:
    """Answer with a problem document and return its status."""
    problem = problem_of(error, scope["path"])
    await send({"type": "http.response.start", "status": problem.status, "headers": problem.raw_headers()})
    await send({"type": "http.response.body", "body": problem.body})
    return problem.status


JSON = b"application/json"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LARGE_BYTES = 1 << 16  # unpacking a packed body of this size takes longer than changing to a thread
_MAX_LENGTH_DIGITS = 15


class ClientLeft(Exception):
    """The client closed the connection before it had sent its request."""


class BodyReader:
    """Reads bodies of JSON, each for at most `seconds`.

    Checking all reading tasks periodically costs less than a timer for each: most are done at once.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._started: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def read_json(self, scope: Scope, receive: Receive, max_bytes: int) -> bytes:
        """Return the whole body, unpacked and without a byte order mark (which RFC 8259 lets one ignore).

        What is left of a body that is refused is read and dropped by the server. Raises UnsupportedMediaType,
        UnsupportedContentEncoding, TooLarge (these before reading if it can), InvalidInput, SlowBody,
        ClientLeft.
        """
        content_type = coding = b""
        is_too_large = False
        for name, value in scope["headers"]:
            if name == b"content-length":
                is_too_large = len(value) > _MAX_LENGTH_DIGITS or int(value) > max_bytes
            elif name == b"content-type":
                content_type = value
            elif name == b"content-encoding":
                coding = b"%b, %b" % (coding, value) if coding else value
        if content_type != JSON and not _is_json(content_type):
            raise UnsupportedMediaType(
                "Send the body as JSON, with the header Content-Type: application/json."
            )
        if is_too_large:
            raise _too_large(max_bytes)
        unpack = unpacker_of(coding, max_bytes) if coding else None
        exchange: Exchange | None = scope.get(EXCHANGE)
        body = exchange.take_body() if exchange is not None else None
        if body is None:
            body = await self._read_in_time(receive, max_bytes)
        elif len(body) > max_bytes:
            raise _too_large(max_bytes)
        if unpack is not None:
            body = await asyncio.to_thread(unpack, body) if len(body) >= _LARGE_BYTES else unpack(body)
        return body.removeprefix(_BYTE_ORDER_MARK)

    async def _read_in_time(self, receive: Receive, max_bytes: int) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        self._started[task] = monotonic()
        if self._timer is None:
            self._check_later()
        try:
            return await _read(receive, max_bytes)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            if task.uncancel() > 0:  # cancelled from elsewhere, too
                raise
            raise SlowBody(f"The body was not complete after {self._seconds:g} s.") from None
        finally:
            del self._started[task]
            self._late.discard(task)

    def _check_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds / 4, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._started:
            self._check_later()
        latest = monotonic() - self._seconds
        for task, started in self._started.items():
            if started < latest and task not in self._late:
                self._late.add(task)
                task.cancel()


async def _read(receive: Receive, max_bytes: int) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    pieces = [body]
    size = len(body)
    while message["type"] == "http.request" and size <= max_bytes:
        if not message.get("more_body"):
            if size >= _LARGE_BYTES:  # of which join is a step that lets other threads run
                return await asyncio.to_thread(b"".join, pieces)
            return body if len(pieces) == 1 else b"".join(pieces)
        message = await receive()
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
    raise ClientLeft if message["type"] != "http.request" else _too_large(max_bytes)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"A body of this request has at most {max_bytes} bytes.")


def _is_json(content_type: bytes) -> bool:
    """application/json or application/...+json, with any parameters.

    Nothing else is taken for JSON: a page of another origin may make a browser send text or forms, not these.
    """
    media_type = content_type.split(b";")[0].strip().lower()
    return media_type == JSON or (media_type.startswith(b"application/") and media_type.endswith(b"+json"))


MODEL_PREFIX = "/models/"
MODEL_TEMPLATE = "/models/{name}/"
UNROUTED = "unrouted"
OTHER = "other"
STREAMS = frozenset({(b"content-type", b"text/event-stream; charset=utf-8")})
HEALTH_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class FrontDoor:
    """A POST to a raw route bypasses the router and all middleware; all other requests pass through them.

    Both paths lead to the same `RawRoute.answer`: the bypass is an optimisation only.
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
        metrics.refresh_with(self._show_in_progress)

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
        scope.pop(EXCHANGE, None)
        status = await send_problem(refusal, scope, send)
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
        self._metrics.observe_request(UNROUTED, method, status, 0.0)

    def _show_in_progress(self) -> None:
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
            scope.pop(EXCHANGE, None)  # or its reference to the scope keeps both until they are collected
            answered = scope.pop(STREAMING, None) or perf_counter()
            self._metrics.observe_request(route.path, "POST", status, answered - started)

    async def _long_way(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.pop(EXCHANGE, None)  # `noting_status` and middleware are to see what is sent
        started = perf_counter()
        status = 500
        seconds: float | None = None

        async def noting_status(message: Message) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                status = message["status"]
                if any(header in STREAMS for header in message["headers"]):
                    seconds = perf_counter() - started  # the reader decides how long it lasts
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
