"""/models/{name}/snapshots: what there is, and one more."""

from __future__ import annotations

import asyncio
import json
from enum import Enum
from typing import Annotated, Any

from fastapi import Body, FastAPI, Path, Query
from fastapi.openapi.models import Example
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from model_core.errors import InvalidInput
from model_core.learning.hyperparameters import Hyperparameters
from service.api.openapi import AT_ITS_LIMIT, OF_A_BODY, problems
from service.api.schemas import ModelName
from service.api.security.access import ADMIN, READ
from service.api.server.front_door import BodyReader, RawReply, RawRequest, RawRoute
from service.api.services import Services
from service.models.config.model import ModelConfig
from service.settings.groups import LimitSettings
from service.snapshots.restore.restore import RestorePlan, restore_model
from service.snapshots.store.catalogue import (
    TAG_PATTERN,
    Catalogue,
    checked_tag,
    description_of,
    list_readable,
)
from service.snapshots.take.requests import snapshot_of
from service.storage.records import checked_name

TAGS: list[str | Enum] = ["snapshots"]
REQUEST = "request"

SnapshotName = Annotated[
    str, Path(description="Its id, a tag (the newest that has it), or `newest`: but for what restores saved.")
]
Tag = Annotated[str | None, Query(description="A name for it.", json_schema_extra={"pattern": TAG_PATTERN})]

_EXAMPLES: dict[str, Example] = {
    "rollback": Example(
        summary="The newest snapshot, and learn again what came after it",
        value={"snapshot": "newest", "replay_log": True},
    ),
    "from-now": Example(
        summary="The newest snapshot, and go on from now", value={"snapshot": "newest", "replay_log": False}
    ),
}
_PROBLEMS = {
    "_404": "There is no such model or snapshot.",
    "_409": "The snapshot's file is torn or altered, or the name that of an alias where a model is needed.",
    "_422": "The request is not valid; `errors` says where and why.",
    "_503": "The snapshot store, Redis or a learner is away.",
}


class SnapshotDescription(BaseModel):
    """A saved state of a model."""

    id: str = Field(description="Sorts by the order of writing.")
    model: str = Field(description="The model that it is of.")
    tags: list[str] = Field(description="Names given to it; a tagged snapshot is never deleted.")
    time: str = Field(description="When the state was copied; RFC 3339, UTC.")
    reason: str = Field(description="Why it was taken: `schedule`, `shutdown`, `request`, ...")
    revision: str = Field(description="The state that it is a copy of.")
    applied: str = Field(description="The last log entry that it has learned.")
    applied_number: int = Field(description="Examples of the log that it has learned.")
    t: int = Field(description="Completed rounds.")
    features_seen: int = Field(description="Hashed features that it has met.")
    nonzero: int = Field(description="Features whose weight is not 0.")
    density: float = Field(description="Share of the features seen whose weight is not 0.")
    bytes: int = Field(description="Size of its file.")
    fingerprint: str = Field(description="Of the hash contract.")
    config: dict[str, Any] = Field(description="The model's configuration at that time.")
    evaluation: dict[str, Any] | None = Field(description="The figures at that time, where there were some.")


class SnapshotList(BaseModel):
    """The snapshots of a model."""

    snapshots: list[SnapshotDescription] = Field(description="Oldest first.")
    damaged: list[str] = Field(description="What is wrong with files that cannot be read.")


class RestoreRequest(BaseModel):
    """The snapshot to restore, and how."""

    model_config = ConfigDict(extra="forbid", strict=True)

    snapshot: str = Field(
        description="Its id, a tag (the newest that has it), or `newest`: but for what restores saved.",
        min_length=1,
        max_length=256,
    )
    replay_log: bool = Field(
        description="Whether what came after the snapshot is learned again; else learning goes on from now."
    )
    hyper: dict[str, Any] | None = Field(
        None, description="Hyperparameters of the same family, with which the log is learned again."
    )


class RestoreReply(BaseModel):
    """What was restored."""

    model: str = Field(description="The model.")
    snapshot: str = Field(description="The id of the snapshot.")
    before: str | None = Field(
        description="The snapshot of what was replaced; null: there was no model, or no complete state."
    )
    t: int = Field(description="Completed rounds at the switch.")
    replayed: int = Field(description="Examples that were learned again before the switch.")
    seconds: float = Field(description="Time that it took.")
    revision: str = Field(
        description="The model's revision after the switch; the process that answers has it, others follow."
        " Empty if it could not be read."
    )


_parse_restore = TypeAdapter(RestoreRequest).validate_json


def add_snapshot_routes(
    app: FastAPI, services: Services, bodies: BodyReader, settings: LimitSettings
) -> None:
    app.router.routes.append(_restore_route(services, bodies, settings))

    @app.get("/models/{name}/snapshots", tags=TAGS, responses=problems(**_PROBLEMS), **READ.declared)
    async def list_snapshots(name: ModelName) -> SnapshotList:
        """List the snapshots of a model.

        Also of one that was deleted.
        """
        model = await services.aliases.named(checked_name(name))
        found, damaged = await asyncio.to_thread(lambda: list_readable(services.snapshots.of(model)))
        if not found and not damaged:
            await services.aliases.open(name)
        return SnapshotList(snapshots=[SnapshotDescription(**one) for one in found], damaged=damaged)

    @app.get(
        "/models/{name}/snapshots/{snapshot}", tags=TAGS, responses=problems(**_PROBLEMS), **READ.declared
    )
    async def describe_snapshot(name: ModelName, snapshot: SnapshotName) -> SnapshotDescription:
        """Describe a snapshot.

        By its id, a tag or `newest`.
        """

        def find(catalogue: Catalogue) -> SnapshotDescription:
            entry = catalogue.find(snapshot)
            return SnapshotDescription(**description_of(entry, catalogue.header(entry)))

        model = await services.aliases.named(checked_name(name))
        return await asyncio.to_thread(lambda: find(services.snapshots.of(model)))

    @app.post(
        "/models/{name}/snapshots",
        tags=TAGS,
        status_code=201,
        responses=problems(**_PROBLEMS | AT_ITS_LIMIT),
        **ADMIN.declared,
    )
    async def take_snapshot(name: ModelName, tag: Tag = None) -> SnapshotDescription:
        """Take a snapshot.

        The reply is sent when it is in the store. The learner takes one at a time; requests that come
        meanwhile share the next.
        """
        if tag is not None:
            checked_tag(tag)
        taken = await snapshot_of(services.models, services.aliases, checked_name(name), REQUEST, tag)
        return SnapshotDescription(**taken)


def _restore_route(services: Services, bodies: BodyReader, settings: LimitSettings) -> RawRoute:
    async def handler(call: RawRequest) -> RawReply:
        name = checked_name(call.model)
        asked = call.parsed(_parse_restore)
        hyper = None if asked.hyper is None else _hyper_of(asked.hyper)
        if hyper is not None and not asked.replay_log:
            raise InvalidInput(("hyper",), "needs replay_log: true, as nothing else would be learned with it")
        plan = RestorePlan(name, asked.snapshot, asked.replay_log, hyper)
        restored = await restore_model(services.models, services.aliases, services.snapshots, plan)
        return RawReply(200, json.dumps(restored.to_json()).encode())

    return RawRoute(
        "POST",
        "/models/{name}/restore",
        _restore_snapshot,
        handler,
        bodies=bodies,
        max_bytes=settings.max_body_bytes,
        tags=TAGS,
        access=ADMIN,
        responses=problems(
            **_PROBLEMS
            | OF_A_BODY
            | {
                "_409": "The name is that of an alias, the snapshot does not fit the model, the log does not"
                " reach back to it, its file is damaged, or another restore came first. Nothing was changed.",
                "_507": "Redis has no room for a second state.",
            }
        ),
    )


def _hyper_of(body: dict[str, Any]) -> Hyperparameters:
    return ModelConfig.from_json({"hyper": body}).hyper


async def _restore_snapshot(
    name: ModelName, body: Annotated[RestoreRequest, Body(openapi_examples=_EXAMPLES)]
) -> RestoreReply:
    """Restore a snapshot.

    It becomes the model's state in one step, while requests continue. What is there is saved in a snapshot of
    its own first. A model that does not exist is created.
    """
    raise NotImplementedError
