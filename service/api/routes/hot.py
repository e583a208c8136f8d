"""/predict and /update: bytes in, bytes out."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Body, Query

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.kernels.numerics import sigmoids
from service.api.encode import (
    impressions_reply,
    prediction_reply,
    predictions_reply,
    updated,
    updates_reply,
)
from service.api.openapi import (
    IMPRESSIONS_EXAMPLES,
    IMPRESSIONS_PROBLEMS,
    PREDICT_EXAMPLES,
    PREDICT_PROBLEMS,
    UPDATE_EXAMPLES,
    UPDATE_PROBLEMS,
)
from service.api.schemas import (
    ImpressionsReply,
    ModelName,
    PredictInstancesReply,
    PredictReply,
    UpdateExamplesReply,
    UpdateReply,
)
from service.api.security.access import PREDICT, UPDATE
from service.api.server.raw_route import BodyReader, RawReply, RawRequest, RawRoute
from service.api.services import Backend
from service.errors import StateUnavailable, UpdateUnavailable
from service.example_log.results import results_of, until_learned
from service.feedback.former_models import Earlier
from service.feedback.labels import (
    keep_predictions,
    refuse_single,
    results_of_labels,
    show,
    take_labels,
)
from service.models.names import checked_name
from service.models.registry import OpenModel, RequestHashing
from service.parsing.requests import RequestReader
from service.parsing.schemas import ImpressionsRequest, PredictRequest, UpdateRequest
from service.settings import Settings
from service.telemetry.metrics import Metrics

_FLAGS = {"true": True, "1": True, "false": False, "0": False}

PredictBody = Annotated[PredictRequest, Body(openapi_examples=PREDICT_EXAMPLES)]
UpdateBody = Annotated[UpdateRequest, Body(openapi_examples=UPDATE_EXAMPLES)]
ImpressionsBody = Annotated[ImpressionsRequest, Body(openapi_examples=IMPRESSIONS_EXAMPLES)]
UpdateAnswer = UpdateReply | UpdateExamplesReply
Wait = Annotated[bool, Query(description="Whether to wait until it is learned, at most for the time-out.")]


class HotRoutes:
    """The handlers of the raw routes."""

    def __init__(self, backend: Backend, settings: Settings, metrics: Metrics) -> None:
        self._backend = backend
        self._metrics = metrics
        self._settings = settings
        self._reader = RequestReader(settings)

    async def predict(self, call: RawRequest) -> RawReply:
        model = await self.model(call.model)
        many, batch, ids, log = self._reader.predict(model, call.body)
        reply = predictions_reply if many else prediction_reply
        if not (model.config.feedback.log if log is None else log):
            self._metrics.predicted(model.name, len(batch))
            probabilities: list[float] = model.predict(batch).tolist()
            return RawReply(200, reply(model.name, model.revision, probabilities, ids))
        margins, revision = model.margins(batch), model.revision
        probabilities = sigmoids(margins).tolist()
        names = model.slices.found_in(call.body)
        feedback, elsewhere = self._backend.feedback, self._looking_elsewhere(call, model, ids)
        ids, logged = await keep_predictions(feedback, model, batch, margins, ids, names, elsewhere)
        self._metrics.predicted(model.name, len(batch))
        return RawReply(200, reply(model.name, revision, probabilities, ids, logged))

    def _looking_elsewhere(
        self, call: RawRequest, model: OpenModel, ids: Sequence[str | None] | None
    ) -> Callable[[], Awaitable[str]] | None:
        """Whether it may have been sent before, to what the alias meant then."""
        aliases = self._backend.aliases
        if ids is None or not any(ids) or not (names := aliases.before(call.model, model)):
            return None
        since, read = aliases.changed_at(call.model), partial(self._read, call)
        return Earlier(self._backend.looks, names, since, ids, read).known

    def _read(self, call: RawRequest, hashing: RequestHashing) -> ExampleBatch:
        return self._reader.predict(hashing, call.body).batch

    async def update(self, call: RawRequest) -> RawReply:
        wait = _wait(call.query)
        try:
            model = await self.model(call.model)
        except StateUnavailable as away:
            raise UpdateUnavailable("not_appended", [], away.detail) from away
        many, examples, labels = await self._reader.update(model, call.body)
        examples = examples._replace(slice_names=model.slices.found_in(call.body))
        feedback, aliases = self._backend.feedback, self._backend.aliases
        deadline = time.monotonic() + self._settings.update_timeout_seconds
        elsewhere = aliases.elsewhere(call.model, model, deadline)
        before = partial(aliases.opened, aliases.before(call.model, model))
        # Labels first: sent again after a failure of the rest they do nothing, examples without an id would.
        asked = list(labels.values())
        taken = await take_labels(feedback, model, elsewhere, before, asked, deadline)
        placed = await self._backend.updates.append(model, examples, deadline)
        if wait:
            await until_learned(model, placed.places, deadline)
            for part in taken:
                await part.learned(deadline)
        results = results_of(model, placed, examples.batch.labels)
        labelled = results_of_labels(asked, taken)
        self._backend.unknown.add(model, labelled.statuses)
        statuses = results.statuses + labelled.statuses
        self._metrics.updated(model.name, statuses)
        items = updated(results)
        for place, item in zip(labels, updated(labelled), strict=True):
            items.insert(place, item)
        if many:
            return RawReply(_status_of(statuses), updates_reply(items))
        refuse_single(labelled)
        return RawReply(_status_of(statuses), items[0].encode())

    async def impressions(self, call: RawRequest) -> RawReply:
        model = await self.model(call.model)
        ids = self._reader.impressions(call.body)
        deadline = time.monotonic() + self._settings.update_timeout_seconds
        elsewhere = self._backend.aliases.elsewhere(call.model, model, deadline)
        statuses = await show(self._backend.feedback, model, elsewhere, ids)
        self._backend.unknown.add(model, statuses)
        return RawReply(200, impressions_reply(ids, statuses))

    async def model(self, name: str) -> OpenModel:
        """The model of that name, or that the alias means."""
        return await self._backend.aliases.open(checked_name(name))


def _status_of(statuses: Sequence[str]) -> int:
    return 202 if "appended" in statuses or "waiting" in statuses else 200


def _wait(query: bytes) -> bool:
    """The flag `wait` of a query string, true without it. Raises InvalidInput."""
    if not query:
        return True
    values = parse_qs(query.decode("ascii", "replace"), keep_blank_values=True).get("wait", ["true"])
    if values[-1].lower() not in _FLAGS:
        raise InvalidInput(("wait",), "must be true or false")
    return _FLAGS[values[-1].lower()]


def hot_routes(handlers: HotRoutes, bodies: BodyReader, settings: Settings) -> list[RawRoute]:
    """/predict and /update of the default model and of any other."""
    predict: dict[str, Any] = {
        "handler": handlers.predict,
        "most_bytes": settings.max_body_bytes,
        "bodies": bodies,
        "responses": PREDICT_PROBLEMS,
        "tags": ["predict"],
        "access": PREDICT,
    }
    update: dict[str, Any] = {
        "handler": handlers.update,
        "most_bytes": settings.max_update_body_bytes,
        "bodies": bodies,
        "responses": UPDATE_PROBLEMS
        | {202: {"model": UpdateAnswer, "description": "Durable, not yet learned."}},
        "response_description": "Durable and learned.",
        "tags": ["update"],
        "access": UPDATE,
    }
    impressions: dict[str, Any] = {
        "handler": handlers.impressions,
        "most_bytes": settings.max_update_body_bytes,
        "bodies": bodies,
        "responses": IMPRESSIONS_PROBLEMS,
        "tags": ["feedback"],
        "access": UPDATE,
    }
    return [
        RawRoute("POST", "/predict", _predict, **predict),
        RawRoute("POST", "/update", _update, **update),
        RawRoute("POST", "/models/{name}/predict", _predict_with, **predict),
        RawRoute("POST", "/models/{name}/update", _update_of, **update),
        RawRoute("POST", "/impressions", _impressions, **impressions),
        RawRoute("POST", "/models/{name}/impressions", _impressions_of, **impressions),
    ]


async def _predict(body: PredictBody) -> PredictReply | PredictInstancesReply:
    """Click probability of one example, or of many that share a context, by the model `default`."""
    raise NotImplementedError


async def _predict_with(name: ModelName, body: PredictBody) -> PredictReply | PredictInstancesReply:
    """Click probability of one example, or of many that share a context."""
    raise NotImplementedError


async def _update(body: UpdateBody, wait: Wait = True) -> UpdateAnswer:
    """Learn from one example or from many in order, in the model `default`.

    Durable when answered. 200: learned before the reply. 202: not yet.
    """
    raise NotImplementedError


async def _update_of(name: ModelName, body: UpdateBody, wait: Wait = True) -> UpdateAnswer:
    """Learn from one example or from many in order.

    Durable when answered. 200: learned before the reply. 202: not yet.
    """
    raise NotImplementedError


async def _impressions(body: ImpressionsBody) -> ImpressionsReply:
    """Says which logged predictions of the model `default` were really shown: their windows begin."""
    raise NotImplementedError


async def _impressions_of(name: ModelName, body: ImpressionsBody) -> ImpressionsReply:
    """Says which logged predictions were really shown: their windows begin."""
    raise NotImplementedError
