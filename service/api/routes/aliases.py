"""/aliases: other names for models, and a copy of a model to give one to."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

from fastapi import Body, FastAPI, Response
from fastapi.openapi.models import Example
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from service.api.openapi import AT_ITS_LIMIT, CREATE_PROBLEMS, problems
from service.api.routes.models import described
from service.api.schemas import AliasName, CloneDescription, ModelName
from service.api.security.access import ADMIN_ALL, READ_ALL
from service.api.server.front_door import BodyReader, RawReply, RawRequest, RawRoute
from service.api.services import Services
from service.settings.groups import LimitSettings
from service.snapshots.restore.create import clone_model
from service.storage.records import MODEL_NAME_PATTERN, checked_name

TAGS: list[str | Enum] = ["aliases"]


class AliasRequest(BaseModel):
    """The model that an alias is to refer to."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str = Field(description="The model that the alias is to refer to.", pattern=MODEL_NAME_PATTERN)


class Alias(BaseModel):
    """Another name for a model."""

    alias: str = Field(description="The name.")
    model: str = Field(description="The model that it refers to.")


class AliasList(BaseModel):
    """All aliases."""

    aliases: dict[str, str] = Field(description="The model of each.")


class CloneRequest(BaseModel):
    """The name of the new model, and what is to differ from its source."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(description="Of the new model.", pattern=MODEL_NAME_PATTERN)
    hyper: dict[str, Any] | None = Field(
        None, description="Other hyperparameters, of the same family; what is left out is as in the model."
    )
    feedback: dict[str, Any] | None = Field(
        None, description="Another way to wait for labels; what is left out is as in the model."
    )

    @property
    def changes(self) -> dict[str, dict[str, Any]]:
        """By section of the model's configuration."""
        return {"hyper": self.hyper or {}, "feedback": self.feedback or {}}


_parse_alias = TypeAdapter(AliasRequest).validate_json
_parse_clone = TypeAdapter(CloneRequest).validate_json
_ALIAS_EXAMPLES: dict[str, Example] = {"default": Example(summary="One model", value={"model": "default"})}
_CLONE_EXAMPLES: dict[str, Example] = {
    "shrunken": Example(
        summary="A copy that goes on with more l2", value={"name": "challenger", "hyper": {"l2": 0.1}}
    ),
    "patient": Example(
        summary="A copy that waits longer for clicks",
        value={"name": "patient", "feedback": {"window_seconds": 7200, "max_bytes": 1 << 30}},
    ),
}
_NO_EVENT_IDS = (
    "The clone does not know the event ids of {source!r}: an update that {source!r} has learned is learned"
    " again if it is repeated through an alias that was switched to the clone. Switch once no retries are"
    " pending, or send retries to {source!r} by its own name."
)
_AWAY = {"_503": "Redis is away."}
_PROBLEMS = {
    "_404": "There is no such alias or model.",
    "_422": "The request is not valid; `errors` says where and why.",
    **_AWAY,
}


def add_alias_routes(app: FastAPI, services: Services, bodies: BodyReader, settings: LimitSettings) -> None:
    @app.get("/aliases", tags=TAGS, responses=problems(**_AWAY), **READ_ALL.declared)
    async def list_aliases() -> AliasList:
        """List the aliases.

        With the model of each.
        """
        return AliasList(aliases=await services.aliases.all())

    @app.get("/aliases/{name}", tags=TAGS, responses=problems(**_PROBLEMS), **READ_ALL.declared)
    async def describe_alias(name: AliasName) -> Alias:
        """Describe an alias.

        The model that it refers to.
        """
        return Alias(alias=name, model=await services.aliases.model_of(checked_name(name)))

    @app.delete(
        "/aliases/{name}",
        tags=TAGS,
        status_code=204,
        responses=problems(**_PROBLEMS | AT_ITS_LIMIT),
        **ADMIN_ALL.declared,
    )
    async def delete_alias(name: AliasName) -> Response:
        """Delete an alias.

        The model remains.
        """
        await services.aliases.remove(checked_name(name))
        return Response(status_code=204)

    raw = {"bodies": bodies, "max_bytes": settings.max_body_bytes}
    app.router.routes.extend([_setting_route(services, raw), _cloning_route(services, raw)])


def _setting_route(services: Services, raw: dict[str, Any]) -> RawRoute:
    async def set_alias(call: RawRequest) -> RawReply:
        name, model = checked_name(call.model), call.parsed(_parse_alias).model
        await services.aliases.set(name, model)
        return RawReply(200, Alias(alias=name, model=model).model_dump_json().encode())

    return RawRoute(
        *("PUT", "/aliases/{name}", _set_alias, set_alias),
        **raw,
        tags=TAGS,
        access=ADMIN_ALL,
        responses=CREATE_PROBLEMS
        | problems(_409="It is the name of a model, or the model's that of an alias."),
    )


def _cloning_route(services: Services, raw: dict[str, Any]) -> RawRoute:
    async def copy(call: RawRequest) -> RawReply:
        asked = call.parsed(_parse_clone)
        source = checked_name(call.model)
        models, aliases, snapshots = services.models, services.aliases, services.snapshots
        clone = await clone_model(models, aliases, snapshots, source, asked.name, asked.changes)
        description = CloneDescription(
            **(await described(services, clone)).model_dump(), warnings=[_NO_EVENT_IDS.format(source=source)]
        )
        return RawReply(201, description.model_dump_json().encode())

    return RawRoute(
        *("POST", "/models/{name}/clone", _clone_model, copy),
        **raw,
        status_code=201,
        tags=["models"],
        access=ADMIN_ALL,
        responses=CREATE_PROBLEMS | problems(_409="The name is taken, or the family another."),
    )


async def _set_alias(
    name: AliasName, body: Annotated[AliasRequest, Body(openapi_examples=_ALIAS_EXAMPLES)]
) -> Alias:
    """Set an alias.

    From now on, and within a second in every process, the name refers to this model: for predictions, updates
    and everything that reads.
    """
    raise NotImplementedError


async def _clone_model(
    name: ModelName, body: Annotated[CloneRequest, Body(openapi_examples=_CLONE_EXAMPLES)]
) -> CloneDescription:
    """Clone a model.

    The new model has learned all that this one has. Its log begins empty, without the event ids of the
    source, and pending predictions stay with the model that logged them.
    """
    raise NotImplementedError
