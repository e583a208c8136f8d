"""/models/{name}/features: the most seen features by name, with their weights."""

from __future__ import annotations

import math
from itertools import islice
from typing import Annotated, Literal

import numpy as np
from fastapi import FastAPI, Query
from pydantic import Field

from service.api.openapi import MODEL_PROBLEMS
from service.api.schemas import ModelName, Reply
from service.api.security.access import READ
from service.api.services import Services
from service.models.feature_names import Slots
from service.models.registry import OpenModel
from service.storage.records import checked_name

Order = Literal["seen", "weight"]


class NamedFeature(Reply):
    """A slot, and the features that are known to have it."""

    names: list[str] = Field(description="The texts that were hashed, the most seen first.")
    slot: int = Field(description="Their place among the weights.")
    weight: float = Field(description="Their weight, in log-odds.")
    learning_rate: float | None = Field(description="Of its next update; null if it has no bound yet.")


class FeaturesReply(Reply):
    """The most seen features; none without FTRL_FEATURE_NAMES."""

    features: list[NamedFeature] = Field(description="In the order that was asked for.")
    known: int = Field(description="How many slots there are whose names are known.")
    model: str = Field(description="The model, also if the request names an alias.")
    revision: str = Field(
        description="The state that was read: incarnation, generation, commit number, mark."
    )


def add_features_route(app: FastAPI, services: Services) -> None:
    @app.get("/models/{name}/features", tags=["models"], responses=MODEL_PROBLEMS, **READ.declared)
    async def list_features(
        name: ModelName,
        most: Annotated[int, Query(ge=1, le=1000, description="Max features in the reply.")] = 100,
        by: Annotated[
            Order, Query(description="The most seen first, or those of the largest weights.")
        ] = "seen",
    ) -> FeaturesReply:
        """List the features that were seen most.

        Their names are those of a sample of the requests.
        """
        model = await services.aliases.open(checked_name(name))
        slots = await services.names.slots(model)
        return FeaturesReply(
            features=_features(model, slots, most, by),
            known=len(slots),
            model=model.name,
            revision=model.revision,
        )


def _features(model: OpenModel, slots: Slots, most: int, by: Order) -> list[NamedFeature]:
    readings = model.mirror.replica.state.readings(np.array(list(slots), np.uint32), model.config.hyper)
    weights, curvatures = readings.tolist()
    found = zip(slots.items(), weights, curvatures, strict=True)
    ordered = sorted(found, key=lambda one: -abs(one[1])) if by == "weight" else found
    return [
        NamedFeature(
            names=names,
            slot=slot,
            weight=weight,
            learning_rate=1.0 / curvature if curvature > 0.0 and math.isfinite(curvature) else None,
        )
        for (slot, names), weight, curvature in islice(ordered, most)
    ]
