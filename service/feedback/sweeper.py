"""Closes impressions whose windows have ended. Any number of processes may; each closes once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from redis.exceptions import ResponseError

from service.feedback.store import PendingStore, Swept
from service.models.config.model import checked_config
from service.models.replica import ModelGone, read_meta
from service.settings.groups import LogSettings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import ModelKeys
from service.storage.topology import Topology

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
NEXT_SWEEP_SECONDS = 0.02  # if the last one left some that are due
MAX_PER_SWEEP = 500  # takes the server a few milliseconds


async def sweep_pending(
    topology: Topology,
    model: str,
    settings: LogSettings,
    show: Callable[[Swept, PendingStore], None],
    logged: asyncio.Event | None = None,
) -> None:
    """Sweeps until the model is deleted; `show` is called with the result of each sweep. After the first
    sweep waits until `logged` is set, if it is given: that the model has logged predictions.

    Raises ContractMismatch.

    Sweeping goes on while the server is nearly full: a sweep removes what it appends, and the learner trims
    the log. A full backlog stops it until the next second.
    """
    channel = Channel(topology, shared="polls")
    pending: PendingStore | None = None
    pause = SWEEP_SECONDS
    try:
        while True:
            await asyncio.sleep(pause)
            pause = SWEEP_SECONDS
            if pending is not None and logged is not None:
                await logged.wait()
            try:
                pending = pending or await _open(channel, model, settings)
                swept = await pending.sweep(channel, MAX_PER_SWEEP)
            except ModelGone:
                return
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                level = logging.WARNING if isinstance(failure, ResponseError) else logging.DEBUG
                log.log(level, "pending predictions of %s are not swept: %s", model, failure)
                continue
            show(swept, pending)
            pause = NEXT_SWEEP_SECONDS if swept.more else SWEEP_SECONDS
    finally:
        await channel.close()


async def _open(channel: Channel, model: str, settings: LogSettings) -> PendingStore:
    meta = await read_meta(channel, model)
    config = checked_config(model, meta).feedback
    return PendingStore(ModelKeys(model, meta.incarnation), config, settings, meta.feedback)
