"""What requests look like, once, for pydantic and for OpenAPI; replies are in reply_schemas.py.

They are typed dictionaries, which pydantic-core fills straight from the bytes of the body. It checks
types only. Whatever depends on settings, or can be wrong many times in one body, is checked after it by the
code that needs the value and only described here: a million wrong items must not become a million errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, Required

from pydantic import ConfigDict, FailFast, Field, JsonValue, WithJsonSchema, with_config
from typing_extensions import TypedDict

from model_core.errors import InvalidInput

LAST_SECOND = 253402300799
"""9999-12-31T23:59:59Z: the last second that RFC 3339 can write."""


def refuse_unknown(fields: Mapping[str, Any], known: frozenset[str], *path: str | int) -> None:
    """Raises InvalidInput for the first field, of the object at `path`, that is not known."""
    if not known.issuperset(fields):
        name = next(name for name in fields if name not in known)
        raise InvalidInput(
            (*path, name), f"unknown field; known here are {', '.join(sorted(known))}", "unknown_field"
        )


def _documented(**schema: list[JsonValue]) -> ConfigDict:
    """Unknown fields are let through by pydantic, refused by hand, and documented as refused."""
    return ConfigDict(extra="allow", strict=True, json_schema_extra={"additionalProperties": False, **schema})


Features = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "description": (
                "Names and values. A text, a boolean or a list of texts is a category; a number goes through"
                " the model's numeric transform; null is a missing value. Names have 1 to 256 bytes, no `=`"
                " and no control characters."
            ),
            "propertyNames": {"minLength": 1, "maxLength": 256, "pattern": "^[^=\\x00-\\x1f\\x7f-\\x9f]+$"},
            "additionalProperties": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "boolean"},
                    {"type": "number", "minimum": -1e6, "maximum": 1e6},
                    {"type": "array", "items": {"type": "string"}},
                    {"type": "null"},
                ]
            },
            "maxProperties": 1024,
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
                {"type": "number", "minimum": 0, "maximum": LAST_SECOND},
                {"type": "null"},
            ],
            "description": "When the impression happened: RFC 3339, or seconds since 1970.",
        }
    ),
]
Identifier = Annotated[str, Field(min_length=1, max_length=256)]
Weight = Annotated[
    float,
    Field(
        allow_inf_nan=False,
        description="Importance of the example.",
        json_schema_extra={"minimum": 0, "maximum": 1e6},
    ),
]
SampleRate = Annotated[
    float,
    Field(
        allow_inf_nan=False,
        description="Share of such examples that is sent at all; its inverse multiplies the weight.",
        json_schema_extra={"minimum": 1e-6, "maximum": 1},
    ),
]


@with_config(_documented())
class Instance(TypedDict):
    """One candidate of a prediction request."""

    features: Features
    id: NotRequired[Identifier | None]


@with_config(
    _documented(
        oneOf=[
            {"required": ["features"], "properties": {"context": False, "instances": False}},
            {"required": ["instances"], "properties": {"features": False, "id": False}},
        ]
    )
)
class PredictRequest(TypedDict, total=False):
    """Either one example, or many instances that may share the features of a context."""

    features: Features
    id: Identifier | None
    log: Annotated[bool, Field(description="Whether to keep what is predicted until its label comes.")]
    context: Features
    instances: Annotated[list[Instance], FailFast(), Field(json_schema_extra={"maxItems": 1000})]


@with_config(_documented(required=["features"]))
class ExplainRequest(TypedDict, total=False):
    """One example; the features of a context count as its own."""

    features: Features
    context: Features


class _ExampleOptions(TypedDict, total=False):
    weight: Weight | None
    sample_rate: SampleRate | None
    event_id: Identifier | None
    event_time: EventTime


_ONE_EXAMPLE = ("features", "label", "weight", "sample_rate", "event_id", "event_time")
_NOT_OF_A_LABEL = ("features", "event_id", "event_time")


@with_config(
    _documented(
        oneOf=[
            {"required": ["features"], "properties": {"id": False}},
            {"required": ["id"], "properties": dict.fromkeys(_NOT_OF_A_LABEL, False)},
        ]
    )
)
class Example(_ExampleOptions, total=False):
    """An impression and whether it was clicked, or the label of a logged prediction."""

    features: Features
    label: Required[Label]
    id: Identifier


@with_config(
    _documented(
        oneOf=[
            {"required": ["features", "label"], "properties": {"examples": False, "id": False}},
            {
                "required": ["id", "label"],
                "properties": dict.fromkeys((*_NOT_OF_A_LABEL, "examples"), False),
            },
            {"required": ["examples"], "properties": dict.fromkeys((*_ONE_EXAMPLE, "id"), False)},
        ]
    )
)
class UpdateRequest(_ExampleOptions, total=False):
    """Either one example, or the label of a logged prediction, or a list of them in order."""

    features: Features
    label: Label
    id: Identifier
    examples: Annotated[list[Example], FailFast(), Field(json_schema_extra={"maxItems": 10_000})]


@with_config(_documented())
class ImpressionsRequest(TypedDict):
    """Logged predictions that were really shown."""

    ids: Annotated[list[Identifier], FailFast(), Field(json_schema_extra={"maxItems": 10_000})]


Feedback = Annotated[
    dict[str, Any],
    Field(
        description=(
            "How labels of logged predictions are waited for: log, wait, exposure, window_seconds,"
            " learn_at, late, late_seconds, unshown_seconds, grace_seconds, negative_sample_rate,"
            " max_bytes."
        )
    ),
]


@with_config(_documented())
class ModelChange(TypedDict, total=False):
    """What changes of a model in place; fields that are left out stay as they are."""

    feedback: Feedback


@with_config(_documented())
class ModelSpecification(TypedDict, total=False):
    """Configuration of a model; what is left out takes its default."""

    hyper: Annotated[
        dict[str, Any],
        Field(description="Family, update, rate, schedule, l1, l2, psi_l2 and box of the online learner."),
    ]
    hashing: Annotated[
        dict[str, Any],
        Field(
            description="The hash contract: bits, seed, types, numeric, transforms, crosses, bias, missing."
        ),
    ]
    evaluation: Annotated[
        dict[str, Any],
        Field(description="Features that are evaluated value by value (slices), and how many values (most)."),
    ]
    feedback: Feedback
    snapshots: Annotated[
        dict[str, Any], Field(description="When to go back to a good snapshot by itself: auto_rollback.")
    ]
