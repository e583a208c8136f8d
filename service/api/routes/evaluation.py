"""/models/{name}/evaluation: how good a model's predictions are, as its learner last reported."""

from __future__ import annotations

from typing import Literal

from fastapi import FastAPI, Response
from pydantic import Field

from service.api.openapi import MODEL_PROBLEMS
from service.api.schemas import ModelName, Reply
from service.api.security.access import READ
from service.api.server.front_door import JSON
from service.api.services import Services
from service.models.evaluation.report import report_of_nothing, with_slices
from service.models.registry import OpenModel
from service.storage.records import checked_name

WindowName = Literal["15m", "30m", "1h", "24h", "all"]


class ReliabilityBucket(Reply):
    low: float = Field(description="Predictions of this bucket are from here ...")
    high: float = Field(description="... to here.")
    examples: float
    mean_prediction: float
    click_rate: float


class PlainFigures(Reply):
    """Null before the window holds 50 clicks, and where a figure is undefined."""

    window: WindowName
    weighting: Literal["weight", "none"]
    examples: int = Field(description="Their number, regardless of weight.")
    clicks: int
    auc: float | None
    auc_error_bound: float | None = Field(description="How far the exact AUC is from `auc` at most.")
    log_loss: float | None = Field(description="Mean, in nats.")
    normalized_entropy: float | None = Field(
        description="Log loss over the entropy of the window's own click rate."
    )
    calibration_ratio: float | None = Field(description="Predicted clicks over clicks; 1 is right.")
    calibration_tolerance: float | None = Field(
        description="How far from 1 chance alone may take it (three standard errors), at least 0.05."
    )
    mean_prediction: float | None
    base_rate: float | None


class SliceFigures(PlainFigures):
    unweighted: PlainFigures


class UnweightedFigures(PlainFigures):
    reliability: list[ReliabilityBucket]


class WindowFigures(UnweightedFigures):
    unweighted: UnweightedFigures


class Source(Reply):
    windows: dict[WindowName, WindowFigures]


class Sources(Reply):
    progressive: Source = Field(description="Predictions made just before each example was learned.")
    served: Source | None = Field(description="Predictions as they were answered, where labels name them.")


class Measures(Reply):
    """Measures of the state, counted over a part of the slots at a time."""

    features_seen: int
    nonzero: int
    density: float
    nonfinite: int
    slot_load: float
    expected_collision_rate: float
    weight_norm: float
    gradient_norm: float
    largest_weight: float


class EvaluationReply(Reply):
    model: str
    revision: str
    t: int = Field(description="Completed rounds when the figures were taken.")
    as_of: str | None = Field(description="Time of the newest example, at which the windows end.")
    slices_t: int | None = Field(
        description="Completed rounds from which on slices were taken; null before this learner reported any."
    )
    sources: Sources
    slices: dict[str, dict[str, dict[WindowName, SliceFigures]]] = Field(
        description="By feature, value and window; `other` is the rest."
    )
    measures: Measures | None


def add_evaluation_routes(app: FastAPI, services: Services) -> None:
    @app.get(
        "/models/{name}/evaluation",
        tags=["models"],
        responses=MODEL_PROBLEMS,
        response_model=EvaluationReply,
        **READ.declared,
    )
    async def evaluation(name: ModelName) -> Response:
        """How good the predictions are, over the whole stream and its last minutes, hours and day.

        The learner publishes it once a second while it learns, and slices every five seconds.
        """
        model = await services.aliases.open(checked_name(name))
        figures = await services.models.figures(model)
        return Response(_of_nothing(model) if figures is None else figures, media_type=JSON.decode())


def _of_nothing(model: OpenModel) -> bytes:
    report = report_of_nothing(model.revision, model.mirror.replica.state.t)
    return with_slices(report.as_json(model.name, None), None)
