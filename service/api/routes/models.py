"""/models: which there are, and how to make, describe, change and delete one."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Annotated, Any

from fastapi import Body, FastAPI, Response
from pydantic import TypeAdapter

from model_core.learning.state import Mixture
from service.api.openapi import (
    CHANGE_EXAMPLES,
    CHANGE_PROBLEMS,
    CREATE_PROBLEMS,
    MODEL_EXAMPLES,
    MODEL_PROBLEMS,
    problems,
)
from service.api.schemas import Following, FollowingStatus, ModelDescription, ModelName, ModelNames, Promotes
from service.api.security.access import ADMIN, READ, READ_ALL
from service.api.security.guard import require_admin
from service.api.server.front_door import BodyReader, RawReply, RawRequest, RawRoute
from service.api.services import Services
from service.errors import ChallengerRefused, StateUnavailable
from service.feedback.reconfigure import change_model
from service.models.challengers import learned_by_champion, read_followers
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from service.models.replica import Replica, read_meta
from service.parsing.schemas import ModelChange, ModelSpecification
from service.settings.groups import LimitSettings
from service.snapshots.restore.challenge import challenge
from service.storage.records import checked_name

TAGS: list[str | Enum] = ["models"]

_parse_specification = TypeAdapter[ModelSpecification](ModelSpecification).validator.validate_json
_parse_change = TypeAdapter[ModelChange](ModelChange).validator.validate_json


def add_admin_routes(app: FastAPI, services: Services, bodies: BodyReader, settings: LimitSettings) -> None:
    @app.get("/models", tags=TAGS, responses=problems(_503="Redis is away."), **READ_ALL.declared)
    async def list_models() -> ModelNames:
        """List the models.

        Their names, in order.
        """
        return ModelNames(models=await services.models.names())

    @app.get("/models/{name}", tags=TAGS, responses=MODEL_PROBLEMS, **READ.declared)
    async def describe_model(name: ModelName) -> ModelDescription:
        """Describe a model.

        Its configuration, and how much it has learned, as this process's copy has it.
        """
        return await described(services, await services.aliases.open(checked_name(name)))

    @app.delete(
        "/models/{name}",
        tags=TAGS,
        status_code=204,
        responses=MODEL_PROBLEMS | problems(_409="It is the name of an alias."),
        **ADMIN.declared,
    )
    async def delete_model(name: ModelName) -> Response:
        """Delete a model.

        All that it has learned is lost, except for its snapshots.
        """
        await services.aliases.refuse(checked_name(name))
        await services.models.delete(name)
        return Response(status_code=204)

    async def create(call: RawRequest) -> RawReply:
        name = checked_name(call.model)
        asked = call.parsed(_parse_specification)
        if "follows" in asked:
            require_admin(call.grant, await services.aliases.named(asked["follows"]))
        model, created = await _created(services, name, asked)
        description = await described(services, model)
        return RawReply(201 if created else 200, description.model_dump_json().encode())

    app.router.routes.append(
        RawRoute(
            "PUT",
            "/models/{name}",
            _create_model,
            create,
            bodies=bodies,
            max_bytes=settings.max_body_bytes,
            tags=TAGS,
            responses=CREATE_PROBLEMS | {201: {"model": ModelDescription, "description": "It was created."}},
            response_description="It existed already, with this configuration.",
            access=ADMIN,
        )
    )
    app.router.routes.append(_change_route(services, bodies, settings))


async def _created(services: Services, name: str, asked: ModelSpecification) -> tuple[OpenModel, bool]:
    """Returns the model, and True if it is new. Raises ServiceError, InvalidInput."""
    body: dict[str, Any] = dict(asked)
    champion, start, promote = (body.pop(name, None) for name in ("follows", "start", "promote"))
    if champion is not None:
        models, aliases, store = services.models, services.aliases, services.snapshots
        after = int(promote["for_examples"]) if promote else None
        return await challenge(models, aliases, store, name, checked_name(champion), start, body, after)
    for field, given in (("start", start), ("promote", promote)):
        if given is not None:
            text = f"`{field}` is of a challenger: name its champion in `follows`, or leave it out."
            raise ChallengerRefused(text, extra={"field": field})
    return await services.models.create(name, ModelConfig.from_json(body))


def _change_route(services: Services, bodies: BodyReader, settings: LimitSettings) -> RawRoute:
    async def handler(call: RawRequest) -> RawReply:
        name = checked_name(call.model)
        asked = call.parsed(_parse_change)
        model = await change_model(services.models, services.aliases, name, asked)
        return RawReply(200, (await described(services, model)).model_dump_json().encode())

    return RawRoute(
        "PATCH",
        "/models/{name}",
        _change_model,
        handler,
        bodies=bodies,
        max_bytes=settings.max_body_bytes,
        tags=TAGS,
        responses=CHANGE_PROBLEMS,
        response_description="It is so from now on, in every process.",
        access=ADMIN,
    )


async def _change_model(
    name: ModelName, body: Annotated[ModelChange, Body(openapi_examples=CHANGE_EXAMPLES)]
) -> ModelDescription:
    """Change a model in place.

    How it waits for the labels of its predictions; it serves and learns meanwhile.
    """
    raise NotImplementedError


async def _create_model(
    name: ModelName, body: Annotated[ModelSpecification, Body(openapi_examples=MODEL_EXAMPLES)]
) -> ModelDescription:
    """Create a model.

    The same request again changes nothing; a different one is refused.
    """
    raise NotImplementedError


async def described(services: Services, model: OpenModel) -> ModelDescription:
    """All figures of one commit but `nonzero`, which is counted while the model may learn on; also how the
    model is related to others.
    """
    replica = model.mirror.replica
    following, challengers = await _relations(services, replica)
    state = replica.state
    revision, t, features_seen, discount = replica.revision, state.t, state.features_seen, state.discount
    nonzero = await asyncio.to_thread(state.nonzero, replica.config.hyper)
    return ModelDescription(
        name=model.name,
        **replica.config.to_json(),
        t=t,
        revision=revision,
        features_seen=features_seen,
        features_dropped=discount.dropped,
        nonzero=nonzero,
        density=min(nonzero / features_seen, 1.0) if features_seen else 0.0,
        expert_weights=discount.weights.tolist() if isinstance(discount, Mixture) else None,
        mixed_names=sorted(model.encoder.mixed_names),
        unmet_names=model.unmet_names,
        follows=following,
        challengers=challengers,
    )


async def _relations(services: Services, replica: Replica) -> tuple[Following | None, list[str] | None]:
    """What the model follows, and which models follow it; None of the latter while Redis is away."""
    try:
        async with services.models.channel() as channel:
            if not replica.follows:
                return None, list(await read_followers(channel, replica.keys))
            learned = await learned_by_champion(channel, replica.follows)
            after = (await read_meta(channel, replica.keys.model)).promote_after
    except StateUnavailable:
        learned, after = replica.applied_number, None
        if not replica.follows:
            return None, None
    follows = replica.follows
    status: FollowingStatus = "champion_deleted" if learned is None else "following"
    behind = None if learned is None else max(0, learned - replica.applied_number)  # as it is by now
    promotes = None if after is None else Promotes(when="better", for_examples=after)
    following = Following(
        model=follows.model, start=follows.start, status=status, behind_examples=behind, promote=promotes
    )
    return following, []
