"""What a prediction request becomes: checked and encoded instances, in the order of the request."""

from __future__ import annotations

from model_core.errors import InvalidInput
from model_core.examples import ExampleBatch
from model_core.hashing import FeatureEncoder
from model_core.json_requests import ParsedPredict
from service.request_schemas import PredictRequest, refuse_unknown

_ONE = frozenset({"features", "id"})
_ONLY_ONE = _ONE | {"log"}
_MANY = frozenset({"context", "instances", "log"})


def one_instance(encoder: FeatureEncoder, request: PredictRequest) -> ParsedPredict:
    """Raises InvalidInput."""
    refuse_unknown(request, _ONLY_ONE)
    if "features" not in request:
        raise InvalidInput((), "send either `features`, or `instances` with or without a `context`")
    batch = ExampleBatch.from_encoded([encoder.encode(request["features"])])
    return ParsedPredict(False, batch, [request.get("id")])


def many_instances(encoder: FeatureEncoder, request: PredictRequest, max_instances: int) -> ParsedPredict:
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
    encoded = encoder.encode_instances(request.get("context", {}), features)
    return ParsedPredict(
        True, ExampleBatch.from_encoded(encoded), [instance.get("id") for instance in instances]
    )
