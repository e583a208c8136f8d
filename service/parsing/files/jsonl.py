"""JSON lines, each the body of an update request of one example."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import TypeAdapter, ValidationError

from model_core.errors import InvalidInput
from model_core.hashing.encoder import Encoded, FeatureEncoder
from model_core.text.problems import NOT_UTF8, LineError, TextOptions, explain
from service.parsing.duplicate_names import name_count, refuse_repeated_names
from service.parsing.examples import one_example
from service.parsing.field_errors import field_errors
from service.parsing.files.rows import Row
from service.parsing.files.source import TextSource
from service.parsing.schemas import UpdateFields

_REQUEST: TypeAdapter[UpdateFields] = TypeAdapter(UpdateFields)


def json_rows(source: TextSource, encoder: FeatureEncoder) -> Iterator[tuple[Row, Encoded] | LineError]:
    """Yield a row and its encoding, or the error, for each line that is not blank."""
    for number, line in enumerate(source.lines(), 1):
        if not line.isspace():
            yield json_row(number, line, encoder)


def json_row(number: int, line: bytes, encoder: FeatureEncoder) -> tuple[Row, Encoded] | LineError:
    """Return the row of line `number` and its encoding, or the error."""
    try:
        request = _REQUEST.validate_json(line)
        refuse_repeated_names(line, name_count(request, ("features",)))
        example = one_example(encoder, request, encoder.limits.weight)
    except ValidationError as invalid:
        if not _is_utf8(line):
            return LineError(number, explain(NOT_UTF8, "", TextOptions()))
        (first, *_) = field_errors(invalid.errors(include_url=False, include_input=False))
        reason = f"{first['path']}: {first['detail']}" if first["path"] else first["detail"]
        return LineError(number, reason)
    except InvalidInput as invalid:
        return LineError(number, str(invalid))
    encoded, label, weight, event_id, time_ms = example
    return Row(number, request["features"], label, weight, event_id, time_ms), encoded


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
