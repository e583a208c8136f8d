"""/explain: which features made a prediction what it is."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

from fastapi import Body
from pydantic import TypeAdapter

from model_core.errors import InvalidInput
from model_core.hashing.contract import Limits
from model_core.json.fields import EXPLANATION
from model_core.learning.explanation import Explanation, Part, explain, naming_encoder
from service.api.openapi import EXPLAIN_EXAMPLES, MODEL_PROBLEMS, OF_A_BODY, problems
from service.api.schemas import ExplainReply, ModelName
from service.api.security.access import PREDICT
from service.api.server.front_door import BodyReader, RawReply, RawRequest, RawRoute
from service.api.services import Services
from service.models.config.model import limits_of
from service.models.feature_names import Slots
from service.models.registry import OpenModel
from service.parsing.large_bodies import max_values
from service.parsing.schemas import ExplainRequest, refuse_unknown
from service.settings.groups import LimitSettings

_KNOWN = frozenset(EXPLANATION.names)
_parse = TypeAdapter[ExplainRequest](ExplainRequest).validator.validate_json

ExplainBody = Annotated[ExplainRequest, Body(openapi_examples=EXPLAIN_EXAMPLES)]


def explain_routes(services: Services, bodies: BodyReader, settings: LimitSettings) -> list[RawRoute]:
    """/explain of the default model and of any other."""
    limits, most = limits_of(settings), max_values(settings.max_features)

    async def answer(call: RawRequest) -> RawReply:
        model = await services.aliases.open(call.model)
        names = await services.names.slots(model)
        return RawReply(200, _reply(model, explained(model, call.parsed(_parse, most), limits), names))

    options: dict[str, Any] = {
        "handler": answer,
        "bodies": bodies,
        "max_bytes": settings.max_body_bytes,
        "responses": MODEL_PROBLEMS | problems(**OF_A_BODY),
        "tags": ["predict"],
        "access": PREDICT,
    }
    return [
        RawRoute("POST", "/explain", _explain, **options),
        RawRoute("POST", "/models/{name}/explain", _explain_for_model, **options),
    ]


async def _explain(body: ExplainBody) -> ExplainReply:
    """Explain a prediction of the model `default`.

    What each feature adds to the log-odds.
    """
    raise NotImplementedError


async def _explain_for_model(name: ModelName, body: ExplainBody) -> ExplainReply:
    """Explain a prediction.

    What each feature adds to the log-odds.
    """
    raise NotImplementedError


def explained(model: OpenModel, request: ExplainRequest, limits: Limits) -> Explanation:
    """Raises InvalidInput."""
    refuse_unknown(request, _KNOWN)
    if "features" not in request:
        raise InvalidInput(("features",), "this field is required", "required")
    config = model.config
    encoder = naming_encoder(config.hashing, limits)
    encoded = encoder.encode_within(encoder.encode_context(request.get("context", {})), request["features"])
    return explain(model.mirror.replica.state, config.hyper, config.hashing, encoded)


def _reply(model: OpenModel, explanation: Explanation, names: Slots) -> bytes:
    reply = explanation._asdict()
    reply["features"] = [_feature(part, names) for part in reply.pop("parts")]
    reply["shared_slots"] = [shared._asdict() for shared in explanation.shared_slots]
    reply["uncertainty"] = _finite(explanation.uncertainty)
    reply["experts"] = [expert._asdict() for expert in explanation.experts]
    if not explanation.experts:
        del reply["experts"], reply["mixing"]
    reply |= {"model": model.name, "revision": model.revision}
    return json.dumps(reply, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _feature(part: Part, names: Slots) -> dict[str, Any]:
    others = [] if part.slot is None else [name for name in names.get(part.slot, ()) if name != part.name]
    return part._asdict() | {"learning_rate": _finite(part.learning_rate), "also_in_slot": others}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
