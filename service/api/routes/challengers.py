"""/models/{name}/challengers: how the challengers of a model compare with it."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import Field

from model_core.evaluation.comparison import ComparisonFigures, ModelFigures, Verdict
from model_core.evaluation.confidence_sequence import CONFIDENCE
from model_core.evaluation.intervals import Interval as Bounds
from service.api.openapi import MODEL_PROBLEMS
from service.api.schemas import ModelName, Reply
from service.api.security.access import READ
from service.api.services import Services
from service.models.challengers import Challenger, read_challengers
from service.models.config.model import ModelConfig
from service.models.evaluation.report import rfc_3339
from service.models.replica import gone_is_unknown
from service.storage.records import checked_name

Interval = Annotated[list[float | None], Field(min_length=2, max_length=2)] | None


class Difference(Reply):
    """A field of the configuration."""

    champion: Any = Field(description="The champion's value.")
    challenger: Any = Field(description="The challenger's value.")


class ComparedModel(Reply):
    """Figures of the paired examples, by weight; null before the first, or before the first click."""

    log_loss: float | None = Field(description="Mean, in nats.")
    calibration_ratio: float | None = Field(description="Predicted clicks over clicks; 1 is right.")
    calibration_interval: Interval = Field(
        description="95 % confidence sequence of it; the upper bound is null while there is none."
    )


class CoursePoint(Reply):
    """Where the comparison stood."""

    pairs: int = Field(description="After so many paired examples.")
    champion_log_loss: float = Field(description="Mean, in nats.")
    difference: float = Field(description="As of the comparison.")
    interval: Interval = Field(description="Its 95 % confidence sequence.")


class ComparisonReply(Reply):
    """Both models on the same examples, each predicted by both before they learned it. The intervals are a
    confidence sequence: all of them together hold with 95 %, so that they may be looked at at any time.
    """

    pairs: int = Field(description="Examples that both models predicted.")
    unpaired: int = Field(description="Examples since then that only one of them predicted.")
    clicks: int = Field(description="Clicks among the pairs.")
    champion: ComparedModel = Field(description="The champion.")
    challenger: ComparedModel = Field(description="The challenger.")
    difference: float | None = Field(
        description="Mean log loss of the champion minus the challenger's: above 0 the challenger is better."
    )
    interval: Interval = Field(description="95 % confidence sequence of `difference`.")
    relative_difference: float | None = Field(
        description="`difference` over the champion's log loss: 0.01 if the challenger's is 1 % lower."
    )
    clipped: int = Field(
        description="Examples whose difference was clipped, at 1 nat for the weight of a click."
    )
    verdict: Verdict = Field(
        description="`better`: the challenger's log loss is lower, as `interval` is above 0; `worse`: below."
    )
    verdict_pairs: int = Field(description="The pairs that there were when the verdict came.")
    verdict_time: str | None = Field(description="The time in the log when it came; null of the first.")
    calibration_difference: float | None = Field(
        description="The challenger's calibration ratio minus the champion's."
    )
    calibration_difference_interval: Interval = Field(description="95 % confidence sequence of it.")
    calibration: Verdict = Field(
        description="`better`: the challenger's predicted clicks are closer to the clicks; `worse`: farther."
    )
    course: list[CoursePoint] = Field(description="At most 64 points from the beginning until now.")


class ChallengerReply(Reply):
    """A challenger, and how it compares with its champion."""

    name: str = Field(description="Its name.")
    behind_examples: int = Field(description="Examples that the champion has learned and it has not.")
    differs: dict[str, Difference] = Field(description="Fields of the configuration that differ, by path.")
    comparison: ComparisonReply = Field(description="Since the states of both began; a restore begins again.")


class ChallengersReply(Reply):
    """The challengers of a model, by name."""

    model: str = Field(description="The champion.")
    confidence: float = Field(description="Of the intervals, of each kind by itself.")
    challengers: list[ChallengerReply] = Field(description="Each with its comparison.")


def add_challenger_routes(app: FastAPI, services: Services) -> None:
    @app.get("/models/{name}/challengers", tags=["models"], responses=MODEL_PROBLEMS, **READ.declared)
    async def get_challengers(name: ModelName) -> ChallengersReply:
        """Compare the challengers of a model with it.

        Of each model that follows this one: which is better, on the same examples, and since when.
        """
        model = await services.aliases.open(checked_name(name))
        replica = model.mirror.replica
        async with services.models.channel() as channel:
            with gone_is_unknown():
                found = await read_challengers(channel, replica.keys)
        return ChallengersReply(
            model=model.name,
            confidence=CONFIDENCE,
            challengers=[_reply(one, replica.config) for one in found],
        )


def _reply(one: Challenger, champion: ModelConfig) -> ChallengerReply:
    return ChallengerReply(
        name=one.name,
        behind_examples=one.behind,
        differs={
            path: Difference(champion=ours, challenger=theirs)
            for path, (ours, theirs) in one.differences(champion).items()
        },
        comparison=_compared(one.comparison.figures(), one),
    )


def _compared(figures: ComparisonFigures, one: Challenger) -> ComparisonReply:
    since = figures.since_milliseconds
    return ComparisonReply(
        pairs=figures.pairs,
        unpaired=figures.unpaired,
        clicks=figures.clicks,
        champion=_model(figures.champion),
        challenger=_model(figures.challenger),
        difference=figures.difference,
        interval=_bounds(figures.difference_interval),
        relative_difference=figures.relative_difference,
        clipped=figures.clipped,
        verdict=figures.verdict,
        verdict_pairs=figures.since_pairs,
        verdict_time=rfc_3339(since) if since else None,
        calibration_difference=figures.calibration_difference,
        calibration_difference_interval=_bounds(figures.calibration_difference_interval),
        calibration=figures.calibration,
        course=[
            CoursePoint(
                pairs=point.pairs,
                champion_log_loss=point.champion_log_loss,
                difference=point.difference,
                interval=_bounds(point.interval),
            )
            for point in one.comparison.course()
        ],
    )


def _model(figures: ModelFigures) -> ComparedModel:
    return ComparedModel(
        log_loss=figures.log_loss,
        calibration_ratio=figures.calibration_ratio,
        calibration_interval=_bounds(figures.calibration_interval),
    )


def _bounds(interval: Bounds | None) -> list[float | None] | None:
    """Infinity is not JSON."""
    return None if interval is None else [bound if math.isfinite(bound) else None for bound in interval]
