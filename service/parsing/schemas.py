"""Schemas of request bodies, for pydantic and for OpenAPI; those of replies are in `api/schemas.py`.

They are typed dictionaries, which pydantic-core fills straight from the bytes of the body. It checks types
only. What depends on settings, or may be wrong many times in one body, is checked afterwards by the code that
needs the value and only described here: a million wrong items must not become a million errors.

A body of several kinds is published as one schema for each kind, which is what generators of clients can
read, and parsed with the fields of all kinds, whose errors name fields and not kinds.

The fields are those of `model_core/json/fields.py`. A bound that is a setting is named where it applies
(`_bounded`), and `with_limits` puts its value into the published document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, Required

from pydantic import ConfigDict, FailFast, Field, JsonValue, PlainValidator, WithJsonSchema, with_config
from pydantic_core import PydanticCustomError
from typing_extensions import TypeAliasType, TypedDict

from model_core.errors import InvalidInput
from model_core.json.fields import EXPLANATION, LAST_SECOND, MAX_ID_LENGTH
from service.parsing.event_time import FIRST_SECOND
from service.settings import Settings
from service.storage.records import MODEL_NAME_PATTERN

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


def _object_or_pairs(features: Any) -> Any:
    """Refuse other types; the encoder, which reads the pairs, checks them."""
    if not isinstance(features, dict | list):
        raise PydanticCustomError("features_type", "must be an object, or a list of pairs of name and value")
    return features


_NAME: dict[str, JsonValue] = {
    "minLength": 1,
    "pattern": "^[^=\\x00-\\x1f\\x7f-\\x9f]+$",
    **_bounded(maxLength="max_name_bytes"),
}
_Name = Annotated[str, Field(json_schema_extra=_NAME)]
_Factor = Annotated[float, Field(json_schema_extra=_bounded(minimum="min_value", maximum="max_value"))]


FeatureItem = TypeAliasType(
    "FeatureItem", Annotated[str | float, Field(description="A category or a number.")]
)


@with_config(ConfigDict(extra="forbid"))
class ScaledFeature(TypedDict):
    """A feature whose value is multiplied."""

    value: NotRequired[
        Annotated[FeatureItem, Field(description="What is multiplied; left out, it is the bare name.")]
    ]
    times: Annotated[_Factor, Field(description="The factor.")]


FeatureValue = TypeAliasType(
    "FeatureValue",
    Annotated[
        str | bool | float | list[FeatureItem] | ScaledFeature | None,
        Field(
            description=(
                "A text or a boolean is a category; a number goes through the model's numeric transform,"
                " which bounds it unless it makes buckets; a list of texts and numbers is a feature each;"
                " null is a missing value; an object multiplies the value of its feature."
            )
        ),
    ],
)
Features = TypeAliasType(
    "Features",
    Annotated[
        Annotated[
            dict[str, FeatureValue],
            Field(json_schema_extra={"propertyNames": _NAME, **_bounded(maxProperties="max_features")}),
        ]
        | Annotated[
            list[tuple[_Name, FeatureValue]], Field(json_schema_extra=_bounded(maxItems="max_features"))
        ],
        Field(
            description=(
                "Names and values, as an object or as a list of pairs, which may repeat a name. Names have no"
                " `=` and no control characters; their length counts in bytes of UTF-8."
            ),
            examples=[{"ad": "a17", "site": "news", "hour": 14}],
        ),
    ],
)
"""What the encoder takes, for the document alone."""
_AnyFeatures = Annotated[Any, PlainValidator(_object_or_pairs, json_schema_input_type=Features)]
Label = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "boolean"}],
            "description": (
                "1 or true is a click, 0 or false is none; y between 0 and 1 is learned as y of a click and"
                " 1 - y of a non-click."
            ),
        }
    ),
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
_Weight = Annotated[
    float,
    Field(allow_inf_nan=False, json_schema_extra={"minimum": 0, **_bounded(maximum="max_weight")}),
]
_SampleRate = Annotated[
    float,
    Field(allow_inf_nan=False, json_schema_extra={"maximum": 1, **_bounded(minimum="min_sample_rate")}),
]
Weight = Annotated[_Weight | None, Field(description="Importance of the example.")]
SampleRate = Annotated[
    _SampleRate | None,
    Field(description="Share of such examples that is sent at all; its inverse multiplies the weight."),
]


_EventId = Annotated[
    Identifier | None,
    Field(description="Your name for the event: of examples that have the same, one is learned."),
]
_InstanceId = Annotated[
    Identifier | None,
    Field(
        description="Your name for the prediction, returned with it and named by its label if it is logged."
    ),
]
_Log = Annotated[
    bool, Field(description="Whether to log the predictions, to be learned from once their labels arrive.")
]


@with_config(_documented())
class Instance(TypedDict):
    """One candidate of a prediction request."""

    features: _AnyFeatures
    id: NotRequired[_InstanceId]


Instances = Annotated[
    list[Instance],
    FailFast(),
    Field(
        description="The candidates; predictions come in their order.",
        json_schema_extra=_bounded(maxItems="max_instances"),
    ),
]


@with_config(_documented())
class PredictOneRequest(TypedDict):
    """One example."""

    features: _AnyFeatures
    id: NotRequired[_InstanceId]
    log: NotRequired[_Log]


@with_config(_documented())
class PredictManyRequest(TypedDict):
    """Instances that may share the features of a context."""

    instances: Instances
    context: NotRequired[_AnyFeatures]
    log: NotRequired[_Log]


PredictRequest = TypeAliasType("PredictRequest", PredictOneRequest | PredictManyRequest)
"""Either kind of request, for the document; what is parsed is `PredictFields`."""


@with_config(_documented())
class PredictFields(TypedDict, total=False):
    """The fields of both kinds of PredictRequest."""

    features: _AnyFeatures
    id: _InstanceId
    log: _Log
    context: _AnyFeatures
    instances: Instances


@with_config(_documented(required=list(EXPLANATION.required)))
class ExplainRequest(TypedDict, total=False):
    """One example; the features of a context count as its own."""

    features: _AnyFeatures
    context: _AnyFeatures


class _Weighted(TypedDict, total=False):
    weight: Weight
    sample_rate: SampleRate


class _Event(_Weighted, total=False):
    event_id: _EventId
    event_time: EventTime


_PredictionId = Annotated[Identifier, Field(description="The id of the logged prediction.")]


@with_config(_documented())
class Example(_Event):
    """An impression and whether it was clicked."""

    features: _AnyFeatures
    label: Label


@with_config(_documented())
class PredictionLabel(_Weighted):
    """The label of a logged prediction."""

    id: _PredictionId
    label: Label


@with_config(_documented())
class UpdateManyRequest(TypedDict):
    """Examples and labels of logged predictions, which are learned in this order."""

    examples: Annotated[
        list[Example | PredictionLabel],
        Field(
            description="Each is an example, or the label of a logged prediction.",
            json_schema_extra=_bounded(maxItems="max_examples"),
        ),
    ]


UpdateRequest = TypeAliasType("UpdateRequest", Example | PredictionLabel | UpdateManyRequest)
"""Any kind of request, for the document; what is parsed is `UpdateFields`."""


@with_config(_documented())
class ItemFields(_Event, total=False):
    """The fields of an Example and a PredictionLabel."""

    features: _AnyFeatures
    label: Required[Label]
    id: Identifier


@with_config(_documented())
class UpdateFields(_Event, total=False):
    """The fields of all kinds of UpdateRequest."""

    features: _AnyFeatures
    label: Label
    id: Identifier
    examples: Annotated[list[ItemFields], FailFast()]


@with_config(_documented())
class ImpressionsRequest(TypedDict):
    """Logged predictions that were shown."""

    ids: Annotated[
        list[Identifier],
        FailFast(),
        Field(
            description="The ids of their predictions.", json_schema_extra=_bounded(maxItems="max_examples")
        ),
    ]


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
class AutoPromotion(TypedDict):
    """When a challenger is promoted automatically."""

    when: Annotated[Literal["better"], Field(description="Once its log loss is lower by more than chance.")]
    for_examples: Annotated[
        float,  # as for JSON, 1e5 is a whole number
        Field(
            ge=1,
            le=1e12,
            multiple_of=1,
            description="Examples for which that has to stay so, such as 100,000: a whole number.",
        ),
    ]


@with_config(_documented())
class ModelSpecification(TypedDict, total=False):
    """Configuration of a model; fields that are left out take their defaults, those of a challenger the
    values of its champion.
    """

    follows: Annotated[
        str,
        Field(
            description="Make it a challenger: it learns the log of this model, or alias of one.",
            pattern=MODEL_NAME_PATTERN,
        ),
    ]
    start: Annotated[
        str,
        Field(
            description="Of a challenger: `state` (the present state of the champion), `now` (empty), `log`"
            " (empty, from where the log begins), or the id or tag of a snapshot of the champion."
        ),
    ]
    promote: Annotated[
        AutoPromotion | None,
        Field(
            description="Of a challenger: when it takes the place of its champion automatically; null: never."
        ),
    ]
    hyper: Annotated[
        dict[str, Any],
        Field(
            description="Family, update, rate, schedule, penalties, forgetting and drop_below of the learner."
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
