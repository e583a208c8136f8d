"""The lease of one model. It only avoids duplicate work: the compare-and-set of a commit decides which
learner is right.
"""

from __future__ import annotations

import logging
import secrets
import time

from redis.exceptions import ResponseError

from service.runtime.tasks import pause
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.scripts.lease import release, take
from service.storage.topology import Topology

log = logging.getLogger(__name__)


def new_holder() -> str:
    """Return a name under which no other process holds leases."""
    return secrets.token_hex(8)


class Lease:
    """A key in Redis with an expiry, acquired and then renewed every third of its lifetime by `maintain`.

    `holder`: under which name. It is acquired at once if the name holds it already, so a process that is
    given the name of one that has ended need not await the expiry.
    """

    def __init__(self, topology: Topology, key: str, seconds: float, holder: str) -> None:
        self._channel = Channel(topology, shared="polls")
        self._key = key
        self._seconds = seconds
        self._holder = holder
        self.held_until = 0.0
        """The time (time.monotonic()) until which it is valid, counted from before the request was sent: it
        never lasts longer here than on the server.
        """

    async def maintain(self) -> None:
        """Acquire the lease as soon as it is free, and renew it; never returns."""
        while True:
            await self._acquire()
            held = time.monotonic() < self.held_until
            await pause(self._seconds / 3 if held else min(self._seconds / 10, 0.25))

    async def _acquire(self) -> None:
        sent = time.monotonic()
        try:
            taken = await take(self._channel, self._key, self._holder, round(self._seconds * 1000))
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            log.debug("lease %s not renewed: %s", self._key, failure)
            return
        self.held_until = sent + self._seconds if taken else 0.0

    async def release(self) -> None:
        self.held_until = 0.0
        try:
            await release(self._channel, self._key, self._holder)
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            log.debug("lease %s not released, it will expire: %s", self._key, failure)
        await self._channel.close()
