"""`POST /impressions`: which logged predictions were shown, so that their label windows begin."""

from __future__ import annotations

import time
from json.encoder import encode_basestring_ascii as quoted
from typing import Annotated, Any

from fastapi import Body

from service.api.openapi import IMPRESSIONS_EXAMPLES, IMPRESSIONS_PROBLEMS
from service.api.schemas import ImpressionsReply, ModelName
from service.api.security.access import UPDATE
from service.api.server.front_door import BodyReader, RawReply, RawRequest, RawRoute
from service.api.services import Services
from service.feedback.labels import show
from service.parsing.requests import RequestReader
from service.parsing.schemas import ImpressionsRequest
from service.settings.groups import LimitSettings

ImpressionsBody = Annotated[ImpressionsRequest, Body(openapi_examples=IMPRESSIONS_EXAMPLES)]


class Impressions:
    """The handler of both routes."""

    def __init__(self, services: Services, reader: RequestReader, timeout_seconds: float) -> None:
        self._services = services
        self._reader = reader
        self._timeout_seconds = timeout_seconds

    async def __call__(self, call: RawRequest) -> RawReply:
        model = await self._services.aliases.open(call.model)
        model.require_own_log()
        ids = await self._reader.impressions(call.body)
        deadline = time.monotonic() + self._timeout_seconds
        aliases = self._services.aliases
        former = aliases.required(aliases.former(call.model, model), deadline)
        elsewhere = aliases.elsewhere(call.model, model, deadline)
        statuses = await show(self._services.feedback, former, model, elsewhere, ids)
        self._services.unknown.add(model, statuses)
        items = ",".join(
            f'{{"id":{quoted(i)},"status":"{status}"}}' for i, status in zip(ids, statuses, strict=True)
        )
        return RawReply(200, f'{{"results":[{items}]}}'.encode())


def impressions_routes(handler: Impressions, bodies: BodyReader, settings: LimitSettings) -> list[RawRoute]:
    """/impressions of the default model and of any other."""
    options: dict[str, Any] = {
        "handler": handler,
        "bodies": bodies,
        "max_bytes": settings.max_update_body_bytes,
        "responses": IMPRESSIONS_PROBLEMS,
        "tags": ["feedback"],
        "access": UPDATE,
    }
    return [
        RawRoute("POST", "/impressions", _report_impressions, **options),
        RawRoute("POST", "/models/{name}/impressions", _report_impressions_for_model, **options),
    ]


async def _report_impressions(body: ImpressionsBody) -> ImpressionsReply:
    """Report impressions to the model `default`.

    Which logged predictions were shown: the windows for their labels begin.
    """
    raise NotImplementedError


async def _report_impressions_for_model(name: ModelName, body: ImpressionsBody) -> ImpressionsReply:
    """Report impressions.

    Which logged predictions were shown: the windows for their labels begin.
    """
    raise NotImplementedError
