"""Schemas of request bodies, for pydantic and for OpenAPI; those of replies are in `api/schemas.py`.

They are typed dictionaries, which pydantic-core fills straight from the bytes of the body. It checks types
only. What depends on settings, or may be wrong many times in one body, is checked afterwards by the code that
needs the value and only described here: a million wrong items must not become a million errors.

The fields are those of `model_core/json/fields.py`. A bound that is a setting is named where it applies
(`_bounded`), and `with_limits` puts its value into the published document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, Required

from pydantic import AfterValidator, ConfigDict, FailFast, Field, JsonValue, WithJsonSchema, with_config
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from model_core.errors import InvalidInput
from model_core.json.fields import (
    EXAMPLE,
    EXAMPLES,
    EXPLANATION,
    INSTANCES,
    LABEL,
    LAST_SECOND,
    MAX_ID_LENGTH,
    ONE_INSTANCE,
    Fields,
)
from service.parsing.event_time import FIRST_SECOND
from service.settings import Settings

_LIMITS = "x-limits"  # in a schema: its bounds, by the names of `limits_of`


def refuse_unknown(body: Mapping[str, Any], known: frozenset[str], *path: str | int) -> None:
    """Raise InvalidInput for the first field, of the object at `path`, that is not known."""
    if not known.issuperset(body):
        name = next(name for name in body if name not in known)
        detail = f"unknown field: send only {', '.join(sorted(known))}"
        raise InvalidInput((*path, name), detail, "unknown_field")


def limits_of(settings: Settings) -> dict[str, float]:
    """Return every bound that a schema may name."""
    return {
        "max_features": settings.max_features,
        "max_name_bytes": settings.max_name_bytes,
        "min_value": -settings.max_value,
        "max_value": settings.max_value,
        "max_weight": settings.max_weight,
        "min_sample_rate": 1 / settings.max_weight,
        "max_instances": settings.max_instances,
        "max_examples": settings.max_examples,
    }


def with_limits(document: Any, limits: Mapping[str, float]) -> Any:
    """Return an OpenAPI document with the bounds that its schemas name."""
    if isinstance(document, list):
        return [with_limits(item, limits) for item in document]
    if not isinstance(document, dict):
        return document
    bounds = {keyword: limits[name] for keyword, name in document.get(_LIMITS, {}).items()}
    rest = {key: with_limits(item, limits) for key, item in document.items() if key != _LIMITS}
    return rest | bounds


def _bounded(**names: str) -> dict[str, JsonValue]:
    """Bounds of a schema, such as `maxItems="max_examples"`."""
    return {_LIMITS: dict[str, JsonValue](names)}


def _documented(**schema: list[JsonValue]) -> ConfigDict:
    """Unknown fields are let through by pydantic, refused by `refuse_unknown`, and documented as refused."""
    return ConfigDict(extra="allow", strict=True, json_schema_extra={"additionalProperties": False, **schema})


def _one_of(*kinds: Fields) -> list[JsonValue]:
    """Bodies of several kinds, each with its required fields and without the fields of the others alone."""
    every = dict.fromkeys(name for kind in kinds for name in kind.names)
    return [
        {
            "required": list(kind.required),
            "properties": {name: False for name in every if name not in kind.names},
        }
        for kind in kinds
    ]


def _object_or_pairs(features: Any) -> Any:
    """Refuse other types; the encoder, which reads the pairs, checks them."""
    if not isinstance(features, dict | list):
        raise PydanticCustomError("features_type", "must be an object, or a list of pairs of name and value")
    return features


_NAME: JsonValue = {
    "type": "string",
    "minLength": 1,
    "pattern": "^[^=\\x00-\\x1f\\x7f-\\x9f]+$",
    **_bounded(maxLength="max_name_bytes"),
}
_NUMBER: JsonValue = {"type": "number", **_bounded(minimum="min_value", maximum="max_value")}
_VALUE: JsonValue = {
    "anyOf": [
        {"type": "string"},
        {"type": "boolean"},
        _NUMBER,
        {"type": "array", "items": {"anyOf": [{"type": "string"}, _NUMBER]}},
        {"type": "null"},
        {
            "type": "object",
            "properties": {"value": {"anyOf": [{"type": "string"}, _NUMBER]}, "times": _NUMBER},
            "required": ["times"],
            "additionalProperties": False,
        },
    ]
}
Features = Annotated[
    Any,
    AfterValidator(_object_or_pairs),
    WithJsonSchema(
        {
            "description": (
                "Names and values, as an object or as a list of pairs, which may repeat a name. A text or a"
                " boolean is a category; a number goes through the model's numeric transform; a list of"
                " texts and numbers is a feature each; null is a missing value; an object multiplies the"
                " value of its feature. Names have no `=` and no control characters; their length counts in"
                " bytes of UTF-8."
            ),
            "anyOf": [
                {
                    "type": "object",
                    "propertyNames": _NAME,
                    "additionalProperties": _VALUE,
                    **_bounded(maxProperties="max_features"),
                },
                {
                    "type": "array",
                    "items": {
                        "type": "array",
                        "prefixItems": [_NAME, _VALUE],
                        "minItems": 2,
                        "maxItems": 2,
                    },
                    **_bounded(maxItems="max_features"),
                },
            ],
            "examples": [{"ad": "a17", "site": "news", "hour": 14}],
        }
    ),
]
Label = Annotated[
    Any,
    WithJsonSchema({"enum": [0, 1, True, False], "description": "1 or true is a click, 0 or false is none."}),
]
EventTime = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "format": "date-time"},
                {"type": "number", "minimum": FIRST_SECOND, "maximum": LAST_SECOND},
                {"type": "null"},
            ],
            "description": (
                "When the impression happened: RFC 3339, or seconds since 1970; not before 2000, and at most"
                " a day ahead of the service's clock."
            ),
        }
    ),
]
Identifier = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH)]
Weight = Annotated[
    float,
    Field(
        allow_inf_nan=False,
        description="Importance of the example.",
        json_schema_extra={"minimum": 0, **_bounded(maximum="max_weight")},
    ),
]
SampleRate = Annotated[
    float,
    Field(
        allow_inf_nan=False,
        description="Share of such examples that is sent at all; its inverse multiplies the weight.",
        json_schema_extra={"maximum": 1, **_bounded(minimum="min_sample_rate")},
    ),
]


@with_config(_documented())
class Instance(TypedDict):
    """One candidate of a prediction request."""

    features: Features
    id: NotRequired[Identifier | None]


@with_config(_documented(oneOf=_one_of(ONE_INSTANCE, INSTANCES)))
class PredictRequest(TypedDict, total=False):
    """Either one example, or many instances that may share the features of a context."""

    features: Features
    id: Identifier | None
    log: Annotated[
        bool,
        Field(description="Whether to log the predictions, to be learned from once their labels arrive."),
    ]
    context: Features
    instances: Annotated[
        list[Instance], FailFast(), Field(json_schema_extra=_bounded(maxItems="max_instances"))
    ]


@with_config(_documented(required=list(EXPLANATION.required)))
class ExplainRequest(TypedDict, total=False):
    """One example; the features of a context count as its own."""

    features: Features
    context: Features


class _ExampleOptions(TypedDict, total=False):
    weight: Weight | None
    sample_rate: SampleRate | None
    event_id: Identifier | None
    event_time: EventTime


@with_config(_documented(oneOf=_one_of(EXAMPLE, LABEL)))
class Example(_ExampleOptions, total=False):
    """An impression and whether it was clicked, or the label of a logged prediction."""

    features: Features
    label: Required[Label]
    id: Identifier


@with_config(_documented(oneOf=_one_of(EXAMPLE, LABEL, EXAMPLES)))
class UpdateRequest(_ExampleOptions, total=False):
    """Either one example, or the label of a logged prediction, or a list of them in order."""

    features: Features
    label: Label
    id: Identifier
    examples: Annotated[list[Example], FailFast(), Field(json_schema_extra=_bounded(maxItems="max_examples"))]


@with_config(_documented())
class ImpressionsRequest(TypedDict):
    """Logged predictions that were shown."""

    ids: Annotated[list[Identifier], FailFast(), Field(json_schema_extra=_bounded(maxItems="max_examples"))]


Feedback = Annotated[
    dict[str, Any],
    Field(
        description=(
            "How logged predictions wait for their labels: log, wait, exposure, window_seconds,"
            " learn_at, late, late_seconds, unshown_seconds, grace_seconds, negative_sample_rate,"
            " max_bytes."
        )
    ),
]


@with_config(_documented())
class ModelChange(TypedDict, total=False):
    """Changes to a model in place; fields that are left out stay as they are."""

    feedback: Feedback


@with_config(_documented())
class ModelSpecification(TypedDict, total=False):
    """Configuration of a model; fields that are left out take their defaults."""

    hyper: Annotated[
        dict[str, Any],
        Field(
            description="Family, update, rate, schedule, l1, l2, psi_l2, box and forgetting of the learner."
        ),
    ]
    hashing: Annotated[
        dict[str, Any],
        Field(
            description="The hash contract: bits, seed, types, numeric, transforms, crosses, bias, missing."
        ),
    ]
    evaluation: Annotated[
        dict[str, Any],
        Field(description="Features evaluated value by value (slices), and the max number of values (most)."),
    ]
    feedback: Feedback
    snapshots: Annotated[
        dict[str, Any], Field(description="When to return to a good snapshot automatically: auto_rollback.")
    ]
