"""The lease of one model, so that two learners seldom work at once; a commit decides which is right."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time

from redis.exceptions import ResponseError

from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.scripts.lease import release, take
from service.storage.topology import Topology

log = logging.getLogger(__name__)


class Lease:
    """Held, renewed every third of its life, or waited for, by a task of its own."""

    def __init__(self, topology: Topology, key: str, seconds: float) -> None:
        self._channel = Channel(topology)
        self._key = key
        self._seconds = seconds
        self._holder = secrets.token_hex(8)
        self._held_until = 0.0

    @property
    def held(self) -> bool:
        """By this process's own clock, which started before the server's did: never later than the server
        says.
        """
        return time.monotonic() < self._held_until

    async def keep(self) -> None:
        """Takes the lease as soon as it is free and renews it, for ever."""
        while True:
            await self._try()
            await asyncio.sleep(self._seconds / 3 if self.held else min(self._seconds / 10, 0.25))

    async def _try(self) -> None:
        asked = time.monotonic()
        try:
            taken = await take(self._channel, self._key, self._holder, round(self._seconds * 1000))
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            log.debug("lease %s not renewed: %s", self._key, failure)
            return
        self._held_until = asked + self._seconds if taken else 0.0

    async def release(self) -> None:
        self._held_until = 0.0
        try:
            await release(self._channel, self._key, self._holder)
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            log.debug("lease %s not released, it will expire: %s", self._key, failure)
        await self._channel.close()
