"""Requests read by the kernel and by pydantic with FeatureEncoder, which define what they mean."""

from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import FeatureEncoder
from model_core.json.requests import ParsedPredict, ParsedUpdate, RequestParser
from service.parsing.duplicate_names import refuse_repeated_names
from service.parsing.event_time import are_plausible
from service.parsing.examples import one_example
from service.parsing.schemas import PredictFields, UpdateFields, refuse_unknown

PREDICT = TypeAdapter[PredictFields](PredictFields)
UPDATE = TypeAdapter[UpdateFields](UpdateFields)


class Read(NamedTuple):
    """What a request says; ids are of instances, or of events."""

    many: bool
    columns: tuple[list[Any], ...]
    ids: list[str | None]


def read(parsed: ParsedPredict | ParsedUpdate) -> Read:
    many, batch, ids = parsed
    assert ids is None or any(i is not None for i in ids)
    arrays = (batch.row_ptr, batch.hashes, batch.values, batch.labels, batch.weights, batch.event_times)
    assert batch.event_ids is None
    columns = tuple([a.dtype.str, a.shape, a.tobytes()] for a in arrays)
    return Read(many, columns, [None] * len(batch) if ids is None else list(ids))


class Way:
    """Both ways to read the requests of one kind under one contract."""

    def __init__(self, contract: HashContract, limits: Limits, max_rows: int) -> None:
        self.parser = RequestParser(contract, limits, max_rows, max_rows)
        self.encoder = FeatureEncoder(contract, limits, met=self.parser.met)
        self.max_rows = max_rows

    def fast(self, body: bytes) -> Read | None:
        """At the second attempt no name is new, if the body can be read at all."""
        if self._parse(body) is None:
            self.slow(body)
        parsed = self._parse(body)
        return None if parsed is None else read(parsed)

    def slow(self, body: bytes) -> Read | None:
        try:
            parsed = self._validate(body)
        except (ValidationError, InvalidInput):
            return None
        ids = None if parsed.ids is None or not any(parsed.ids) else parsed.ids
        return read(parsed._replace(ids=ids))

    def check(self, body: bytes) -> bool:
        """Whether the fast way read it, and then as the slow way does."""
        found = self.fast(body)
        assert found is None or found == self.slow(body), body
        return found is not None

    def _parse(self, body: bytes) -> ParsedPredict | ParsedUpdate | None:
        raise NotImplementedError

    def _validate(self, body: bytes) -> ParsedPredict:
        raise NotImplementedError


class PredictWay(Way):
    def _parse(self, body: bytes) -> ParsedPredict | None:
        return self.parser.predict(body)

    def _validate(self, body: bytes) -> ParsedPredict:
        request = PREDICT.validate_json(body)
        refuse_repeated_names(body)
        many = "instances" in request or "context" in request
        refuse_unknown(request, frozenset({"context", "instances"} if many else {"features", "id"}))
        if not many:
            self._need("features" in request)
            batch = ExampleBatch.from_encoded([self.encoder.encode(request["features"])])
            return ParsedPredict(False, batch, [request.get("id")])
        self._need("instances" in request)
        instances = request["instances"]
        self._need(len(instances) <= self.max_rows)
        for instance in instances:
            refuse_unknown(instance, frozenset({"features", "id"}))
        encoded = self.encoder.encode_instances(
            request.get("context", {}), [instance["features"] for instance in instances]
        )
        batch = ExampleBatch.from_encoded(encoded)
        return ParsedPredict(True, batch, [instance.get("id") for instance in instances])

    def _need(self, fine: bool) -> None:
        if not fine:
            raise InvalidInput((), "")


class UpdateWay(Way):
    def _parse(self, body: bytes) -> ParsedUpdate | None:
        parsed = self.parser.update(body)
        return None if parsed is None or not are_plausible(parsed.batch.event_times) else parsed

    def _validate(self, body: bytes) -> ParsedPredict:
        request = UPDATE.validate_json(body)
        refuse_repeated_names(body)
        many = "examples" in request
        rows: list[Any] = [request]
        if many:
            refuse_unknown(request, frozenset({"examples"}))
            rows = request["examples"]
        if many and len(rows) > self.max_rows:
            raise InvalidInput((), "")
        checked = [one_example(self.encoder, row, self.encoder.limits.weight) for row in rows]
        encoded, labels, weights, ids, times = zip(*checked, strict=True) if checked else ((),) * 5
        batch = ExampleBatch.from_encoded(encoded, labels, weights, times)
        return ParsedPredict(many, batch, list(ids))
