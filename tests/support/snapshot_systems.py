"""A model that learns in the test's own loop, and what its snapshots hold."""

from __future__ import annotations

from typing import Any

from model_core.examples.batch import ExampleBatch
from model_core.learning.state import ModelState
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from service.snapshots.restore.restore import Restored, RestorePlan, restore
from service.snapshots.store.catalogue import Catalogue, SnapshotStore
from service.snapshots.store.objects import open_store
from service.snapshots.take.requests import request_snapshot
from service.storage.channel import open_channel
from service.storage.records import LogId
from tests.support.system import System, read_log, stored

CONFIG = ModelConfig.from_json({"hyper": {"rate": {"kind": "adaptive"}}, "hashing": {"bits": 18}})


def catalogue(system: System, model: str = "clicks") -> Catalogue:
    return Catalogue(open_store(system.settings.snapshot_store), model)


async def take(system: System, model: OpenModel, tag: str | None = None) -> dict[str, Any]:
    async with open_channel(system.settings) as channel:
        return await request_snapshot(channel, model.mirror.replica.keys, "request", tag)


async def restored(system: System, snapshot: str = "newest", url: str | None = None, **plan: Any) -> Restored:
    settings = system.settings if url is None else system.settings.model_copy(update={"redis_url": url})
    async with open_channel(settings) as channel:
        model = plan.pop("model", "clicks")
        return await restore(channel, SnapshotStore(settings), RestorePlan(model, snapshot, **plan))


async def learned_from(
    system: System, start: ModelState, after: str | LogId, config: ModelConfig = CONFIG
) -> ModelState:
    """What a single pass makes of a state and of the log after an entry."""
    after = LogId.parse(after) if isinstance(after, str) else after
    entries = await read_log(system.topology, await stored(system.topology))
    for entry in entries:
        if entry.id > after:
            config.learn(start, ExampleBatch.from_bytes(entry.records), entry.id.milliseconds)
    return start
