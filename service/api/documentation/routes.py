"""`/docs`, and the files of the page below `/docs/`."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from service.api.assets import Assets
from service.api.security.access import ANYBODY


def add_documentation(app: FastAPI) -> None:
    """Adds routes for browsers, none of which is in the OpenAPI document."""
    assets = Assets(
        "service.api.documentation", images="'self' data:"
    )  # some are in Swagger UI's style sheet

    async def page(request: Request) -> Response:
        return assets.page(request)

    async def file(request: Request) -> Response:
        return assets.file(request)

    for path, endpoint in (("/docs", page), ("/docs/{file:path}", file)):
        app.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False, **ANYBODY.declared)
