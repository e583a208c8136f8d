"""`/`, the page's files below `/dashboard/`, the line of each model, and the stream of one's live figures."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from service.api.assets import Assets
from service.api.dashboard.feed import Feed
from service.api.dashboard.overview import Overview
from service.api.dashboard.stream import EventStream
from service.api.security.access import ANYBODY, READ, READ_ALL
from service.api.services import Services
from service.settings.groups import ModelSettings
from service.storage.records import checked_name
from service.telemetry.metrics import Metrics


def add_dashboard(
    app: FastAPI, services: Services, settings: ModelSettings, feed: Feed, metrics: Metrics
) -> None:
    """Adds routes for browsers, none of which is in the OpenAPI document."""
    assets = Assets("service.api.dashboard")
    overview = Overview(services, settings)
    metrics.refresh_with(lambda: metrics.live_streams.set(feed.listeners))

    async def page(request: Request) -> Response:
        return assets.page(request)

    async def file(request: Request) -> Response:
        return assets.file(request)

    async def models(request: Request) -> Response:  # noqa: ARG001
        return JSONResponse(await overview.read(), headers={"cache-control": "no-store"})

    async def live(request: Request) -> Response:
        name = checked_name(request.path_params["name"])
        await services.aliases.open(name)
        return EventStream(feed, name)

    for method, path, endpoint, access in (
        ("GET", "/", page, ANYBODY),
        ("HEAD", "/", page, ANYBODY),
        ("GET", "/dashboard/{file:path}", file, ANYBODY),
        ("GET", "/overview", models, READ_ALL),
        ("GET", "/models/{name}/live", live, READ),
    ):
        app.add_api_route(path, endpoint, methods=[method], include_in_schema=False, **access.declared)
