"""Schemas of replies, for OpenAPI and for the tests that compare real replies with them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from model_core.errors import InputCode
from service.example_log.appender import UpdateStatus
from service.storage.records import MODEL_NAME_PATTERN

Probability = Annotated[float, Field(ge=0, le=1)]
ModelName = Annotated[str, Path(json_schema_extra={"pattern": MODEL_NAME_PATTERN}, examples=["default"])]
ImpressionStatus = Literal["shown", "duplicate", "unknown"]


class Reply(BaseModel):
    """For documentation and tests: replies of the frequent calls are written as bytes by their routes."""

    model_config = ConfigDict(extra="forbid")


class Prediction(Reply):
    probability: Probability
    id: str | None = None
    logged: bool | None = Field(
        None, description="Whether it was logged; present unless all predictions of the request were."
    )


class PredictReply(Reply):
    probability: Probability
    model: str
    revision: str = Field(
        description="The state that was read: incarnation, generation, commit number, mark."
    )
    id: str | None = None
    logged: bool | None = Field(None, description="Whether it was logged and awaits its label.")


class PredictInstancesReply(Reply):
    predictions: list[Prediction]
    model: str
    revision: str
    logged: bool | None = Field(None, description="Whether all of them were logged and await their labels.")


class ExplainedFeature(Reply):
    name: str = Field(description="The text that was hashed, `name=value`; `bias` if `slot` is null.")
    hash: int | None
    slot: int | None
    value: float
    weight: float
    contribution: float = Field(description="Value times weight: its part of the margin.")
    learning_rate: float | None = Field(description="Of its next update; null if it has no bound yet.")
    z: float
    n: float


class SharedSlot(Reply):
    slot: int
    names: list[str] = Field(description="Features of this example that share the slot.")
    value: float
    contribution: float


class ExplainReply(Reply):
    probability: Probability
    margin: float = Field(description="The log-odds: offset and contributions added up in this order.")
    offset: float = Field(description="The log-odds of the model's prior probability.")
    uncertainty: float | None = Field(
        description="Sum of learning rate times |value|: large if little was learned; null: no bound."
    )
    features: list[ExplainedFeature]
    shared_slots: list[SharedSlot]
    model: str
    revision: str


class UpdateReply(Reply):
    status: UpdateStatus = Field(
        description=(
            "`appended`: durable, not yet learned. `skipped`: would have made the state non-finite. Of"
            " labels: `waiting`: durable, learned when its window closes. `sampled_out`: not among the labels"
            " 0 that are learned. `late`: after its window, not learned. In lists also `conflict`, `unknown`."
        )
    )
    probability: Probability | None = Field(description="The prediction just before learning.")
    loss: float | None
    revision: str | None
    event_id: str | None = Field(None, description="Of an example with features.")
    id: str | None = Field(None, description="Of a label for a logged prediction.")


class UpdateExamplesReply(Reply):
    results: list[UpdateReply]


class Impression(Reply):
    id: str
    status: ImpressionStatus


class ImpressionsReply(Reply):
    results: list[Impression]


class ModelDescription(Reply):
    name: str
    hyper: dict[str, Any]
    hashing: dict[str, Any]
    evaluation: dict[str, Any]
    feedback: dict[str, Any]
    snapshots: dict[str, Any]
    t: int = Field(description="Completed rounds.")
    revision: str
    features_seen: int
    nonzero: int = Field(description="Weights other than zero.")
    density: float = Field(description="Share of the features seen whose weight is not zero.")
    mixed_names: list[str] = Field(
        description="Undeclared names that came to this process both as text and as a number, at most 1,000."
    )
    unmet_names: list[str] = Field(
        description="Names in types, transforms or crosses that no example or instance of this process has"
        " had, once 1,000 came: they have no effect."
    )


class CloneDescription(ModelDescription):
    warnings: list[str] = Field(description="What the clone does not have of its source.")


class ModelNames(Reply):
    models: list[str]


class Readiness(Reply):
    predict: Literal["fresh", "stale", "unavailable"]
    mirror_age_seconds: float | None = Field(description="Null if nothing is loaded yet.")
    update: Literal["available", "unavailable"]
    reasons: list[str] = Field(description="Why something is stale or unavailable.")


class ErrorItem(BaseModel):
    path: str = Field(description="Part of the body, as `examples[3].label`; empty for the whole.")
    code: InputCode = Field(description="Kind of the mistake, for programs.")
    detail: str = Field(description="What is wrong and what is allowed, for people.")


class Problem(BaseModel):
    """RFC 9457."""

    model_config = ConfigDict(extra="allow")

    type: str
    code: str = Field(description="Kind of the error, for programs, such as `unknown_model`; it is stable.")
    title: str
    status: int
    detail: str = Field(description="What is wrong and what to do, for people; its wording may change.")
    instance: str
    errors: list[ErrorItem] | None = None
