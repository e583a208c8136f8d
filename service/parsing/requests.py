"""From the body of a request to hashed examples: `RequestReader` has one method for each request.

A body that is entirely ordinary is parsed and hashed by the JSON kernel (model_core/json). Any other, right
or wrong, is read by pydantic and FeatureEncoder, which alone define what is valid and report what is not.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pydantic import TypeAdapter

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from model_core.json import fields
from model_core.json.requests import ParsedPredict
from service.example_log.incoming import NewExamples, NewLabel
from service.models.registry import OpenModel
from service.parsing.duplicate_names import name_count, refuse_repeated_names
from service.parsing.event_time import are_plausible
from service.parsing.examples import many_items, one_item
from service.parsing.large_bodies import ListReader, Request, max_values
from service.parsing.schemas import (
    ImpressionsRequest,
    Instance,
    PredictFields,
    UpdateFields,
    refuse_unknown,
)
from service.settings.groups import LimitSettings

_EXAMPLES = frozenset(fields.EXAMPLES.names)
_IMPRESSIONS = frozenset(fields.IMPRESSIONS.names)
_INSTANCE = frozenset(fields.INSTANCE.names)
_ONE_INSTANCE = frozenset(fields.ONE_INSTANCE.names)
_INSTANCES = frozenset(fields.INSTANCES.names)
_LOG_LAST = re.compile(rb',\s*"log"\s*:\s*(true|false)\s*}\s*$')
_THREAD_BYTES = 1 << 18
"""A body of an update from this size on is parsed in a thread, as parsing it takes a millisecond or more."""
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
    """All methods raise pydantic.ValidationError, InvalidInput and Unprocessable for a body that is not
    valid. While one of a large body is read, other requests run.
    """

    def __init__(self, settings: LimitSettings) -> None:
        self._max_weight = settings.max_weight
        instances, examples = settings.max_instances, settings.max_examples
        most = max_values(settings.max_features)
        self._predictions = ListReader(
            _parser(PredictFields, _names_in_predict), "instances", instances, most
        )
        self._updates = ListReader(_parser(UpdateFields, _names_in_update), "examples", examples, most)
        self._impressions = ListReader(_parser(ImpressionsRequest, len), "ids", examples, most)

    async def predict(self, model: OpenModel, body: bytes) -> PredictCall:
        rest, log = _without_log(body)
        parsed = model.parser.predict(rest)
        return await self._read_predict(model, body) if parsed is None else PredictCall(*parsed, log)

    async def update(self, model: OpenModel, body: bytes) -> UpdateCall:
        """Unprocessable has an error for each bad example of a list."""
        if len(body) < _THREAD_BYTES:
            parsed = model.parser.update(body)
        else:
            parsed = await asyncio.to_thread(model.parser.twin().update, body)
        if parsed is None or (parsed.batch.event_times.size and not are_plausible(parsed.batch.event_times)):
            return await self._read_update(model, body)
        return UpdateCall(parsed.many, NewExamples(parsed.batch, parsed.event_ids), {})

    async def impressions(self, body: bytes) -> list[str]:
        request, groups = await self._impressions.read(body)
        refuse_unknown(request, _IMPRESSIONS)
        return [identifier for group in groups for identifier in group]

    async def _read_predict(self, model: OpenModel, body: bytes) -> PredictCall:
        request, groups = await self._predictions.read(body)
        if "instances" in request or "context" in request:
            parsed = await _many_instances(model.encoder, request, groups)
        else:
            parsed = _one_instance(model.encoder, request)
        return PredictCall(*parsed, request.get("log"))

    async def _read_update(self, model: OpenModel, body: bytes) -> UpdateCall:
        request, groups = await self._updates.read(body)
        if "examples" in request:
            refuse_unknown(request, _EXAMPLES)
            return UpdateCall(True, *await many_items(model.encoder, groups, self._max_weight))
        item = one_item(model.encoder, request, self._max_weight)
        if isinstance(item, NewLabel):
            return UpdateCall(False, NewExamples.of([]), {0: item})
        return UpdateCall(False, NewExamples.of([item]), {})


def _names_in_predict(request: PredictFields) -> int:
    return name_count(request, ("features", "context"), request.get("instances", ()))


def _names_in_update(request: UpdateFields) -> int:
    return name_count(request, ("features",), request.get("examples", ()))


def _parser(request: type[Request], names: Callable[[Request], int]) -> Callable[[bytes], Request]:
    """A function that parses a body in which no name occurs twice. `names`: how many a request has."""
    validate = TypeAdapter(request).validator.validate_json

    def parse(body: bytes) -> Request:
        parsed: Request = validate(body)
        refuse_repeated_names(body, names(parsed))
        return parsed

    return parse


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


async def _many_instances(
    encoder: FeatureEncoder, request: PredictFields, groups: Iterable[list[Instance]]
) -> ParsedPredict:
    """Raises what `groups` raises, and InvalidInput."""
    refuse_unknown(request, _INSTANCES)
    if "instances" not in request:
        raise InvalidInput(("instances",), "this field is required with a `context`", "required")
    context = encoder.encode_context(request.get("context", {}))
    batches: list[ExampleBatch] = []
    ids: list[str | None] = []
    for instances in groups:
        for position, instance in enumerate(instances, len(ids)):
            refuse_unknown(instance, _INSTANCE, "instances", position)
        features = [instance["features"] for instance in instances]
        batches.append(ExampleBatch.from_encoded(encoder.encode_instances(context, features, len(ids))))
        ids += [instance.get("id") for instance in instances]
        await asyncio.sleep(0)
    return ParsedPredict(True, ExampleBatch.concatenate(batches), ids)
