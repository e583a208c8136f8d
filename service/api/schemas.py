"""Schemas of replies, for OpenAPI and for the tests that compare real replies with them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType

from model_core.errors import InputCode
from service.example_log.appender import UpdateStatus
from service.storage.records import MODEL_NAME_PATTERN

Probability = Annotated[float, Field(ge=0, le=1)]
ModelName = Annotated[
    str,
    Path(
        description="A model, or its alias in calls that read, predict, explain or update.",
        json_schema_extra={"pattern": MODEL_NAME_PATTERN},
        examples=["default"],
    ),
]
AliasName = Annotated[
    str,
    Path(description="An alias.", json_schema_extra={"pattern": MODEL_NAME_PATTERN}, examples=["live"]),
]
ImpressionStatus = Literal["shown", "duplicate", "unknown"]


class Reply(BaseModel):
    """For documentation and tests: replies of the frequent calls are written as bytes by their routes."""

    model_config = ConfigDict(extra="forbid")


class Prediction(Reply):
    """The prediction of one instance."""

    probability: Probability = Field(description="Of a click.")
    id: str | None = Field(None, description="As the request names it.")
    logged: bool | None = Field(
        None, description="Whether it was logged; present unless all predictions of the request were."
    )


class PredictReply(Reply):
    """The prediction of one example."""

    probability: Probability = Field(description="Of a click.")
    model: str = Field(description="The model that predicted, also if the request names an alias.")
    revision: str = Field(
        description="The state that was read: incarnation, generation, commit number, mark."
    )
    id: str | None = Field(None, description="As the request names it, or generated if it was logged.")
    logged: bool | None = Field(None, description="Whether it was logged and awaits its label.")


class PredictInstancesReply(Reply):
    """The predictions of several instances."""

    predictions: list[Prediction] = Field(description="In the order of the instances.")
    model: str = Field(description="The model that predicted, also if the request names an alias.")
    revision: str = Field(
        description="The state that was read: incarnation, generation, commit number, mark."
    )
    logged: bool | None = Field(None, description="Whether all of them were logged and await their labels.")


PredictAnswer = TypeAliasType("PredictAnswer", PredictReply | PredictInstancesReply)


class ExplainedFeature(Reply):
    """A feature of the example, and its part of the prediction."""

    name: str = Field(description="The text that was hashed, `name=value`; `bias` if `slot` is null.")
    hash: int | None = Field(description="32 bits of which the slot is a part; null of the bias.")
    slot: int | None = Field(description="Its place among the weights; null of the bias.")
    value: float = Field(description="1 for a category.")
    weight: float = Field(description="The weight of its slot.")
    contribution: float = Field(description="Value times weight: its part of the margin.")
    learning_rate: float | None = Field(description="Of its next update; null if it has no bound yet.")
    z: float = Field(description="The linear coefficient of its state.")
    n: float = Field(description="The sum of its squared gradients.")
    also_in_slot: list[str] = Field(
        description="Other features with this slot, and so with this weight, by the names that are known."
    )


class SharedSlot(Reply):
    """A slot that features of this example share."""

    slot: int = Field(description="Its number.")
    names: list[str] = Field(description="Features of this example that share the slot.")
    value: float = Field(description="The sum of their values.")
    contribution: float = Field(description="Their part of the margin together.")


class ExplainedExpert(Reply):
    """What one expert of a mixture predicts."""

    weight: float = Field(description="How much it counts now; all weights add up to 1.")
    margin: float = Field(description="Its log-odds.")
    probability: Probability = Field(description="Of a click, by this expert alone.")


class ExplainReply(Reply):
    """A prediction, taken apart."""

    probability: Probability = Field(description="Of a click.")
    margin: float = Field(
        description="The log-odds: offset and contributions added up in this order, and `mixing`."
    )
    offset: float = Field(description="The log-odds of the model's prior probability.")
    uncertainty: float | None = Field(
        description="Sum of learning rate times |value|: large if little was learned; null: no bound."
    )
    features: list[ExplainedFeature] = Field(description="All features of the example, and the bias.")
    shared_slots: list[SharedSlot] = Field(description="Slots that several of them have.")
    mixing: float | None = Field(
        None, description="Of a mixture: what its margin has beyond the sum of the mean contributions."
    )
    experts: list[ExplainedExpert] | None = Field(None, description="Of a mixture, in the order of hyper.")
    model: str = Field(description="The model that predicted, also if the request names an alias.")
    revision: str = Field(
        description="The state that was read: incarnation, generation, commit number, mark."
    )


class UpdateReply(Reply):
    """What became of one example or label."""

    status: UpdateStatus = Field(
        description=(
            "`appended`: durable, not yet learned. `skipped`: would have made the state non-finite. Of"
            " labels: `waiting`: durable, learned when its window closes. `sampled_out`: not among the labels"
            " 0 that are learned. `late`: after its window, not learned. In lists also `conflict`, `unknown`."
        )
    )
    probability: Probability | None = Field(description="The prediction just before learning.")
    loss: float | None = Field(description="Log loss of that prediction, in nats.")
    revision: str | None = Field(description="The state that has learned it.")
    event_id: str | None = Field(None, description="Of an example with features.")
    id: str | None = Field(None, description="Of a label for a logged prediction.")


class UpdateExamplesReply(Reply):
    """What became of several examples and labels."""

    results: list[UpdateReply] = Field(description="In the order of the request.")


UpdateAnswer = TypeAliasType("UpdateAnswer", UpdateReply | UpdateExamplesReply)


class Impression(Reply):
    """What became of a reported impression."""

    id: str = Field(description="Of the logged prediction.")
    status: ImpressionStatus = Field(
        description="`shown`: its window begins. `duplicate`: it was shown before. `unknown`: none pends."
    )


class ImpressionsReply(Reply):
    """What became of the reported impressions."""

    results: list[Impression] = Field(description="In the order of the request.")


FollowingStatus = Literal["following", "champion_deleted"]


class Promotes(Reply):
    """When a challenger is promoted automatically."""

    when: Literal["better"] = Field(description="Once its log loss is lower by more than chance.")
    for_examples: int = Field(description="Examples for which that has to stay so.")


class Following(Reply):
    """The model whose log a challenger learns."""

    model: str = Field(description="Its champion.")
    start: str = Field(description="Where it began: `state`, `now`, `log`, or a snapshot of the champion.")
    status: FollowingStatus = Field(
        description="`champion_deleted`: it learns no more, and predicts as it is."
    )
    behind_examples: int | None = Field(
        description="Examples that the champion has learned and it has not; null if there is no champion."
    )
    promote: Promotes | None = Field(
        description="When it takes its champion's place automatically; null: never."
    )


class ModelDescription(Reply):
    """A model: its configuration, and how much it has learned."""

    name: str = Field(description="Its name.")
    hyper: dict[str, Any] = Field(description="Hyperparameters of the learner.")
    hashing: dict[str, Any] = Field(description="The hash contract.")
    evaluation: dict[str, Any] = Field(description="Features that are evaluated value by value.")
    feedback: dict[str, Any] = Field(description="How logged predictions wait for their labels.")
    snapshots: dict[str, Any] = Field(description="When the model returns to a good snapshot automatically.")
    t: int = Field(description="Completed rounds.")
    revision: str = Field(description="The state: incarnation, generation, commit number, mark.")
    features_seen: int = Field(description="Hashed features that the model has met, and has not dropped.")
    features_dropped: int = Field(description="How many it has dropped so far: see hyper.drop_below.")
    nonzero: int = Field(description="Weights other than zero.")
    density: float = Field(description="Share of the features seen whose weight is not zero.")
    expert_weights: list[float] | None = Field(
        None, description="Of a mixture: how much each expert weighs now, in the order of hyper.rate.experts."
    )
    mixed_names: list[str] = Field(
        description="Undeclared names that came to this process both as text and as a number, at most 1,000."
    )
    unmet_names: list[str] = Field(
        description="Names in types, transforms or crosses that no example or instance of this process has"
        " had, once 1,000 came: they have no effect."
    )
    follows: Following | None = Field(None, description="Of a challenger: its champion.")
    challengers: list[str] | None = Field(
        description="Models that learn its log as challengers; null while Redis is away."
    )


class CloneDescription(ModelDescription):
    """The model that was created."""

    warnings: list[str] = Field(description="What the clone does not have of its source.")


class ModelNames(Reply):
    """The names of all models."""

    models: list[str] = Field(description="In alphabetical order.")


class Liveness(Reply):
    """The process answers."""

    status: Literal["alive"] = Field(description="Always the same.")


class Readiness(Reply):
    """What the process can do now."""

    predict: Literal["fresh", "stale", "unavailable"] = Field(
        description="Whether predictions can be made, and whether Redis has confirmed their state lately."
    )
    mirror_age_seconds: float | None = Field(
        description="Time since Redis last confirmed the oldest copy of a model; null if none is loaded."
    )
    update: Literal["available", "unavailable"] = Field(description="Whether updates can be accepted.")
    reasons: list[str] = Field(description="Why something is stale or unavailable.")


class ErrorItem(BaseModel):
    """A mistake in a request."""

    path: str = Field(description="Part of the body, as `examples[3].label`; empty for the whole.")
    code: InputCode = Field(description="Kind of the mistake, for programs.")
    detail: str = Field(description="What is wrong and what is allowed, for people.")


class Problem(BaseModel):
    """What is wrong and what to do (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="A URI for the kind of the error: `urn:ftrl-service:` and the code.")
    code: str = Field(description="Kind of the error, for programs, such as `unknown_model`; it is stable.")
    title: str = Field(description="The kind of the error, for people.")
    status: int = Field(description="That of the reply.")
    detail: str = Field(description="What is wrong and what to do, for people; its wording may change.")
    instance: str = Field(description="The path of the request.")
    errors: list[ErrorItem] | None = Field(
        None, description="The mistakes in the request, if it is not valid."
    )
