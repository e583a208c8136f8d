"""/models/{name}/history: how good a model's predictions were, and what happened to it."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import FastAPI, Query
from pydantic import Field

from service.api.openapi import MODEL_PROBLEMS
from service.api.schemas import ModelName, Reply
from service.api.security.access import READ
from service.api.services import Services
from service.models.history import Span, length_seconds, past_as_json
from service.storage.records import checked_name

Column = list[float | None]
HistoryWindow = Literal["15m", "1h", "24h"]
Happening = Literal["start", "snapshot", "restore", "rollback", "promotion", "load", "alias", "settings"]


class FiguresThen(Reply):
    """Figures of the window that ended at each time, by weight."""

    auc: Column = Field(description="Chance that a click was predicted higher than a non-click.")
    log_loss: Column = Field(description="Mean, in nats.")
    calibration_ratio: Column = Field(description="Predicted clicks over clicks.")
    base_rate: Column = Field(description="Share of clicks.")


class MarkReply(Reply):
    """Something that happened to the model."""

    time: float = Field(description="When, in Unix seconds; what the learner notices, within five seconds.")
    kind: Happening = Field(
        description="`start`: a learner took the model over. `load`: its state was replaced by a bulk load."
        " `promotion`: a challenger took its place. `settings`: those of feedback were changed."
    )
    detail: str = Field(description="The snapshot, the alias and its model, or the new settings.")


class HistoryReply(Reply):
    """Columns of equal length. Null: not known, or a gap in which nothing was recorded."""

    span: Span = Field(description="How far back it reaches.")
    step_seconds: float = Field(description="The time between two rows at least.")
    time: list[float] = Field(description="Of each row, in Unix seconds, ascending.")
    learned: Column = Field(description="Examples learned a second, since the row before.")
    backlog: Column = Field(description="Examples in the log that were not learned yet.")
    lag_seconds: Column = Field(description="The age of the oldest of them.")
    density: Column = Field(description="Share of the features seen whose weight is not 0.")
    windows: dict[HistoryWindow, FiguresThen] = Field(
        description="Of predictions as they were served if these are evaluated, else of progressive ones."
    )
    experts: list[Column] = Field(description="The weight of each expert of a mixture; else empty.")
    marks: list[MarkReply] = Field(description="What happened, by time; at most 1,000 are retained.")


def add_history_route(app: FastAPI, services: Services) -> None:
    @app.get("/models/{name}/history", tags=["models"], responses=MODEL_PROBLEMS, **READ.declared)
    async def get_history(
        name: ModelName, span: Annotated[Span, Query(description="How far back.")] = "1h"
    ) -> HistoryReply:
        """Report the history of a model's figures.

        The last hour by 5 seconds; the last 30 days by 5 minutes, of which the longer spans show fewer.
        """
        model = await services.aliases.open(checked_name(name))
        begin = int((time.time() - length_seconds(span)) * 1000)
        past = await services.models.past(model, span, begin)
        return HistoryReply.model_validate(past_as_json(past, span))
