"""Counts labels and impressions for ids that no model knows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from redis.exceptions import ResponseError

from service.models.registry import OpenModel
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, NotSent
from service.storage.records import ModelKeys
from service.storage.scripts.feedback import count_unknown
from service.storage.topology import Topology

log = logging.getLogger(__name__)

REPORT_EVERY_SECONDS = 1.0


class UnknownIds:
    """Each id counts once, for the model that was asked first. That no model knows it is certain only after
    all models of an alias were asked, so the scripts of single models do not count it. No request waits for
    the count.
    """

    def __init__(self, topology: Topology) -> None:
        self._channel = Channel(topology, shared="polls")
        self._unreported: dict[ModelKeys, int] = {}

    def add(self, model: OpenModel, statuses: Sequence[str]) -> None:
        """Counts the statuses that are "unknown"."""
        keys = model.mirror.replica.keys
        if number := statuses.count("unknown"):
            self._unreported[keys] = self._unreported.get(keys, 0) + number

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_SECONDS)
            await self.report()

    async def report(self) -> None:
        """Adds the counts to those in Redis, until the first failure to reach it. A count that may have been
        added is not added again: an id is rather missed than counted twice.
        """
        for keys in list(self._unreported):
            number = self._unreported.pop(keys)
            try:
                await count_unknown(self._channel, keys, number)
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                log.debug("unknown ids of %s are not counted now: %s", keys.model, failure)
                if isinstance(failure, NotSent | ResponseError):
                    self._unreported[keys] = self._unreported.get(keys, 0) + number
                if isinstance(failure, CONNECTION_FAILURES):
                    return  # each further model would wait as long

    async def close(self) -> None:
        await self.report()
        await self._channel.close()
