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
from service.storage.records import ModelKeys
from service.storage.scripts.log import Lag, read_lag
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
    def of(cls, lag: Lag) -> LogLag:
        waiting = lag.appended - lag.applied
        in_log = max(lag.appended - lag.first_number if lag.first_number >= 0 else 0, waiting)
        entries = lag.log_entries * waiting / in_log if in_log else 0.0
        return cls(lag.log_entries, waiting, entries, lag.oldest_ms / 1000)


async def watch_log(topology: Topology, model: str, show: Callable[[LogLag], None]) -> None:
    """Shows the lag until the model is gone."""
    channel = Channel(topology)
    try:
        keys = None
        while True:
            await asyncio.sleep(LAG_POLL_SECONDS)
            try:
                keys = keys or ModelKeys(model, (await read_meta(channel, model)).incarnation)
                show(LogLag.of(await read_lag(channel, keys)))
            except ModelGone:
                return
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                log.debug("no look at the log of %s: %s", model, failure)
    finally:
        await channel.close()
