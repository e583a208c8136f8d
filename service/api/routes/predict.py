"""`POST /predict`: click probabilities, from bytes to bytes."""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quoted
from time import perf_counter
from typing import Annotated, Any

from fastapi import Body

from model_core.kernels.numerics import sigmoids
from service.api.openapi import PREDICT_EXAMPLES, PREDICT_PROBLEMS
from service.api.schemas import ModelName, PredictAnswer
from service.api.security.access import PREDICT
from service.api.server.front_door import BodyReader, RawReply, RawRequest, RawRoute, json_numbers
from service.api.services import Services
from service.feedback.labels import record_predictions
from service.parsing.requests import RequestReader
from service.parsing.schemas import PredictRequest
from service.settings.groups import LimitSettings
from service.telemetry.metrics import Metrics

PredictBody = Annotated[PredictRequest, Body(openapi_examples=PREDICT_EXAMPLES)]
Ids = Sequence[str | None] | None
Logged = Sequence[bool] | None

_LOGGED = {None: "", True: ',"logged":true', False: ',"logged":false'}


class Predict:
    """The handler of both routes."""

    def __init__(self, services: Services, reader: RequestReader, metrics: Metrics) -> None:
        self._services = services
        self._reader = reader
        self._metrics = metrics

    async def __call__(self, call: RawRequest) -> RawReply:
        model = await self._services.aliases.open(call.model)
        started = perf_counter()
        many, batch, ids, log = await self._reader.predict(model, call.body)
        reply = _reply_of_many if many else _reply_of_one
        if not (model.config.feedback.log if log is None else log):
            probabilities: list[float] = model.predict(batch).tolist()
            content = reply(model.name, model.revision, probabilities, ids)
            self._metrics.predicted(model.name, len(batch), perf_counter() - started)
            return RawReply(200, content)
        model.require_own_log()
        margins, revision = model.margins(batch), model.revision
        probabilities = sigmoids(margins).tolist()
        model.sample(call.body)
        names = model.new_slice_names(call.body)
        ids, logged = await record_predictions(self._services.feedback, model, batch, margins, ids, names)
        content = reply(model.name, revision, probabilities, ids, logged)
        self._metrics.predicted(model.name, len(batch), perf_counter() - started)
        return RawReply(200, content)


def _reply_of_one(
    model: str, revision: str, probabilities: list[float], ids: Ids, logged: Logged = None
) -> bytes:
    (predicted,) = _predicted(probabilities, ids)
    flag = _LOGGED[logged[0] if logged else None]
    return f'{{{predicted},"model":"{model}","revision":"{revision}"{flag}}}'.encode()


def _reply_of_many(
    model: str, revision: str, probabilities: list[float], ids: Ids, logged: Logged = None
) -> bytes:
    """Each prediction has a `logged` of its own if not all of them are logged."""
    predicted = _predicted(probabilities, ids)
    flag = _LOGGED[None if logged is None else all(logged)]
    if logged is not None and not all(logged):
        predicted = [fields + _LOGGED[one] for fields, one in zip(predicted, logged, strict=True)]
    items = "},{".join(predicted)
    items = f"{{{items}}}" if probabilities else ""
    return f'{{"predictions":[{items}],"model":"{model}","revision":"{revision}"{flag}}}'.encode()


def _predicted(probabilities: list[float], ids: Ids) -> list[str]:
    """The JSON fields of each prediction."""
    numbers = json_numbers(probabilities)
    if not ids:
        return [f'"probability":{number}' for number in numbers]
    return [
        f'"probability":{number}' if i is None else f'"probability":{number},"id":{quoted(i)}'
        for number, i in zip(numbers, ids, strict=True)
    ]


def predict_routes(handler: Predict, bodies: BodyReader, settings: LimitSettings) -> list[RawRoute]:
    """/predict of the default model and of any other."""
    options: dict[str, Any] = {
        "handler": handler,
        "bodies": bodies,
        "max_bytes": settings.max_body_bytes,
        "responses": PREDICT_PROBLEMS,
        "tags": ["predict"],
        "access": PREDICT,
    }
    return [
        RawRoute("POST", "/predict", _predict, **options),
        RawRoute("POST", "/models/{name}/predict", _predict_for_model, **options),
    ]


async def _predict(body: PredictBody) -> PredictAnswer:
    """Predict clicks with the model `default`.

    The click probability of one example, or of many that may share a context.
    """
    raise NotImplementedError


async def _predict_for_model(name: ModelName, body: PredictBody) -> PredictAnswer:
    """Predict clicks.

    The click probability of one example, or of many that may share a context.
    """
    raise NotImplementedError
