"""Asking the learner for a snapshot, through Redis: whoever learns the model finds the request there.

A request stays in the list until it is answered, so that a learner that dies leaves it to the next. It gets a
state not older than the request; requests that come while a snapshot is being written share the one after it.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from service.errors import NoLearner, ServiceError, SnapshotFailed, StoreUnavailable
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import ModelKeys
from service.storage.scripts.lists import push
from service.storage.topology import Topology

PATIENCE_SECONDS = 120.0
TAKE_OVER_SECONDS = 3.0
KEPT_SECONDS = 300
MAX_AT_ONCE = 1000
FULL, STORE, STOPPED, ERROR = "full", "store", "stopped", "error"
FAILURES = (FULL, STORE, STOPPED, ERROR)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
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


async def pending_requests(channel: Channel, keys: ModelKeys) -> list[SnapshotRequest]:
    """They stay until `answer` removes them."""
    found = await channel.call("LRANGE", keys.snapshot_requests, 0, MAX_AT_ONCE - 1)
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


log = logging.getLogger(__name__)


class RequestQueue:
    """A request stays in its list until it is answered: a learner that dies leaves it to the next."""

    def __init__(self, topology: Topology) -> None:
        self._replies = Channel(topology)
        self._waiting: list[SnapshotRequest] = []
        self._in_hand: set[str] = set()  # ids of requests that are being answered, or were
        self._untold: dict[str, dict[str, Any]] = {}  # by the ids of requests: what they could not be told

    async def look(self, channel: Channel, keys: ModelKeys) -> None:
        """Tells those who could not be told. Raises what Channel.call raises."""
        asking = await pending_requests(channel, keys)
        ids = {request.id for request in asking}
        self._in_hand &= ids
        self._untold = {id_: reply for id_, reply in self._untold.items() if id_ in ids}
        self._waiting = [request for request in asking if request.id not in self._in_hand]
        for request in asking:
            if request.id in self._untold:
                await self._tell(channel, keys, request, self._untold.pop(request.id))

    @property
    def reason(self) -> str:
        """Why there is to be a snapshot, by those who wait; empty where nobody does."""
        return ", ".join(sorted({request.reason for request in self._waiting}))

    def take(self) -> list[SnapshotRequest]:
        """Those who wait, to be answered from here on."""
        taken, self._waiting = self._waiting, []
        self._in_hand.update(request.id for request in taken)
        return taken

    async def answer(self, keys: ModelKeys, asked: Sequence[SnapshotRequest], reply: dict[str, Any]) -> None:
        """Who cannot be told now, as the server is full or away, is told the same at another `look`."""
        for request in asked:
            await self._tell(self._replies, keys, request, reply)

    async def _tell(
        self, channel: Channel, keys: ModelKeys, request: SnapshotRequest, reply: dict[str, Any]
    ) -> None:
        try:
            await answer(channel, keys, request, reply)
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            self._untold[request.id] = reply
            log.warning("who asked for a snapshot of %s is not told yet: %s", keys.model, failure)

    async def close(self) -> None:
        await self._replies.close()


def reason_of(failure: BaseException) -> str:
    """One of FAILURES: a fault of this service is an "error"."""
    if not isinstance(failure, ServiceError):
        return ERROR
    cause = failure.__cause__
    return FULL if isinstance(cause, OSError) and cause.errno in _FULL else STORE


def detail_of(failure: BaseException) -> str:
    if isinstance(failure, ServiceError):
        return failure.detail
    return f"The snapshot could not be made: {type(failure).__name__}: {failure}"
