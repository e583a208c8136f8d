"""/models/{name}/snapshots: what there is, and one more."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Annotated

from fastapi import FastAPI, Path, Query

from service.backend import Backend
from service.openapi import problems
from service.redis_keys import ModelKeys
from service.replica import read_meta
from service.routes import ModelName, known_name
from service.snapshots.catalogue import TAG_PATTERN, Catalogue, checked_tag
from service.snapshots.description import described, listed
from service.snapshots.requests import request_snapshot
from service.snapshots.schemas import SnapshotDescription, SnapshotList

TAGS: list[str | Enum] = ["snapshots"]
REQUEST = "request"

SnapshotName = Annotated[str, Path(description="Its id, a tag (the newest that has it), or `newest`.")]
Tag = Annotated[str | None, Query(json_schema_extra={"pattern": TAG_PATTERN})]

_PROBLEMS = {
    "_404": "There is no such model or snapshot.",
    "_409": "The snapshot's file is torn or altered.",
    "_422": "The request is not valid; `errors` says where and why.",
    "_503": "The snapshot store, Redis or a learner is away.",
}


def add_snapshot_routes(app: FastAPI, backend: Backend) -> None:
    @app.get("/models/{name}/snapshots", tags=TAGS, responses=problems(**_PROBLEMS))
    async def list_snapshots(name: ModelName) -> SnapshotList:
        """The snapshots of a model, also of one that was deleted."""
        name = known_name(name)
        found, damaged = await asyncio.to_thread(lambda: listed(backend.snapshots.of(name)))
        if not found and not damaged:
            await backend.models.get(name)
        return SnapshotList(snapshots=[SnapshotDescription(**one) for one in found], damaged=damaged)

    @app.get("/models/{name}/snapshots/{snapshot}", tags=TAGS, responses=problems(**_PROBLEMS))
    async def describe_snapshot(name: ModelName, snapshot: SnapshotName) -> SnapshotDescription:
        """One snapshot."""

        def find(catalogue: Catalogue) -> SnapshotDescription:
            entry = catalogue.find(snapshot)
            return SnapshotDescription(**described(entry, catalogue.header(entry)))

        name = known_name(name)
        return await asyncio.to_thread(lambda: find(backend.snapshots.of(name)))

    @app.post("/models/{name}/snapshots", tags=TAGS, status_code=201, responses=problems(**_PROBLEMS))
    async def take_snapshot(name: ModelName, tag: Tag = None) -> SnapshotDescription:
        """Take a snapshot now, and answer when it is in the store.

        The learner takes one at a time; requests that come meanwhile share the next.
        """
        if tag is not None:
            checked_tag(tag)
        await backend.models.get(known_name(name))
        async with backend.models.channel() as channel:
            keys = ModelKeys(name, (await read_meta(channel, name)).incarnation)
            return SnapshotDescription(**await request_snapshot(channel, keys, REQUEST, tag))
