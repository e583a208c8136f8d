"""How far the learner of a model is behind its log: asked once a second, also while it stands still."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from redis.exceptions import ResponseError

from service.models.replica import ModelGone, read_meta
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.keys import ModelKeys
from service.storage.scripts import read_lag
from service.storage.topology import Topology

log = logging.getLogger(__name__)

LAG_POLL_SECONDS = 1.0


@dataclass(slots=True)
class LogLag:
    """What waits, in examples, in seconds since the oldest was appended, and in entries.

    The log does not number its entries: `entries` supposes that those which wait are as large as the rest.
    """

    log_entries: int
    examples: int
    entries: float
    seconds: float

    @classmethod
    def of(cls, log_entries: int, appended: int, applied: int, first: int, milliseconds: int) -> LogLag:
        """`first`: the dense number of the log's first example, -1 where it is not known."""
        waiting = appended - applied
        in_log = max(appended - first if first >= 0 else 0, waiting)
        entries = log_entries * waiting / in_log if in_log else 0.0
        return cls(log_entries, waiting, entries, milliseconds / 1000)


async def watch_log(topology: Topology, model: str, show: Callable[[LogLag], None]) -> None:
    """Shows the lag until the model is gone."""
    channel = Channel(topology)
    try:
        keys = None
        while True:
            await asyncio.sleep(LAG_POLL_SECONDS)
            try:
                keys = keys or ModelKeys(model, (await read_meta(channel, model)).incarnation)
                show(LogLag.of(*await read_lag(channel, keys.meta, keys.log)))
            except ModelGone:
                return
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                log.debug("no look at the log of %s: %s", model, failure)
    finally:
        await channel.close()
