"""Translates every exception that reaches the edge into a problem document (RFC 9457), in one place."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from model_core.errors import InvalidInput
from service.errors import MAX_PATH_LENGTH, ServiceError, Unprocessable, field_error
from service.parsing.field_errors import field_errors

logger = logging.getLogger(__name__)

PROBLEM_JSON = "application/problem+json"
INTERNAL_ERROR = "internal_error"
HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
"""Codes of the errors that routing raises, by status."""


class Problem(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers as ASGI wants them."""
        further = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        length = b"%d" % len(self.body)
        return [(b"content-type", PROBLEM_JSON.encode()), (b"content-length", length), *further]


def problem_of(error: Exception, path: str) -> Problem:
    """Describe `error` to a client; an unforeseen one is logged under an incident id and not shown."""
    known = _as_service_error(error)
    if known is not None:
        title = known.title or known.code.replace("_", " ").capitalize()
        kind = f"urn:ftrl-service:{known.code.replace('_', '-')}"
        return _problem(
            path,
            known.status,
            known.code,
            title,
            known.detail,
            kind,
            extra=known.extra,
            headers=known.headers,
        )
    if isinstance(error, HTTPException):
        status = error.status_code
        code, title = HTTP_CODES.get(status, "http_error"), HTTPStatus(status).phrase
        return _problem(path, status, code, title, _routing_detail(error, path), headers=error.headers or {})
    incident = secrets.token_hex(8)
    logger.error("Incident %s: request to %s failed", incident, path, exc_info=error)
    detail = f"The server failed. Search its log for incident {incident}."
    return _problem(path, 500, INTERNAL_ERROR, "Internal Server Error", detail, extra={"incident": incident})


async def problem_response(request: Request, error: Exception) -> Response:
    """Answer with `problem_of`; an exception handler for FastAPI."""
    problem = problem_of(error, request.url.path)
    return Response(problem.body, problem.status, {**problem.headers, "content-type": PROBLEM_JSON})


def _routing_detail(error: HTTPException, path: str) -> str:
    """Say what is wrong with the path or the method of a request, which Starlette does not."""
    shown = repr(path if len(path) <= MAX_PATH_LENGTH else f"{path[:MAX_PATH_LENGTH]}…")
    if error.status_code == HTTPStatus.NOT_FOUND:
        return f"There is no path {shown} on this port."
    allowed = (error.headers or {}).get("Allow")
    return f"{shown} takes {allowed} only." if allowed else error.detail


def _as_service_error(error: Exception) -> ServiceError | None:
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, InvalidInput):
        return Unprocessable([field_error(error.path, error.detail, error.code)])
    if isinstance(error, ValidationError):
        return Unprocessable(field_errors(error.errors(include_url=False, include_input=False)))
    if isinstance(error, RequestValidationError):
        return Unprocessable(field_errors(error.errors(), skip=1))
    return None


def _problem(
    path: str,
    status: int,
    code: str,
    title: str,
    detail: str,
    kind: str = "about:blank",
    *,
    extra: Mapping[str, object] = MappingProxyType({}),
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Problem:
    members = {
        "type": kind,
        "code": code,
        "title": title,
        "status": status,
        "detail": detail,
        "instance": quote(path),
    }
    return Problem(status, headers, json.dumps({**members, **extra}, allow_nan=False).encode())
