"""Asking the learner for a snapshot, through Redis: whoever learns the model finds the request there.

A request stays in the list until it is answered, so that a learner that dies leaves it to the next. It gets a
state not older than the request; requests that come while a snapshot is being written share the one after it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

from service.redis_client import CONNECTION_FAILURES, Channel, push
from service.redis_keys import ModelKeys
from service.snapshots.errors import NoLearner, SnapshotFailed, StoreUnavailable
from service.snapshots.writing import ERROR, detail_of, reason_of

PATIENCE_SECONDS = 120.0
TAKE_OVER_SECONDS = 3.0
KEPT_SECONDS = 300
MOST_AT_ONCE = 1000
_BLOCK_SECONDS = 0.2


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
    """Its description, once it is in the store. Raises NoLearner, StoreUnavailable, SnapshotFailed, and what
    Channel.call raises.
    """
    request = SnapshotRequest(secrets.token_hex(8), reason, tag)
    await push(channel, keys.snapshot_requests, request.packed(), KEPT_SECONDS)
    block_seconds = min(_BLOCK_SECONDS, channel.block_seconds)
    led = time.monotonic()
    give_up = led + PATIENCE_SECONDS
    while time.monotonic() < min(give_up, led + TAKE_OVER_SECONDS):
        try:
            found = await channel.call("BLPOP", keys.snapshot_reply(request.id), block_seconds)
            if found is None and await channel.call("EXISTS", keys.lease):
                led = time.monotonic()
        except CONNECTION_FAILURES:  # the learner goes on, so it is worth waiting for the server
            await asyncio.sleep(_BLOCK_SECONDS)
            led = time.monotonic()
            continue
        if found is not None:
            return _told(json.loads(found[1]))
    await channel.call("LREM", keys.snapshot_requests, 0, request.packed())
    raise NoLearner(keys.model)


async def waiting_requests(channel: Channel, keys: ModelKeys) -> list[SnapshotRequest]:
    """They stay until `answer` removes them."""
    found = await channel.call("LRANGE", keys.snapshot_requests, 0, MOST_AT_ONCE - 1)
    return [SnapshotRequest.parse(packed) for packed in found]


async def answer(channel: Channel, keys: ModelKeys, request: SnapshotRequest, reply: dict[str, Any]) -> None:
    await push(channel, keys.snapshot_reply(request.id), json.dumps(reply), KEPT_SECONDS)
    await channel.call("LREM", keys.snapshot_requests, 0, request.packed())


def failed(failure: BaseException) -> dict[str, Any]:
    """The answer that there is no snapshot."""
    return {"failure": detail_of(failure), "reason": reason_of(failure)}


def _told(reply: dict[str, Any]) -> dict[str, Any]:
    if "failure" not in reply:
        return reply
    if reply["reason"] == ERROR:
        raise SnapshotFailed(reply["failure"])
    raise StoreUnavailable(reply["failure"])
