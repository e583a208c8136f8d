"""/models/{name}/evaluation: how good a model's predictions are, as its learner last reported."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import FastAPI, Response
from pydantic import Field

from service.api.openapi import MODEL_PROBLEMS
from service.api.schemas import ModelName, Reply
from service.api.security.access import READ
from service.api.server.front_door import JSON
from service.api.services import Services
from service.models.evaluation.judgement import Check
from service.models.evaluation.report import report_of_nothing, with_slices
from service.models.registry import OpenModel
from service.storage.records import checked_name

WindowName = Literal["15m", "30m", "1h", "24h", "all"]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)] | None


class ReliabilityBucket(Reply):
    """Predictions of about the same probability, and how many of them were clicked."""

    low: float = Field(description="Predictions of this bucket are from here ...")
    high: float = Field(description="... to here.")
    examples: float = Field(description="Their number, by weight.")
    mean_prediction: float = Field(description="Mean of the predictions.")
    click_rate: float = Field(description="Share of clicks.")
    click_rate_interval: Interval = Field(None, description="95 % interval of `click_rate`.")


class PlainFigures(Reply):
    """Null before the window holds 50 clicks, and where a figure is undefined."""

    window: WindowName = Field(description="How far back the examples reach from the newest.")
    weighting: Literal["weight", "none"] = Field(
        description="Whether an example counts by its weight, or once."
    )
    examples: int = Field(description="Their number, regardless of weight.")
    clicks: float = Field(description="The sum of their labels, regardless of weight.")
    auc: float | None = Field(description="Chance that a click was predicted higher than a non-click.")
    auc_error_bound: float | None = Field(description="How far the exact AUC is from `auc` at most.")
    log_loss: float | None = Field(description="Mean, in nats.")
    normalized_entropy: float | None = Field(
        description="Log loss over the entropy of the window's own click rate."
    )
    calibration_ratio: float | None = Field(description="Predicted clicks over clicks; 1 is right.")
    calibration_tolerance: float | None = Field(
        description="How far from 1 chance alone may take it (three standard errors), at least 0.05."
    )
    mean_prediction: float | None = Field(description="Mean of the predictions.")
    base_rate: float | None = Field(description="Share of clicks.")
    auc_interval: Interval = Field(
        None, description="95 % interval of `auc`, `auc_error_bound` included; null where there is no AUC."
    )
    log_loss_interval: Interval = Field(None, description="95 % interval of `log_loss`.")
    calibration_ratio_interval: Interval = Field(None, description="95 % interval of `calibration_ratio`.")
    base_rate_interval: Interval = Field(None, description="95 % interval of `base_rate`.")


class SliceFigures(PlainFigures):
    """Figures of the examples with one value of a feature."""

    unweighted: PlainFigures = Field(description="The same, with each example counted once.")
    in_other: int | None = Field(
        None,
        description="Examples with this value that came before it had a slice and are in `other`; in that,"
        " those of all values with slices. In the window `all` only.",
    )
    largest_in_other: int | None = Field(
        None,
        description="In the window `all` of `other`: examples of the most frequent value without a slice.",
    )


class UnweightedFigures(PlainFigures):
    """Figures of a window."""

    reliability: list[ReliabilityBucket] = Field(description="By predicted probability, ascending.")


class WindowFigures(UnweightedFigures):
    """Figures of a window, by weight."""

    unweighted: UnweightedFigures = Field(description="The same, with each example counted once.")


class Source(Reply):
    """Figures of one source of predictions."""

    windows: dict[WindowName, WindowFigures] = Field(description="By window.")


class Sources(Reply):
    """Figures by the source of the predictions."""

    progressive: Source = Field(description="Predictions made just before each example was learned.")
    served: Source | None = Field(description="Predictions as they were answered, where labels name them.")


class Measures(Reply):
    """Measures of the state, counted over a part of the slots at a time."""

    features_seen: int = Field(description="Hashed features that the model has met.")
    nonzero: int = Field(description="Features whose weight is not 0.")
    density: float = Field(description="Share of the features seen whose weight is not 0.")
    nonfinite: int = Field(description="Slots that are not finite; always 0.")
    slot_load: float = Field(description="Share of the slots that are in use.")
    expected_collision_rate: float = Field(
        description="Share of features expected to share a slot with another."
    )
    weight_norm: float = Field(description="Euclidean norm of the weights.")
    gradient_norm: float = Field(description="Square root of the sum of all squared gradients.")
    largest_weight: float = Field(description="Greatest magnitude of a weight.")


class FindingReply(Reply):
    """The result of one check."""

    check: Check = Field(
        description="`total`: predicted clicks over clicks. `constant`: better than always predicting the"
        " click rate. `slice`, `bucket`: calibration of the worst slice or reliability bucket."
    )
    wrong: bool | None = Field(description="Beyond what chance explains; null if either may be chance.")
    ratio: float | None = Field(
        description="Predicted clicks over clicks, null without a click; of `constant` normalized entropy."
    )
    tolerance: float | None = Field(
        description="How far from 1 chance may take it; null of the worst of many."
    )
    where: str = Field(description="The worst slice or bucket; empty for the other checks.")


class JudgementReply(Reply):
    """What is right and wrong about the predictions."""

    window: WindowName = Field(description="The shortest of 30m, 1h, 24h and all that holds 50 clicks.")
    source: Literal["progressive", "served"] = Field(description="The predictions that are judged.")
    findings: list[FindingReply] = Field(description="One for each check that could be made.")


class EvaluationReply(Reply):
    """How good the predictions of a model are."""

    model: str = Field(description="The model.")
    revision: str = Field(description="The state when the figures were taken.")
    t: int = Field(description="Completed rounds when the figures were taken.")
    as_of: str | None = Field(description="Time of the newest example, at which the windows end.")
    slices_t: int | None = Field(
        description="Completed rounds from which on slices were taken; null before this learner reported any."
    )
    sources: Sources = Field(description="Figures of all examples.")
    judgement: JudgementReply | None = Field(
        None, description="Null before there are 50 clicks, and while the learner is of an older version."
    )
    slices: dict[str, dict[str, dict[WindowName, SliceFigures]]] = Field(
        description="By feature, value and window; `other` is the rest."
    )
    measures: Measures | None = Field(description="Of the state; null before they were first counted.")


def add_evaluation_routes(app: FastAPI, services: Services) -> None:
    @app.get(
        "/models/{name}/evaluation",
        tags=["models"],
        responses=MODEL_PROBLEMS,
        response_model=EvaluationReply,
        **READ.declared,
    )
    async def get_evaluation(name: ModelName) -> Response:
        """Report the quality of a model's predictions.

        Over the whole stream and over its last minutes, hours and day. The learner updates it once a second
        while it learns, and slices every five seconds.
        """
        model = await services.aliases.open(checked_name(name))
        figures = await services.models.figures(model)
        return Response(_of_nothing(model) if figures is None else figures, media_type=JSON.decode())


def _of_nothing(model: OpenModel) -> bytes:
    report = report_of_nothing(model.revision, model.mirror.replica.state.t)
    return with_slices(report.as_json(model.name, None), None)
