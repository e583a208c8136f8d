"""From the items of an update request to checked and hashed examples and labels, in the request's order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from model_core.errors import InvalidInput, Path
from model_core.hashing.encoder import FeatureEncoder
from model_core.json import fields
from model_core.kernels.number_text import plain_number
from service.errors import MAX_ERRORS, FieldError, Unprocessable, field_error
from service.example_log.incoming import NewExample, NewExamples, NewLabel
from service.parsing.event_time import milliseconds_of
from service.parsing.schemas import ItemFields, UpdateFields, refuse_unknown

Item = ItemFields | UpdateFields
"""One item: of a list, or the request itself."""

_EXAMPLE = frozenset(fields.EXAMPLE.names)
_LABEL = frozenset(fields.LABEL.names)
_NOT_WITH_ID = {
    "features": "not allowed with `id`: the features of the logged prediction are learned",
    "event_id": "not allowed with `id`, under which a label counts once",
}


def one_item(encoder: FeatureEncoder, request: UpdateFields, max_weight: float) -> NewExample | NewLabel:
    """Read a request without a list. Raises InvalidInput."""
    if "id" in request:
        return _new_label(request, max_weight, ())
    refuse_unknown(request, _EXAMPLE | _LABEL)
    if "features" not in request:
        detail = "this field is required, or else `id` with a `label`, or `examples`"
        raise InvalidInput(("features",), detail, "required")
    return one_example(encoder, request, max_weight)


def one_example(encoder: FeatureEncoder, request: UpdateFields, max_weight: float) -> NewExample:
    """Read a request that is an example with features. Raises InvalidInput."""
    refuse_unknown(request, _EXAMPLE)
    for name in fields.EXAMPLE.required:
        if name not in request:
            raise InvalidInput((name,), "this field is required", "required")
    return _new_example(encoder, request, max_weight, ())


async def many_items(
    encoder: FeatureEncoder, groups: Iterable[list[ItemFields]], max_weight: float
) -> tuple[NewExamples, dict[int, NewLabel]]:
    """Read the items of a list, group by group, and let other requests run in between. The labels are by
    their position in the list.

    Raises what `groups` raises, and Unprocessable with an error for each bad item, at most MAX_ERRORS.
    """
    parts: list[NewExamples] = []
    labels: dict[int, NewLabel] = {}
    errors: list[FieldError] = []
    first = 0
    for items in groups:
        examples: list[NewExample] = []
        for position, item in enumerate(items, first):
            try:
                checked = _item_of_list(encoder, item, max_weight, ("examples", position))
            except InvalidInput as wrong:
                errors.append(field_error(wrong.path, wrong.detail, wrong.code))
                continue
            if isinstance(checked, NewLabel):
                labels[position] = checked
            else:
                examples.append(checked)
        first += len(items)
        if len(errors) >= MAX_ERRORS:
            break
        parts.append(NewExamples.of(examples))
        await asyncio.sleep(0)
    if errors:
        raise Unprocessable(errors[:MAX_ERRORS])
    return NewExamples.joined(parts), labels


def _item_of_list(
    encoder: FeatureEncoder, item: ItemFields, max_weight: float, path: Path
) -> NewExample | NewLabel:
    if "id" in item:
        return _new_label(item, max_weight, path)
    refuse_unknown(item, _EXAMPLE | _LABEL, *path)
    if "features" not in item:
        raise InvalidInput((*path, "features"), "this field is required, or else `id`", "required")
    return _new_example(encoder, item, max_weight, path)


def _new_label(item: Item, max_weight: float, path: Path) -> NewLabel:
    for name, why in _NOT_WITH_ID.items():
        if name in item:
            raise InvalidInput((*path, name), why, "unknown_field")
    refuse_unknown(item, _LABEL, *path)
    if "label" not in item:
        raise InvalidInput((*path, "label"), "this field is required", "required")
    return NewLabel(item["id"], _label(item["label"], path), _weight(item, max_weight, path))


def _new_example(encoder: FeatureEncoder, item: Item, max_weight: float, path: Path) -> NewExample:
    encoded = encoder.encode(item["features"], (*path, "features"))
    label = _label(item["label"], path)
    weight = _weight(item, max_weight, path)
    event_time = item.get("event_time")
    event_time_ms = None if event_time is None else milliseconds_of(event_time, (*path, "event_time"))
    return NewExample(encoded, label, weight, item.get("event_id"), event_time_ms)


def _label(label: object, path: Path) -> float:
    """Return a number from 0 to 1, an int where it is one of them; false is 0, and true 1."""
    if isinstance(label, int | float) and 0 <= label <= 1:
        return plain_number(float(label))
    hint = "; use 0 for no click" if label == -1 else ""
    raise InvalidInput((*path, "label"), f"must be a number from 0 to 1, true or false{hint}")


def _weight(item: Item, max_weight: float, path: Path) -> float:
    """Return the importance weight times the inverse of the sample rate."""
    weight = item.get("weight")
    if weight is None:
        weight = 1.0
    elif not 0 <= weight <= max_weight:
        raise InvalidInput((*path, "weight"), f"must be between 0 and {max_weight:g}", "out_of_range")
    rate = item.get("sample_rate")
    if rate is None:
        return weight
    path = (*path, "sample_rate")
    if not 0 < rate <= 1:
        raise InvalidInput(path, "must be above 0 and at most 1", "out_of_range")
    if rate * max_weight < 1:
        raise InvalidInput(path, f"1/sample_rate must be at most {max_weight:g}", "out_of_range")
    return weight / rate
