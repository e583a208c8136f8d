"""How many labels and impressions there were for ids that nobody knew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from redis.exceptions import ResponseError

from service.models.registry import OpenModel
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, NotSent
from service.storage.keys import ModelKeys
from service.storage.scripts.feedback import count_unknown
from service.storage.topology import Topology

log = logging.getLogger(__name__)

TELL_EVERY_SECONDS = 1.0


class UnknownIds:
    """Each counts once, in the model that was asked first. Only who has asked all that an alias may mean can
    say that nobody knows it, so the scripts of the single models do not count it. No request waits for that.
    """

    def __init__(self, topology: Topology) -> None:
        self._channel = Channel(topology)
        self._untold: dict[ModelKeys, int] = {}

    def add(self, model: OpenModel, statuses: Sequence[str]) -> None:
        """Those that read "unknown"."""
        keys = model.mirror.replica.keys
        if number := statuses.count("unknown"):
            self._untold[keys] = self._untold.get(keys, 0) + number

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY_SECONDS)
            await self.tell()

    async def tell(self) -> None:
        """Adds them up in Redis, up to the first failure to reach it. What may have been added is not added
        again: rather one is missed than counted twice.
        """
        for keys in list(self._untold):
            number = self._untold.pop(keys)
            try:
                await count_unknown(self._channel, keys, number)
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                log.debug("unknown ids of %s are not counted now: %s", keys.model, failure)
                if isinstance(failure, NotSent | ResponseError):
                    self._untold[keys] = self._untold.get(keys, 0) + number
                if isinstance(failure, CONNECTION_FAILURES):
                    return  # those of other models would each wait as long

    async def close(self) -> None:
        await self.tell()
        await self._channel.close()
