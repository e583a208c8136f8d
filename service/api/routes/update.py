"""`POST /update`: examples to learn and labels of logged predictions, from bytes to bytes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from json.encoder import encode_basestring_ascii as quoted
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Body, Query

from model_core.errors import InvalidInput
from service.api.openapi import STREAMED_BODIES, UPDATE_EXAMPLES, UPDATE_PROBLEMS
from service.api.schemas import ModelName, UpdateAnswer
from service.api.security.access import UPDATE
from service.api.server.front_door import (
    BodyReader,
    RawReply,
    RawRequest,
    RawRoute,
    StreamHandler,
    json_numbers,
)
from service.api.services import Services
from service.errors import LOST, LabelsUnavailable, StateUnavailable, UpdateUnavailable
from service.example_log.appender import (
    EXAMPLES_PER_TURN,
    NO_RESULTS,
    Placed,
    UpdateResults,
    is_in_log,
    results_of,
    until_learned,
)
from service.example_log.incoming import NewLabel
from service.feedback.labels import TakenLabels, refuse_single, results_of_labels, take_labels
from service.models.registry import OpenModel
from service.parsing.requests import RequestReader
from service.parsing.schemas import UpdateRequest
from service.settings.groups import LimitSettings
from service.telemetry.metrics import Metrics

UpdateBody = Annotated[UpdateRequest, Body(openapi_examples=UPDATE_EXAMPLES)]
Wait = Annotated[bool, Query(description="Whether to wait until it is learned, at most for the time-out.")]

_FLAGS = {"true": True, "1": True, "false": False, "0": False}


class Update:
    """The handler of both routes."""

    def __init__(
        self, services: Services, reader: RequestReader, metrics: Metrics, timeout_seconds: float
    ) -> None:
        self._services = services
        self._reader = reader
        self._metrics = metrics
        self._timeout_seconds = timeout_seconds

    async def __call__(self, call: RawRequest) -> RawReply:
        wait = flag_of(call.query, "wait", default=True)
        model = await self.model(call.model)
        many, examples, labels = await self._reader.update(model, call.body)
        model.sample(call.body)
        if slice_names := model.new_slice_names(call.body):
            examples = examples._replace(slice_names=slice_names)
        deadline = time.monotonic() + self._timeout_seconds
        # Labels first: repeated after a failure of the rest they do nothing, examples without an id would.
        asked = list(labels.values())
        taken = await self.take(call.model, model, asked, deadline) if asked else []
        placed = await self._services.updates.append(model, examples, deadline)
        if wait:
            await until_learned(model, placed.places, deadline)
            for part in taken:
                await part.learned(deadline)
        await refuse_lost(model, placed, asked, taken)
        results = results_of(model, placed, examples.batch.labels)
        labelled = results_of_labels(asked, taken) if asked else NO_RESULTS
        if "unknown" in labelled.statuses:
            self._services.unknown.add(model, labelled.statuses)
        statuses = results.statuses + labelled.statuses
        self._metrics.updated(model.name, statuses)
        items = await _items_of_many(results)
        for place, item in zip(labels, items_of(labelled), strict=True):
            items.insert(place, item)
        status = 202 if "appended" in statuses or "waiting" in statuses else 200
        if many:
            return RawReply(status, f'{{"results":[{",".join(items)}]}}'.encode())
        if asked:
            refuse_single(labelled)
        return RawReply(status, items[0].encode())

    async def take(
        self, name: str, model: OpenModel, labels: Sequence[NewLabel], deadline: float
    ) -> list[TakenLabels]:
        """Through an alias also in the models that it meant before. Raises what take_labels raises."""
        aliases = self._services.aliases
        elsewhere = aliases.elsewhere(name, model, deadline)
        switched = partial(aliases.opened, aliases.switched(name, model))
        return await take_labels(self._services.feedback, model, elsewhere, switched, labels, deadline)

    async def model(self, name: str) -> OpenModel:
        """Open the model to be updated.

        Raises UpdateUnavailable, which says that nothing was appended, where Redis is away, and what
        Aliases.open and OpenModel.require_own_log raise.
        """
        try:
            model = await self._services.aliases.open(name)
        except StateUnavailable as away:
            raise UpdateUnavailable("not_appended", [], away.detail) from away
        model.require_own_log()
        return model


async def refuse_lost(
    model: OpenModel, placed: Placed, labels: Sequence[NewLabel], taken: Sequence[TakenLabels]
) -> None:
    """Raises UpdateUnavailable or LabelsUnavailable if the server may have lost what it acknowledged."""
    if await is_in_log(model, placed) and all([await part.are_in_log(labels) for part in taken]):
        return
    if placed.event_ids:
        raise UpdateUnavailable("unknown", placed.event_ids, LOST)
    raise LabelsUnavailable("unknown", [label.prediction_id for label in labels], LOST)


def flag_of(query: bytes, name: str, *, default: bool) -> bool:
    """Return a flag of a query string. Raises InvalidInput."""
    if not query:
        return default
    given = parse_qs(query.decode("ascii", "replace"), keep_blank_values=True).get(name)
    if given is None:
        return default
    if given[-1].lower() not in _FLAGS:
        raise InvalidInput((name,), "must be true or false")
    return _FLAGS[given[-1].lower()]


async def _items_of_many(results: UpdateResults) -> list[str]:
    """A JSON object for each example; other tasks run after each EXAMPLES_PER_TURN of them."""
    if len(results.ids) <= EXAMPLES_PER_TURN:
        return items_of(results)
    items = items_of(results.part(0, EXAMPLES_PER_TURN))
    for start in range(EXAMPLES_PER_TURN, len(results.ids), EXAMPLES_PER_TURN):
        await asyncio.sleep(0)
        items += items_of(results.part(start, start + EXAMPLES_PER_TURN))
    return items


def items_of(results: UpdateResults) -> list[str]:
    """A JSON object for each example or label."""
    revisions = ["null" if revision is None else quoted(revision) for revision in results.revisions]
    numbers, count = json_numbers(results.probabilities.tolist() + results.losses.tolist()), len(revisions)
    columns = zip(
        results.statuses,
        numbers[:count],
        numbers[count:],
        revisions,
        map(quoted, results.ids),
        strict=True,
    )
    field = results.id_field
    return [
        f'{{"status":"{status}","probability":{probability},"loss":{loss},"revision":{revision},"{field}":{i}}}'
        for status, probability, loss, revision, i in columns
    ]


def update_routes(
    handler: Update, streams: StreamHandler, bodies: BodyReader, settings: LimitSettings
) -> list[RawRoute]:
    """/update of the default model and of any other."""
    options: dict[str, Any] = {
        "handler": handler,
        "streams": streams,
        "bodies": bodies,
        "max_bytes": settings.max_update_body_bytes,
        "responses": UPDATE_PROBLEMS
        | {202: {"model": UpdateAnswer, "description": "Durable, not yet learned."}},
        "response_description": "Durable and learned.",
        "tags": ["update"],
        "access": UPDATE,
        "openapi_extra": STREAMED_BODIES,
    }
    return [
        RawRoute("POST", "/update", _update, **options),
        RawRoute("POST", "/models/{name}/update", _update_for_model, **options),
    ]


async def _update(body: UpdateBody, wait: Wait = True) -> UpdateAnswer:
    """Learn with the model `default`.

    One example, the label of a logged prediction, or many of them in order. Durable when answered. 200:
    learned before the reply. 202: not yet. A body of another media type is a stream of examples, which is
    learned while it arrives, and answered line by line.
    """
    raise NotImplementedError


async def _update_for_model(name: ModelName, body: UpdateBody, wait: Wait = True) -> UpdateAnswer:
    """Learn.

    One example, the label of a logged prediction, or many of them in order. Durable when answered. 200:
    learned before the reply. 202: not yet. A body of another media type is a stream of examples, which is
    learned while it arrives, and answered line by line.
    """
    raise NotImplementedError
