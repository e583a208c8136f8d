"""The lag of a learner behind its log, and its other work: polled, also while it learns nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from redis.exceptions import ResponseError

from service.models.replica import ModelGone, read_meta
from service.runtime.tasks import pause
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import LogId, ModelKeys
from service.storage.scripts.log import Lag, read_lag
from service.storage.streams import Streams
from service.storage.topology import Topology

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LogLag:
    """The backlog in examples, in seconds since the oldest was appended, in entries, and in bytes.

    The log does not number its entries: `entries` assumes that those of the backlog are of average size.
    """

    log_entries: int
    examples: int
    entries: float
    seconds: float
    bytes: int

    @classmethod
    def of(cls, lag: Lag) -> LogLag:
        backlog = lag.appended - lag.applied
        in_log = max(lag.appended - lag.first_number if lag.first_number >= 0 else 0, backlog)
        entries = lag.log_entries * backlog / in_log if in_log else 0.0
        return cls(lag.log_entries, backlog, entries, lag.oldest_ms / 1000, lag.backlog_bytes)


NO_LAG = LogLag(0, 0, 0.0, 0.0, 0)


async def lag_of(channel: Channel, keys: ModelKeys) -> LogLag:
    """Read the lag of a model behind its log, or of a challenger behind its champion.

    Raises what Channel.call raises.
    """
    found = await read_lag(channel, keys)
    if found.follows is None:
        return LogLag.of(found)
    champion = await channel.call(
        "HMGET", found.follows.keys.meta, "incarnation", "applied_number", "applied"
    )
    if champion[0] is None or champion[0].decode() != found.follows.incarnation:
        return NO_LAG
    return behind_champion(found.applied, found.applied_entry, int(champion[1]), LogId.parse(champion[2]))


def behind_champion(number: int, applied: LogId, champion_number: int, champion_applied: LogId) -> LogLag:
    """The seconds are those between the entries that they have learned last."""
    examples = max(0, champion_number - number)
    milliseconds = max(0, champion_applied.milliseconds - applied.milliseconds) if examples else 0
    return LogLag(0, examples, 0.0, milliseconds / 1000, 0)


async def watch_log(topology: Topology, model: str, show: Callable[[Lag], None]) -> None:
    """Calls `show` with what was read, several times a second or, with many models, once, until the model is
    deleted.
    """
    channel = Channel(topology, shared="polls")
    try:
        keys = None
        while True:
            await pause(topology.only(Streams).idle_seconds)
            try:
                keys = keys or ModelKeys(model, (await read_meta(channel, model)).incarnation)
                show(await read_lag(channel, keys))
            except ModelGone:
                return
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                log.debug("the lag of %s is not known: %s", model, failure)
    finally:
        await channel.close()
