"""/models/{name}/promote and /models/{name}/promotions: a challenger takes the place of its champion."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Request
from pydantic import Field

from service.api.openapi import MODEL_PROBLEMS, problems
from service.api.schemas import ModelName, Reply
from service.api.security.access import ADMIN, READ
from service.api.security.guard import GRANT, require_admin
from service.api.services import Services
from service.models.promotions import read_promotions
from service.snapshots.restore.promotion import promote_model
from service.storage.records import checked_name

ASKED = "asked for"

Number = Annotated[
    int | None,
    Query(
        ge=1,
        description="That the promotion is to have, one more than the last; with it the request can be"
        " repeated, and is refused if another promotion came first.",
    ),
]


class PromotionReply(Reply):
    """A promotion of a challenger."""

    number: int = Field(description="1 for the first of this champion.")
    challenger: str = Field(description="The model whose state and configuration the champion has since.")
    snapshot: str = Field(description="The snapshot of the promoted state, in the champion's store.")
    before: str = Field(description="The snapshot of what the champion was before; empty: there is none.")
    t: int = Field(description="Completed rounds of the promoted state.")
    reason: str = Field(description="Why.")
    time: float = Field(description="When, in Unix seconds.")


class PromotedReply(Reply):
    """A promotion that has been made."""

    model: str = Field(description="The champion, which is what the challenger was.")
    promotion: PromotionReply = Field(description="The note of it.")
    replayed: int = Field(description="Examples that the promoted state learned before the switch.")
    seconds: float = Field(description="Time that it took.")
    revision: str = Field(
        description="The champion's revision after the switch; the process that answers has it, others"
        " follow. Empty if it could not be read."
    )


class PromotionList(Reply):
    """The promotions of challengers of a model."""

    promotions: list[PromotionReply] = Field(description="The newest first, at most 100.")


def add_promotion_routes(app: FastAPI, services: Services) -> None:
    @app.post(
        "/models/{name}/promote",
        tags=["models"],
        responses=problems(
            _404="There is no such model, or its champion was deleted.",
            _409="The model is no challenger, or a restore or another promotion came first. Nothing changed.",
            _422="The request is not valid; `errors` says where and why.",
            _503="The snapshot store or Redis is away.",
            _507="Redis has no room for a second state.",
        ),
        **ADMIN.declared,
    )
    async def promote_challenger(request: Request, name: ModelName, number: Number = None) -> PromotedReply:
        """Promote a challenger.

        It and its champion exchange states and configurations, while requests continue: no update is lost or
        learned twice. The challenger goes on as what the champion was, so that the way back is the same
        request.
        """
        models, aliases, store = services.models, services.aliases, services.snapshots
        follows = (await models.get(checked_name(name))).mirror.replica.follows
        if follows:
            require_admin(request.scope.get(GRANT), follows.model)
        promoted = await promote_model(models, aliases, store, name, number, ASKED)
        return PromotedReply.model_validate(promoted.to_json())

    @app.get("/models/{name}/promotions", tags=["models"], responses=MODEL_PROBLEMS, **READ.declared)
    async def list_promotions(name: ModelName) -> PromotionList:
        """List the promotions of a model's challengers.

        That of a challenger are those of its champion.
        """
        model = await services.aliases.open(checked_name(name))
        async with services.models.channel() as channel:
            found = await read_promotions(channel, model.mirror.replica.log_keys)
        return PromotionList(promotions=[PromotionReply.model_validate(one.to_json()) for one in found])
