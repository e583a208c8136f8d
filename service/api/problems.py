"""Every exception that reaches the edge, translated once into problem+json (RFC 9457)."""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from model_core.errors import InvalidInput
from service.errors import FieldError, ServiceError, Unprocessable, field_error

logger = logging.getLogger(__name__)

PROBLEM_JSON = "application/problem+json"

_DETAILS = {
    "missing": "this field is required",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_too_short": "must not be empty",
}


class Problem(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """As ASGI wants them."""
        further = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        length = b"%d" % len(self.body)
        return [(b"content-type", PROBLEM_JSON.encode()), (b"content-length", length), *further]


def problem_of(error: Exception, path: str) -> Problem:
    """What a client sees of `error`; the unforeseen is logged under an incident id and not shown."""
    known = _as_service_error(error)
    if known is not None:
        kind = f"urn:ftrl-service:{_kebab(type(known).__name__)}"
        return _problem(kind, known.status, known.title, known.detail, path, known.extra, known.headers)
    if isinstance(error, HTTPException):
        title = HTTPStatus(error.status_code).phrase
        return _problem("about:blank", error.status_code, title, error.detail, path, {}, error.headers or {})
    incident = secrets.token_hex(8)
    logger.error("Incident %s: request to %s failed", incident, path, exc_info=error)
    detail = f"The server failed. Its log says more under incident {incident}."
    return _problem("about:blank", 500, "Internal Server Error", detail, path, {"incident": incident}, {})


async def problem_response(request: Request, error: Exception) -> Response:
    """`problem_of` as a handler of exceptions for FastAPI."""
    problem = problem_of(error, request.url.path)
    return Response(problem.body, problem.status, {**problem.headers, "content-type": PROBLEM_JSON})


def _field_errors(errors: Iterable[Mapping[str, Any]], skip: int = 0) -> list[FieldError]:
    """pydantic's errors in our words; the first `skip` parts of each location are not the client's."""
    return [field_error(error["loc"][skip:], _detail(error)) for error in errors]


def _as_service_error(error: Exception) -> ServiceError | None:
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, InvalidInput):
        return Unprocessable([field_error(error.path, error.detail)])
    if isinstance(error, ValidationError):
        return Unprocessable(_field_errors(error.errors(include_url=False, include_input=False)))
    if isinstance(error, RequestValidationError):
        return Unprocessable(_field_errors(error.errors(), skip=1))
    return None


def _detail(error: Mapping[str, Any]) -> str:
    return _DETAILS.get(error["type"]) or str(error["msg"]).replace("Input should", "must", 1)


def _problem(
    kind: str,
    status: int,
    title: str,
    detail: str,
    path: str,
    extra: Mapping[str, object],
    headers: Mapping[str, str],
) -> Problem:
    document = {"type": kind, "title": title, "status": status, "detail": detail, "instance": quote(path)}
    return Problem(status, headers, json.dumps({**document, **extra}, allow_nan=False).encode())


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
