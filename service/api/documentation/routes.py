"""`/docs` (Swagger UI), `/redoc` (ReDoc), and the files of both below `/docs/`."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from service.api.assets import Assets
from service.api.security.access import ANYBODY

REDOC_STYLES = " ".join(
    (
        "'self'",
        "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='",  # empty elements, filled through the DOM
        "'sha256-QMIg+bpjm3JdElJ388KYke01izlUW0UoNOeKjpMxdgc='",  # its scroll bars
    )
)


def add_documentation(app: FastAPI) -> None:
    """Adds routes for browsers, none of which is in the OpenAPI document."""
    assets = Assets(
        "service.api.documentation", images="'self' data:"
    )  # some are in Swagger UI's style sheet

    async def page(request: Request) -> Response:
        return assets.page(request)

    async def file(request: Request) -> Response:
        return assets.file(request)

    async def reference(request: Request) -> Response:
        return assets.page(request, "redoc.html", REDOC_STYLES)

    for path, endpoint in (("/docs", page), ("/redoc", reference), ("/docs/{file:path}", file)):
        app.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False, **ANYBODY.declared)
