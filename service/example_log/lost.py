"""What a server acknowledged and then lost: a replica that lacked it took over, or a crash took it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from service.storage.channel import Channel
from service.storage.keys import ModelKeys
from service.storage.records import LogId
from service.storage.scripts import lost_entries

log = logging.getLogger(__name__)

REMEMBERED_ENTRIES = 20_000
ENTRIES_A_LOOK = 256


class Appended(NamedTuple):
    entry: LogId
    examples: int


class AcknowledgedEntries:
    """The newest log entries that this process was told it had appended over one channel, for one model."""

    def __init__(self, keys: ModelKeys, on_lost: Callable[[int], None]) -> None:
        self._keys = keys
        self._on_lost = on_lost
        self._looked = 0  # over which connection
        self._entries: deque[Appended] = deque(maxlen=REMEMBERED_ENTRIES)

    def add(self, entries: Iterable[Appended]) -> None:
        self._entries.extend(entries)

    async def look(self, channel: Channel) -> None:
        """Once for each connection: the server behind a new one may lack what another acknowledged before.

        Raises what Channel.call raises.
        """
        if channel.opened == self._looked:
            return
        lost = await self._forget_lost(channel)
        self._looked = channel.opened
        if lost:
            log.error(
                "Redis has lost %d examples of %s acknowledged to this process (failover or crash);"
                " sent again, they are learned",
                lost,
                self._keys.model,
            )
            self._on_lost(lost)

    async def _forget_lost(self, channel: Channel) -> int:
        """How many examples are in entries that the server behind the channel does not hold any more.

        Looks from the newest entry back until nothing is missing. Raises what Channel.call raises.
        """
        examples = 0
        while self._entries:
            newest = list(islice(reversed(self._entries), ENTRIES_A_LOOK))
            ids = [str(appended.entry) for appended in newest]
            lost = await lost_entries(channel, self._keys.meta, self._keys.log, self._keys.incarnation, *ids)
            missing = {newest[index] for index in lost}
            if not missing:
                break
            examples += sum(appended.examples for appended in missing)
            self._entries = deque(
                (appended for appended in self._entries if appended not in missing), REMEMBERED_ENTRIES
            )
        return examples
