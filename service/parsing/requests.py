"""From the body of a request to hashed examples: `RequestReader` has one method for each request.

A body that is entirely ordinary is parsed and hashed by the JSON kernel (model_core/json). Any other, right
or wrong, is read by pydantic and FeatureEncoder, which alone define what is valid and report what is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import TypeAdapter

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from model_core.json import fields
from model_core.json.requests import ParsedPredict
from service.example_log.incoming import NewExample, NewExamples, NewLabel
from service.models.registry import OpenModel
from service.parsing.duplicate_names import name_count, refuse_repeated_names
from service.parsing.event_time import are_plausible
from service.parsing.examples import many_items, one_item
from service.parsing.schemas import ImpressionsRequest, PredictFields, UpdateFields, refuse_unknown
from service.settings.groups import LimitSettings

_IMPRESSIONS = frozenset(fields.IMPRESSIONS.names)
_INSTANCE = frozenset(fields.INSTANCE.names)
_ONE_INSTANCE = frozenset(fields.ONE_INSTANCE.names)
_INSTANCES = frozenset(fields.INSTANCES.names)
_LOG_LAST = re.compile(rb',\s*"log"\s*:\s*(true|false)\s*}\s*$')
_LOG_LAST_BYTES = 40  # of a body that ends in `log`, in all likelihood


class PredictCall(NamedTuple):
    """`many`: whether the instances came as a list. `log`: what the request says, None if it says nothing."""

    many: bool
    batch: ExampleBatch
    ids: Sequence[str | None] | None
    log: bool | None


class UpdateCall(NamedTuple):
    """`many`: whether the items came as a list. `labels`: those of logged predictions, by their position."""

    many: bool
    examples: NewExamples
    labels: dict[int, NewLabel]


class RequestReader:
    """All methods raise pydantic.ValidationError and InvalidInput for a body that is not valid."""

    def __init__(self, settings: LimitSettings) -> None:
        self._settings = settings
        self._predict_request = TypeAdapter[PredictFields](PredictFields).validator.validate_json
        self._update_request = TypeAdapter[UpdateFields](UpdateFields).validator.validate_json
        self._impressions = TypeAdapter[ImpressionsRequest](ImpressionsRequest).validator.validate_json

    def predict(self, model: OpenModel, body: bytes) -> PredictCall:
        rest, log = _without_log(body)
        parsed = model.parser.predict(rest)
        return self._read_predict(model, body) if parsed is None else PredictCall(*parsed, log)

    async def update(self, model: OpenModel, body: bytes) -> UpdateCall:
        """Raises also Unprocessable, with an error for each bad example of a list."""
        parsed = model.parser.update(body)
        if parsed is None or (parsed.batch.event_times.size and not are_plausible(parsed.batch.event_times)):
            return await self._read_update(model, body)
        return UpdateCall(parsed.many, NewExamples(parsed.batch, parsed.event_ids), {})

    def impressions(self, body: bytes) -> list[str]:
        request: ImpressionsRequest = self._impressions(body)
        refuse_unknown(request, _IMPRESSIONS)
        refuse_repeated_names(body, len(request))
        if len(request["ids"]) > self._settings.max_examples:
            detail = f"a request has at most {self._settings.max_examples} ids: send several requests"
            raise InvalidInput(("ids",), detail, "too_many")
        return request["ids"]

    def _read_predict(self, model: OpenModel, body: bytes) -> PredictCall:
        request: PredictFields = self._predict_request(body)
        refuse_repeated_names(
            body, name_count(request, ("features", "context"), request.get("instances", ()))
        )
        if "instances" in request or "context" in request:
            parsed = _many_instances(model.encoder, request, self._settings.max_instances)
        else:
            parsed = _one_instance(model.encoder, request)
        return PredictCall(*parsed, request.get("log"))

    async def _read_update(self, model: OpenModel, body: bytes) -> UpdateCall:
        request: UpdateFields = self._update_request(body)
        refuse_repeated_names(body, name_count(request, ("features",), request.get("examples", ())))
        settings = self._settings
        many = "examples" in request
        if many:
            items = await many_items(model.encoder, request, settings.max_weight, settings.max_examples)
        else:
            items = [one_item(model.encoder, request, settings.max_weight)]
        labels = {position: item for position, item in enumerate(items) if isinstance(item, NewLabel)}
        examples = [item for item in items if isinstance(item, NewExample)]
        return UpdateCall(many, NewExamples.of(examples), labels)


def _without_log(body: bytes) -> tuple[bytes, bool | None]:
    """Cut the field `log`, which the kernel does not know, off a body that ends in it.

    In a body that is JSON, such an end is a field of the body itself; a body that is not JSON does not become
    an ordinary one: the quote before `log` opens a name, or else no JSON ends like this.
    """
    found = _LOG_LAST.search(body, max(0, len(body) - _LOG_LAST_BYTES))
    if found is None:
        return body, None
    return body[: found.start()] + b"}", found[1] == b"true"


def _one_instance(encoder: FeatureEncoder, request: PredictFields) -> ParsedPredict:
    """Raises InvalidInput."""
    refuse_unknown(request, _ONE_INSTANCE)
    if "features" not in request:
        detail = "send either `features`, or `instances` with or without a `context`"
        raise InvalidInput((), detail, "required")
    batch = ExampleBatch.from_encoded([encoder.encode(request["features"])])
    return ParsedPredict(False, batch, [request.get("id")])


def _many_instances(encoder: FeatureEncoder, request: PredictFields, max_instances: int) -> ParsedPredict:
    """Raises InvalidInput."""
    refuse_unknown(request, _INSTANCES)
    if "instances" not in request:
        raise InvalidInput(("instances",), "this field is required with a `context`", "required")
    instances = request["instances"]
    if len(instances) > max_instances:
        detail = f"a request has at most {max_instances} instances: send several requests"
        raise InvalidInput(("instances",), detail, "too_many")
    for position, instance in enumerate(instances):
        refuse_unknown(instance, _INSTANCE, "instances", position)
    features = [instance["features"] for instance in instances]
    batch = ExampleBatch.from_encoded(encoder.encode_instances(request.get("context", {}), features))
    return ParsedPredict(True, batch, [instance.get("id") for instance in instances])
