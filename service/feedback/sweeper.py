"""Closing what is due, whoever does it: any number of processes may, each impression is closed once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from redis.exceptions import ResponseError

from service.feedback.store import Swept, Waiting
from service.models.config.model import checked_config
from service.models.replica import ModelGone, read_meta
from service.settings.groups import LogSettings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.keys import ModelKeys
from service.storage.topology import Topology

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
AGAIN_SECONDS = 0.02
MAX_PER_SWEEP = 500  # takes the server a few milliseconds


async def sweep_pending(
    topology: Topology, model: str, settings: LogSettings, show: Callable[[Swept, Waiting], None]
) -> None:
    """Sweeps until the model is gone; `show` is told what each left. Raises ContractMismatch.

    Also while the server is nearly full: a sweep takes away what it appends, and the learner trims the log.
    A full backlog ends it until the next second.
    """
    channel = Channel(topology)
    waiting: Waiting | None = None
    pause = EVERY_SECONDS
    try:
        while True:
            await asyncio.sleep(pause)
            pause = EVERY_SECONDS
            try:
                waiting = waiting or await _open(channel, model, settings)
                swept = await waiting.sweep(channel, MAX_PER_SWEEP)
            except ModelGone:
                return
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                level = logging.WARNING if isinstance(failure, ResponseError) else logging.DEBUG
                log.log(level, "what waits of %s is not closed: %s", model, failure)
                continue
            show(swept, waiting)
            pause = AGAIN_SECONDS if swept.more else EVERY_SECONDS
    finally:
        await channel.close()


async def _open(channel: Channel, model: str, settings: LogSettings) -> Waiting:
    meta = await read_meta(channel, model)
    config = checked_config(model, meta).feedback
    return Waiting(ModelKeys(model, meta.incarnation), config, settings, meta.feedback)
