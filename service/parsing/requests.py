"""From the body of a request to a batch of hashed examples.

What is entirely ordinary is parsed and hashed by a kernel. Everything else, and everything that is wrong, is
read by pydantic and FeatureEncoder, which alone define what is valid and say what is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from model_core.json.requests import ParsedPredict
from service.example_log.incoming import NewExample, NewExamples, NewLabel
from service.models.registry import OpenModel
from service.parsing.duplicate_names import refuse_repeated_names
from service.parsing.examples import many_examples, one_item
from service.parsing.schemas import ImpressionsRequest, PredictRequest, UpdateRequest, refuse_unknown
from service.settings import Settings

_LOG_LAST = re.compile(rb',\s*"log"\s*:\s*(true|false)\s*}\s*$')
_LOG_LAST_BYTES = 40  # of a body that ends so, in all likelihood


class PredictCall(NamedTuple):
    """`many`: whether the instances came as a list. `log`: what the request says, None where nothing."""

    many: bool
    batch: ExampleBatch
    ids: Sequence[str | None] | None
    log: bool | None


class UpdateCall(NamedTuple):
    """`many`: whether they came as a list. `labels`: those for logged predictions, by their place in it."""

    many: bool
    examples: NewExamples
    labels: dict[int, NewLabel]


class RequestReader:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._predict_request = TypeAdapter[PredictRequest](PredictRequest).validator.validate_json
        self._update_request = TypeAdapter[UpdateRequest](UpdateRequest).validator.validate_json
        self._impressions = TypeAdapter[ImpressionsRequest](ImpressionsRequest).validator.validate_json

    def predict(self, model: OpenModel, body: bytes) -> PredictCall:
        """Raises pydantic.ValidationError, InvalidInput."""
        rest, log = _without_log(body)
        parsed = model.parser.predict(rest)
        return self._read_predict(model, body) if parsed is None else PredictCall(*parsed, log)

    async def update(self, model: OpenModel, body: bytes) -> UpdateCall:
        """Raises pydantic.ValidationError, InvalidInput, Unprocessable."""
        parsed = model.parser.update(body)
        if parsed is None:
            return await self._read_update(model, body)
        return UpdateCall(parsed.many, NewExamples(parsed.batch, parsed.event_ids), {})

    def impressions(self, body: bytes) -> list[str]:
        """Raises pydantic.ValidationError, InvalidInput."""
        request: ImpressionsRequest = self._impressions(body)
        refuse_unknown(request, frozenset({"ids"}))
        refuse_repeated_names(body, len(request))
        if len(request["ids"]) > self._settings.max_examples:
            detail = f"a request has at most {self._settings.max_examples} ids"
            raise InvalidInput(("ids",), detail, "too_many")
        return request["ids"]

    def _read_predict(self, model: OpenModel, body: bytes) -> PredictCall:
        request: PredictRequest = self._predict_request(body)
        refuse_repeated_names(body, _names(request, ("features", "context"), request.get("instances", ())))
        if "instances" in request or "context" in request:
            parsed = many_instances(model.encoder, request, self._settings.max_instances)
        else:
            parsed = one_instance(model.encoder, request)
        return PredictCall(*parsed, request.get("log"))

    async def _read_update(self, model: OpenModel, body: bytes) -> UpdateCall:
        request: UpdateRequest = self._update_request(body)
        refuse_repeated_names(body, _names(request, ("features",), request.get("examples", ())))
        settings = self._settings
        many = "examples" in request
        if many:
            items = await many_examples(model.encoder, request, settings.max_weight, settings.max_examples)
        else:
            items = [one_item(model.encoder, request, settings.max_weight)]
        labels = {place: item for place, item in enumerate(items) if isinstance(item, NewLabel)}
        examples = [item for item in items if isinstance(item, NewExample)]
        return UpdateCall(many, NewExamples.of(examples), labels)


def _names(request: Mapping[str, Any], objects: Sequence[str], items: Sequence[Mapping[str, Any]]) -> int:
    """How many a request has, in those fields that are objects, and in its instances or examples."""
    own = sum(len(request.get(field, ())) for field in objects)
    return len(request) + own + sum(len(item) + len(item.get("features", ())) for item in items)


def _without_log(body: bytes) -> tuple[bytes, bool | None]:
    """A body that ends in the field `log`, without it: the kernel, which does not know it, may read the rest.

    Such an end is a field of the body itself wherever the body is JSON at all, and what is not JSON does not
    become an ordinary body: the quote before `log` opens a name, or else no JSON ends like this.
    """
    found = _LOG_LAST.search(body, max(0, len(body) - _LOG_LAST_BYTES))
    if found is None:
        return body, None
    return body[: found.start()] + b"}", found[1] == b"true"


_ONE = frozenset({"features", "id"})
_ONLY_ONE = _ONE | {"log"}
_MANY = frozenset({"context", "instances", "log"})


def one_instance(encoder: FeatureEncoder, request: PredictRequest) -> ParsedPredict:
    """Raises InvalidInput."""
    refuse_unknown(request, _ONLY_ONE)
    if "features" not in request:
        raise InvalidInput(
            (), "send either `features`, or `instances` with or without a `context`", "required"
        )
    batch = ExampleBatch.from_encoded([encoder.encode(request["features"])])
    return ParsedPredict(False, batch, [request.get("id")])


def many_instances(encoder: FeatureEncoder, request: PredictRequest, max_instances: int) -> ParsedPredict:
    """Raises InvalidInput."""
    refuse_unknown(request, _MANY)
    if "instances" not in request:
        raise InvalidInput(("instances",), "this field is required where there is a `context`", "required")
    instances = request["instances"]
    if len(instances) > max_instances:
        raise InvalidInput(("instances",), f"a request has at most {max_instances} instances", "too_many")
    for position, instance in enumerate(instances):
        refuse_unknown(instance, _ONE, "instances", position)
    features = [instance["features"] for instance in instances]
    encoded = encoder.encode_instances(request.get("context", {}), features)
    return ParsedPredict(
        True, ExampleBatch.from_encoded(encoded), [instance.get("id") for instance in instances]
    )
