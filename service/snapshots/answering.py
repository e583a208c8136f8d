"""The requests for snapshots of one learner's model: read, taken in hand together, answered."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from service.redis_client import CONNECTION_FAILURES, Channel
from service.redis_keys import ModelKeys
from service.snapshots.requests import SnapshotRequest, answer, waiting_requests

log = logging.getLogger(__name__)


class Answering:
    """A request stays in its list until it is answered: a learner that dies leaves it to the next."""

    def __init__(self, client: Redis) -> None:
        self._replies = Channel(client)
        self._waiting: list[SnapshotRequest] = []
        self._in_hand: set[str] = set()  # ids of requests that are being answered, or were
        self._untold: dict[str, dict[str, Any]] = {}  # by the ids of requests: what they could not be told

    async def look(self, channel: Channel, keys: ModelKeys) -> None:
        """Tells those who could not be told. Raises what Channel.call raises."""
        asking = await waiting_requests(channel, keys)
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
