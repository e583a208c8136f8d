"""Models that Redis has lost, as after FLUSHALL or a restart without data: neither deleted by a client, nor
created again since.

The report is stored in Redis, so that a process that starts later does not take that server for a new one.
"""

from __future__ import annotations

import logging

from service.models.replica import Replica
from service.storage.channel import Channel
from service.storage.records import deleted_key, lost_key, meta_key

log = logging.getLogger(__name__)

ACCEPTED_SECONDS = 60


def way_back(name: str) -> str:
    """Advice for an operator whose Redis has lost the model."""
    return (
        "Restore the data of Redis or a snapshot (ftrl snapshot restore), or accept the loss: PUT"
        f" /models/{name} creates it untrained, DELETE /models/{name} ends this report."
    )


async def read_loss(channel: Channel, model: str) -> str:
    """The report that a model was lost; empty if there is none, or the model exists. Raises what Channel.call
    raises.
    """
    text: bytes | None = await channel.call("GET", lost_key(model))
    return "" if text is None or await channel.call("EXISTS", meta_key(model)) else text.decode()


class LostModels:
    """The losses that this process knows of. All methods raise what Channel.call raises.

    reports: by name.
    """

    def __init__(self) -> None:
        self.reports: dict[str, str] = {}

    async def report_gone(self, channel: Channel, replica: Replica) -> bool:
        """Reports a model of which there was this copy; False if a client deleted it or replaced it."""
        name = replica.keys.model
        deleted = await channel.call("GET", deleted_key(name))
        if deleted == replica.keys.incarnation.encode() or await channel.call("EXISTS", meta_key(name)):
            return False
        await self.report(
            channel,
            name,
            f"Redis has lost the model {name!r}: at revision {replica.revision} it had learned"
            f" {replica.state.t} examples, and no client has deleted it. {way_back(name)}",
        )
        return True

    async def report(self, channel: Channel, name: str, text: str) -> None:
        """Reports a model that does not exist, although it should. The first report stays."""
        log.error("%s", text)
        self.reports[name] = text
        await channel.call("SET", lost_key(name), text, "NX")

    async def end(self, channel: Channel, name: str) -> bool:
        """Ends the report of a model; False if there was none."""
        was_lost = await read_loss(channel, name) != ""
        await channel.call("DEL", lost_key(name))
        self.reports.pop(name, None)
        return was_lost

    async def accept(self, channel: Channel, name: str) -> bool:
        """As `end`, for a client that accepts the loss: processes that notice it later do not report it
        again.
        """
        was_lost = await self.end(channel, name)
        if was_lost:
            await channel.call("SET", lost_key(name), "", "EX", ACCEPTED_SECONDS)
        return was_lost

    async def refresh(self, channel: Channel) -> None:
        """Forgets reports that another process has ended."""
        for name in list(self.reports):
            if not await read_loss(channel, name):
                self.reports.pop(name, None)
