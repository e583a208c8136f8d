"""Asking the learner for a snapshot, through Redis: whoever learns the model finds the request there.

A request is answered once. It gets a state not older than the request; requests that come while a snapshot is
being written share the one after it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

from service.errors import ServiceError
from service.redis_client import CONNECTION_FAILURES, Channel, push
from service.redis_keys import ModelKeys
from service.snapshots.errors import StoreUnavailable

PATIENCE_SECONDS = 120.0
TAKE_OVER_SECONDS = 3.0
KEPT_SECONDS = 300
_BLOCK_SECONDS = 0.2


class NoLearner(ServiceError):
    status = 503
    title = "No learner"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"No learner of model {model!r} took the snapshot: is one running, and does it learn?",
            headers={"Retry-After": "5"},
        )


@dataclass(frozen=True)
class SnapshotRequest:
    id: str
    reason: str
    tag: str | None

    def packed(self) -> str:
        return json.dumps([self.id, self.reason, self.tag])

    @classmethod
    def parse(cls, packed: bytes) -> SnapshotRequest:
        return cls(*json.loads(packed))


async def request_snapshot(
    channel: Channel, keys: ModelKeys, reason: str, tag: str | None = None
) -> dict[str, Any]:
    """Its description, once it is in the store. Raises NoLearner, StoreUnavailable, and what Channel.call
    raises.
    """
    request = SnapshotRequest(secrets.token_hex(8), reason, tag)
    await push(channel, keys.snapshot_requests, request.packed(), KEPT_SECONDS)
    led = await channel.call("EXISTS", keys.lease)
    give_up = time.monotonic() + (PATIENCE_SECONDS if led else TAKE_OVER_SECONDS)
    while time.monotonic() < give_up:
        try:
            found = await channel.call("BLPOP", keys.snapshot_reply(request.id), _BLOCK_SECONDS)
        except CONNECTION_FAILURES:  # the learner goes on, so it is worth waiting for the server
            await asyncio.sleep(_BLOCK_SECONDS)
            continue
        if found is not None:
            reply: dict[str, Any] = json.loads(found[1])
            if "failure" in reply:
                raise StoreUnavailable(reply["failure"])
            return reply
    await channel.call("LREM", keys.snapshot_requests, 0, request.packed())
    raise NoLearner(keys.model)


async def waiting_requests(channel: Channel, keys: ModelKeys) -> list[SnapshotRequest]:
    found = await channel.call("LPOP", keys.snapshot_requests, 1000)
    return [SnapshotRequest.parse(packed) for packed in found or ()]


async def answer(channel: Channel, keys: ModelKeys, request: SnapshotRequest, reply: dict[str, Any]) -> None:
    await push(channel, keys.snapshot_reply(request.id), json.dumps(reply), KEPT_SECONDS)
