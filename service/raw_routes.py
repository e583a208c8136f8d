"""Routes that FastAPI documents and finds but does not run.

FastAPI's work around a handler (dependencies, exit stacks, validation of the reply, middleware) costs more
than a prediction. A `RawRoute` has its signature in OpenAPI and answers as a bare ASGI application.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from service.bodies import JSON, BodyReader, ClientLeft
from service.model_config import DEFAULT_MODEL
from service.problems import problem_of
from service.security.access import Access

CLIENT_LEFT = 499
"""Counted where a client went away before its request was read; nobody receives it."""


class RawRequest(NamedTuple):
    model: str
    query: bytes
    body: bytes


class RawReply(NamedTuple):
    status: int
    body: bytes


Handler = Callable[[RawRequest], Awaitable[RawReply]]


class RawRoute(APIRoute):
    """`documentation` is a function of which only the signature and the docstring are used."""

    def __init__(
        self,
        method: str,
        path: str,
        documentation: Callable[..., Any],
        handler: Handler,
        *,
        bodies: BodyReader,
        most_bytes: int,
        access: Access,
        **openapi: Any,
    ) -> None:
        super().__init__(path, documentation, methods=[method], **access.declared, **openapi)
        self.app = self._routed
        self._handler = handler
        self._bodies = bodies
        self._most_bytes = most_bytes

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.answer(scope["path_params"].get("name", DEFAULT_MODEL), scope, receive, send)

    async def answer(self, model: str, scope: Scope, receive: Receive, send: Send) -> int:
        """Answers one request and returns the status, for the front door to count."""
        try:
            body = await self._bodies.read_json(scope, receive, self._most_bytes)
            status, reply = await self._handler(RawRequest(model, scope["query_string"], body))
            headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(reply))]
        except ClientLeft:
            return CLIENT_LEFT
        except Exception as error:  # noqa: BLE001  the edge: whatever it is becomes a reply
            problem = problem_of(error, scope["path"])
            status, reply, headers = problem.status, problem.body, problem.raw_headers()
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": reply})
        return status
