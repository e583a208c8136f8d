"""What /predict does, in order: check what pydantic left, encode, read the mirror."""

from __future__ import annotations

from typing import NamedTuple

from model_core.encoded import Encoded
from model_core.errors import InvalidInput
from model_core.examples import ExampleBatch
from service.models import OpenModel
from service.schemas import PredictRequest, refuse_unknown

_ONE = frozenset({"features", "id"})
_MANY = frozenset({"context", "instances"})


class Prediction(NamedTuple):
    """One probability and id for each instance, in order, and the revision of the state that was read."""

    probabilities: list[float]
    ids: list[str | None]
    revision: str


def predict_one(model: OpenModel, request: PredictRequest) -> Prediction:
    """Raises InvalidInput."""
    refuse_unknown(request, _ONE)
    if "features" not in request:
        raise InvalidInput((), "send either `features`, or `instances` with or without a `context`")
    return _read(model, [model.encoder.encode(request["features"])], [request.get("id")])


def predict_instances(model: OpenModel, request: PredictRequest, max_instances: int) -> Prediction:
    """Raises InvalidInput."""
    refuse_unknown(request, _MANY)
    if "instances" not in request:
        raise InvalidInput(("instances",), "this field is required where there is a `context`")
    instances = request["instances"]
    if len(instances) > max_instances:
        raise InvalidInput(("instances",), f"a request has at most {max_instances} instances")
    for position, instance in enumerate(instances):
        refuse_unknown(instance, _ONE, "instances", position)
    features = [instance["features"] for instance in instances]
    encoded = model.encoder.encode_instances(request.get("context", {}), features)
    return _read(model, encoded, [instance.get("id") for instance in instances])


def _read(model: OpenModel, encoded: list[Encoded], ids: list[str | None]) -> Prediction:
    probabilities: list[float] = model.predict(ExampleBatch.from_encoded(encoded)).tolist()
    return Prediction(probabilities, ids, model.revision)
