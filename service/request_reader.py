"""From the body of a request to a batch of hashed examples.

What is entirely ordinary is parsed and hashed by a kernel. Everything else, and everything that is wrong, is
read by pydantic and FeatureEncoder, which alone define what is valid and say what is not.
"""

from __future__ import annotations

from pydantic import TypeAdapter

from model_core.json_requests import ParsedPredict, ParsedUpdate
from service.appending import NewExamples
from service.instances import many_instances, one_instance
from service.labelled import many_examples, one_example
from service.models import OpenModel
from service.schemas import PredictRequest, UpdateRequest
from service.settings import Settings


class RequestReader:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._predict_request = TypeAdapter[PredictRequest](PredictRequest).validator.validate_json
        self._update_request = TypeAdapter[UpdateRequest](UpdateRequest).validator.validate_json

    def predict(self, model: OpenModel, body: bytes) -> ParsedPredict:
        """Raises pydantic.ValidationError, InvalidInput."""
        return model.parser.predict(body) or self._read_predict(model, body)

    async def update(self, model: OpenModel, body: bytes) -> ParsedUpdate:
        """Raises pydantic.ValidationError, InvalidInput, Unprocessable."""
        return model.parser.update(body) or await self._read_update(model, body)

    def _read_predict(self, model: OpenModel, body: bytes) -> ParsedPredict:
        request: PredictRequest = self._predict_request(body)
        if "instances" in request or "context" in request:
            return many_instances(model.encoder, request, self._settings.max_instances)
        return one_instance(model.encoder, request)

    async def _read_update(self, model: OpenModel, body: bytes) -> ParsedUpdate:
        request: UpdateRequest = self._update_request(body)
        settings = self._settings
        many = "examples" in request
        if many:
            examples = await many_examples(model.encoder, request, settings.max_weight, settings.max_examples)
        else:
            examples = [one_example(model.encoder, request, settings.max_weight)]
        new = NewExamples.of(examples)
        return ParsedUpdate(many, new.batch, new.event_ids)
