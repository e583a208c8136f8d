"""Requests for a snapshot: a list in Redis, from which the learner of the model answers.

A request stays in the list until it is answered, so that the next learner finds it if this one dies. It gets
a state that is not older than the request; requests that arrive while a snapshot is being written share the
next one.
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

from service.errors import (
    NoLearner,
    ServerFull,
    ServiceError,
    SnapshotFailed,
    StateUnavailable,
    StoreUnavailable,
)
from service.models.aliases import Aliases
from service.models.registry import Models
from service.models.replica import read_meta
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, is_out_of_memory, words_of
from service.storage.errors import FULL as FULL_SERVER
from service.storage.records import ModelKeys
from service.storage.scripts.lists import answer_request, push
from service.storage.scripts.log import try_write
from service.storage.topology import Topology

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 120.0
TAKE_OVER_SECONDS = 3.0
RETENTION_SECONDS = 300
MAX_PER_READ = 1000
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


async def snapshot_of(
    models: Models, aliases: Aliases, name: str, reason: str, tag: str | None
) -> dict[str, Any]:
    """Have the learner of a model take a snapshot, as `request_snapshot` does. Raises ServiceError."""
    await aliases.refuse(name)
    await models.get(name)
    async with models.channel() as channel:
        keys = ModelKeys(name, (await read_meta(channel, name)).incarnation)
        return await request_snapshot(channel, keys, reason, tag)


async def request_snapshot(
    channel: Channel, keys: ModelKeys, reason: str, tag: str | None = None
) -> dict[str, Any]:
    """Have the learner take a snapshot; return its description once it is in the store.

    Raises NoLearner, or ServerFull or StateUnavailable if that is why none answers, StoreUnavailable,
    SnapshotFailed, and what Channel.call raises.
    """
    request = SnapshotRequest(secrets.token_hex(8), reason, tag)
    await push(channel, keys.snapshot_requests, request.packed(), RETENTION_SECONDS)
    block_seconds = min(_BLOCK_SECONDS, channel.block_seconds)
    led = time.monotonic()
    give_up = led + TIMEOUT_SECONDS
    while time.monotonic() < min(give_up, led + TAKE_OVER_SECONDS):
        try:
            found = await channel.call("BLPOP", keys.snapshot_reply(request.id), block_seconds)
            if found is None and await channel.call("EXISTS", keys.lease):
                led = time.monotonic()
        except CONNECTION_FAILURES:  # the learner goes on, so the server is tried again
            await asyncio.sleep(_BLOCK_SECONDS)
            led = time.monotonic()
            continue
        except ResponseError as refusal:
            raise _refused(refusal) from refusal
        if found is not None:
            return _description_in(json.loads(found[1]))
    await channel.call("LREM", keys.snapshot_requests, 0, request.packed())
    try:
        await try_write(channel, keys.snapshot_reply(request.id))
    except ResponseError as refusal:
        raise _refused(refusal) from refusal
    raise NoLearner(keys.model)


def _refused(refusal: ResponseError) -> ServiceError:
    """The reason why no learner leads, or can answer, on a server that refuses writes."""
    if is_out_of_memory(refusal):
        return ServerFull(FULL_SERVER)
    return StateUnavailable(f"Redis refuses writes, so a learner cannot answer: {words_of(refusal)}")


async def pending_requests(channel: Channel, keys: ModelKeys) -> list[SnapshotRequest]:
    """Read the requests; they stay in the list until `answer` removes them."""
    found = await channel.call("LRANGE", keys.snapshot_requests, 0, MAX_PER_READ - 1)
    return [SnapshotRequest.parse(packed) for packed in found]


async def answer(channel: Channel, keys: ModelKeys, request: SnapshotRequest, reply: dict[str, Any]) -> None:
    """Push the reply and remove the request. Does nothing if it was answered before or given up."""
    lists = (keys.snapshot_requests, keys.snapshot_reply(request.id))
    await answer_request(channel, *lists, request.packed(), json.dumps(reply), RETENTION_SECONDS)


def failed(failure: BaseException) -> dict[str, Any]:
    """Build the reply for a snapshot that could not be made."""
    return {"failure": detail_of(failure), "reason": reason_of(failure)}


def _description_in(reply: dict[str, Any]) -> dict[str, Any]:
    """Return the description in a reply. Raises SnapshotFailed, StoreUnavailable."""
    if "failure" not in reply:
        return reply
    if reply["reason"] == ERROR:
        raise SnapshotFailed(reply["failure"])
    raise StoreUnavailable(reply["failure"])


class RequestQueue:
    """The learner's view of the list: pending requests, and replies that are not yet delivered."""

    def __init__(self, topology: Topology) -> None:
        self._replies = Channel(topology, shared="polls")
        self._pending: list[SnapshotRequest] = []
        self._in_hand: set[str] = set()  # ids of requests that are being answered, or were
        self._undelivered: dict[str, dict[str, Any]] = {}  # replies by the ids of their requests

    async def refresh(self, channel: Channel, keys: ModelKeys) -> None:
        """Read the pending requests, and deliver replies that failed before.

        Raises what Channel.call raises.
        """
        stored = await pending_requests(channel, keys)
        ids = {request.id for request in stored}
        self._in_hand &= ids
        self._undelivered = {id_: reply for id_, reply in self._undelivered.items() if id_ in ids}
        self._pending = [request for request in stored if request.id not in self._in_hand]
        for request in stored:
            if request.id in self._undelivered:
                await self._deliver(channel, keys, request, self._undelivered.pop(request.id))

    @property
    def any(self) -> bool:
        """Return whether there were requests or undelivered replies at the last refresh."""
        return bool(self._pending or self._in_hand or self._undelivered)

    @property
    def reason(self) -> str:
        """The reasons of the pending requests; empty if there are none."""
        return ", ".join(sorted({request.reason for request in self._pending}))

    def take(self) -> list[SnapshotRequest]:
        """Take over the pending requests, which the caller then answers."""
        taken, self._pending = self._pending, []
        self._in_hand.update(request.id for request in taken)
        return taken

    async def answer(self, keys: ModelKeys, asked: Sequence[SnapshotRequest], reply: dict[str, Any]) -> None:
        """Deliver the reply; where the server is full or away, a later `refresh` delivers it."""
        for request in asked:
            await self._deliver(self._replies, keys, request, reply)

    async def _deliver(
        self, channel: Channel, keys: ModelKeys, request: SnapshotRequest, reply: dict[str, Any]
    ) -> None:
        try:
            await answer(channel, keys, request, reply)
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            self._undelivered[request.id] = reply
            log.warning("the reply to a snapshot request of %s is not delivered yet: %s", keys.model, failure)

    async def close(self) -> None:
        await self._replies.close()


def reason_of(failure: BaseException) -> str:
    """Return one of FAILURES; an unexpected exception is an "error"."""
    if not isinstance(failure, ServiceError):
        return ERROR
    cause = failure.__cause__
    return FULL if isinstance(cause, OSError) and cause.errno in _FULL else STORE


def detail_of(failure: BaseException) -> str:
    if isinstance(failure, ServiceError):
        return failure.detail
    return f"The snapshot could not be made: {type(failure).__name__}: {failure}"
