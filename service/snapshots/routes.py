"""/models/{name}/snapshots: what there is, and one more."""

from __future__ import annotations

import asyncio
import json
from enum import Enum
from typing import Annotated, Any

from fastapi import Body, FastAPI, Path, Query
from fastapi.openapi.models import Example
from pydantic import TypeAdapter

from model_core.errors import InvalidInput
from model_core.hyperparameters import Hyperparameters
from service.backend import Backend
from service.bodies import BodyReader
from service.model_config import ModelConfig
from service.model_names import ModelName, checked_name
from service.openapi import AT_ITS_LIMIT, OF_A_BODY, problems
from service.raw_routes import RawReply, RawRequest, RawRoute
from service.redis_keys import ModelKeys
from service.repeated_names import refuse_repeated_names
from service.replica import read_meta
from service.security.access import ADMIN, READ
from service.settings import Settings
from service.snapshots.catalogue import TAG_PATTERN, Catalogue, checked_tag
from service.snapshots.description import described, listed
from service.snapshots.requests import request_snapshot
from service.snapshots.restore_plan import RestorePlan
from service.snapshots.restoring import restore
from service.snapshots.schemas import RestoreReply, RestoreRequest, SnapshotDescription, SnapshotList

_parse_restore = TypeAdapter(RestoreRequest).validate_json
TAGS: list[str | Enum] = ["snapshots"]
REQUEST = "request"

SnapshotName = Annotated[
    str, Path(description="Its id, a tag (the newest that has it), or `newest`: but for what restores saved.")
]
Tag = Annotated[str | None, Query(json_schema_extra={"pattern": TAG_PATTERN})]

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


def add_snapshot_routes(app: FastAPI, backend: Backend, bodies: BodyReader, settings: Settings) -> None:
    app.router.routes.append(_restore_route(backend, bodies, settings))

    @app.get("/models/{name}/snapshots", tags=TAGS, responses=problems(**_PROBLEMS), **READ.declared)
    async def list_snapshots(name: ModelName) -> SnapshotList:
        """The snapshots of a model, also of one that was deleted."""
        model = await backend.aliases.named(checked_name(name))
        found, damaged = await asyncio.to_thread(lambda: listed(backend.snapshots.of(model)))
        if not found and not damaged:
            await backend.aliases.open(name)
        return SnapshotList(snapshots=[SnapshotDescription(**one) for one in found], damaged=damaged)

    @app.get(
        "/models/{name}/snapshots/{snapshot}", tags=TAGS, responses=problems(**_PROBLEMS), **READ.declared
    )
    async def describe_snapshot(name: ModelName, snapshot: SnapshotName) -> SnapshotDescription:
        """One snapshot."""

        def find(catalogue: Catalogue) -> SnapshotDescription:
            entry = catalogue.find(snapshot)
            return SnapshotDescription(**described(entry, catalogue.header(entry)))

        model = await backend.aliases.named(checked_name(name))
        return await asyncio.to_thread(lambda: find(backend.snapshots.of(model)))

    @app.post(
        "/models/{name}/snapshots",
        tags=TAGS,
        status_code=201,
        responses=problems(**_PROBLEMS | AT_ITS_LIMIT),
        **ADMIN.declared,
    )
    async def take_snapshot(name: ModelName, tag: Tag = None) -> SnapshotDescription:
        """Take a snapshot now, and answer when it is in the store.

        The learner takes one at a time; requests that come meanwhile share the next.
        """
        if tag is not None:
            checked_tag(tag)
        await backend.aliases.refuse(checked_name(name))
        await backend.models.get(name)
        async with backend.models.channel() as channel:
            keys = ModelKeys(name, (await read_meta(channel, name)).incarnation)
            return SnapshotDescription(**await request_snapshot(channel, keys, REQUEST, tag))


def _restore_route(backend: Backend, bodies: BodyReader, settings: Settings) -> RawRoute:
    async def handler(call: RawRequest) -> RawReply:
        name = checked_name(call.model)
        asked = _parse_restore(call.body)
        refuse_repeated_names(call.body)
        hyper = None if asked.hyper is None else _hyper_of(asked.hyper)
        if hyper is not None and not asked.replay_log:
            raise InvalidInput(("hyper",), "needs replay_log: true, as nothing else would be learned with it")
        await backend.aliases.refuse(name)
        plan = RestorePlan(name, asked.snapshot, asked.replay_log, hyper)
        async with backend.models.channel() as channel:
            restored = await restore(channel, settings, backend.snapshots, plan)
        return RawReply(200, json.dumps(restored.to_json()).encode())

    return RawRoute(
        "POST",
        "/models/{name}/restore",
        _restore,
        handler,
        bodies=bodies,
        most_bytes=settings.max_body_bytes,
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


async def _restore(
    name: ModelName, body: Annotated[RestoreRequest, Body(openapi_examples=_EXAMPLES)]
) -> RestoreReply:
    """Make a snapshot the model's state again, in one step while requests go on.

    What is there is kept in a snapshot of its own first. A model that is not there is created.
    """
    raise NotImplementedError
