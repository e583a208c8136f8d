"""What an update request becomes: checked and encoded examples, in the order of the request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from model_core.errors import InvalidInput
from model_core.hashing.encoder import FeatureEncoder
from service.errors import FieldError, Unprocessable, field_error
from service.example_log.incoming import NewExample, NewLabel
from service.parsing.schemas import LAST_SECOND, Example, UpdateRequest, refuse_unknown

Path = tuple[str | int, ...]

_EXAMPLE = frozenset({"features", "label", "weight", "sample_rate", "event_id", "event_time"})
_LABEL = frozenset({"id", "label", "weight", "sample_rate"})
_ITEM = _EXAMPLE | _LABEL
_MANY = frozenset({"examples"})
_WITHOUT_ID = {
    "features": "unknown field beside `id`: what is learned are the features that were predicted with",
    "event_id": "unknown field beside `id`, under which a label counts once",
}
_MOST_ERRORS = 100
_EXAMPLES_A_TURN = 256
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:)(\d\d)((?:\.\d+)?)([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def one_item(encoder: FeatureEncoder, request: UpdateRequest, max_weight: float) -> NewExample | NewLabel:
    """Raises InvalidInput."""
    if "id" in request:
        return _new_label(request, max_weight, ())
    refuse_unknown(request, _ITEM)
    return one_example(encoder, request, max_weight)


def one_example(encoder: FeatureEncoder, request: UpdateRequest, max_weight: float) -> NewExample:
    """Raises InvalidInput."""
    refuse_unknown(request, _EXAMPLE)
    for name in ("features", "label"):
        if name not in request:
            raise InvalidInput(
                (name,), "this field is required, or else `id` with a `label`, or `examples`", "required"
            )
    return _new_example(encoder, request, max_weight, ())


async def many_examples(
    encoder: FeatureEncoder, request: UpdateRequest, max_weight: float, max_examples: int
) -> list[NewExample | NewLabel]:
    """Gives way to other requests now and then. Raises Unprocessable with an error for each bad example."""
    refuse_unknown(request, _MANY)
    examples = request["examples"]
    if len(examples) > max_examples:
        raise InvalidInput(("examples",), f"a request has at most {max_examples} examples", "too_many")
    checked: list[NewExample | NewLabel] = []
    errors: list[FieldError] = []
    for start in range(0, len(examples), _EXAMPLES_A_TURN):
        if start:
            await asyncio.sleep(0)
        _check(examples[start : start + _EXAMPLES_A_TURN], start, encoder, max_weight, checked, errors)
        if len(errors) >= _MOST_ERRORS:
            break
    if errors:
        raise Unprocessable(errors[:_MOST_ERRORS])
    return checked


def _check(
    examples: Sequence[Example],
    start: int,
    encoder: FeatureEncoder,
    max_weight: float,
    checked: list[NewExample | NewLabel],
    errors: list[FieldError],
) -> None:
    for position, example in enumerate(examples, start):
        path = ("examples", position)
        try:
            if "id" in example:
                checked.append(_new_label(example, max_weight, path))
                continue
            refuse_unknown(example, _ITEM, *path)
            if "features" not in example:
                raise InvalidInput((*path, "features"), "this field is required, or else `id`", "required")
            checked.append(_new_example(encoder, example, max_weight, path))
        except InvalidInput as wrong:
            errors.append(field_error(wrong.path, wrong.detail, wrong.code))


def _new_label(example: Example | UpdateRequest, max_weight: float, path: Path) -> NewLabel:
    for name, why in _WITHOUT_ID.items():
        if name in example:
            raise InvalidInput((*path, name), why, "unknown_field")
    refuse_unknown(example, _LABEL, *path)
    if "label" not in example:
        raise InvalidInput((*path, "label"), "this field is required", "required")
    return NewLabel(example["id"], _label(example["label"], path), _weight(example, max_weight, path))


def _new_example(
    encoder: FeatureEncoder, example: Example | UpdateRequest, max_weight: float, path: Path
) -> NewExample:
    encoded = encoder.encode(example["features"], (*path, "features"))
    label = _label(example["label"], path)
    weight = _weight(example, max_weight, path)
    event_time = example.get("event_time")
    event_time_ms = None if event_time is None else _milliseconds(event_time, path)
    return NewExample(encoded, label, weight, example.get("event_id"), event_time_ms)


def _label(label: object, path: Path) -> int:
    """0 or 1, also of false, true, 0.0 and 1.0: JSON does not tell the last two from the integers."""
    if label == 1:
        return 1
    if label == 0:
        return 0
    hint = "; use 0 for no click" if label == -1 else ""
    raise InvalidInput((*path, "label"), f"must be 0, 1, true or false{hint}")


def _weight(example: Example | UpdateRequest, max_weight: float, path: Path) -> float:
    """Importance weight times the inverse of the sample rate."""
    weight = example.get("weight")
    if weight is None:
        weight = 1.0
    elif not 0 <= weight <= max_weight:
        raise InvalidInput((*path, "weight"), f"must be between 0 and {max_weight:g}", "out_of_range")
    rate = example.get("sample_rate")
    if rate is None:
        return weight
    if not 0 < rate <= 1:
        raise InvalidInput((*path, "sample_rate"), "must be above 0 and at most 1", "out_of_range")
    if rate * max_weight < 1:
        raise InvalidInput(
            (*path, "sample_rate"), f"1/sample_rate must be at most {max_weight:g}", "out_of_range"
        )
    return weight / rate


def _milliseconds(event_time: object, path: Path) -> int:
    """Milliseconds since 1970 of seconds since then, or of an RFC 3339 text."""
    path = (*path, "event_time")
    if isinstance(event_time, str):
        milliseconds = _parsed(event_time, path)
    elif isinstance(event_time, int | float) and not isinstance(event_time, bool):
        if not 0 <= event_time <= LAST_SECOND:
            raise InvalidInput(
                path, f"must be between 0 and {LAST_SECOND} seconds since 1970", "out_of_range"
            )
        milliseconds = round(event_time * 1000)
    else:
        raise InvalidInput(path, "must be an RFC 3339 text or seconds since 1970", "wrong_type")
    return milliseconds


def _parsed(text: str, path: Path) -> int:
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise InvalidInput(path, "must be an RFC 3339 text with its offset, such as 2024-05-01T12:00:00Z")
    day, minutes, seconds, fraction, offset = match.groups()
    leap = seconds == "60"  # RFC 3339 has leap seconds, datetime has not
    plain = f"{day}T{minutes}{'59' if leap else seconds}{fraction}{offset.upper()}"
    try:
        since = datetime.fromisoformat(plain) - _EPOCH + timedelta(seconds=leap)
    except ValueError:
        raise InvalidInput(path, "there is no such date and time") from None
    if since < timedelta(0):
        raise InvalidInput(path, "must not lie before 1970", "out_of_range")
    return since // timedelta(milliseconds=1)
