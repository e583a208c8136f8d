"""Removes log entries that no process had acknowledged, and whose numbers later entries have too."""

from __future__ import annotations

import contextlib
import logging

from model_core.errors import FormatError
from service.example_log.stream import BATCH_ID_BYTES, examples_of
from service.storage.channel import Channel
from service.storage.records import LogEntry, LogId, ModelKeys
from service.storage.scripts.log import drop_entry, find_repeated

log = logging.getLogger(__name__)

_ENTRIES_PER_READ = 100


async def drop_repeated(channel: Channel, keys: ModelKeys, after: LogId | None = None) -> None:
    """Looks through the log after an entry, by default through all of it.

    A server that ran half of an append at its start (see service/storage/torn_tail.py) has such entries, and
    possibly the claims of their event ids, for which a retry would be answered as a duplicate.

    Raises what Channel.call raises.
    """
    position = "" if after is None else str(after)
    while True:
        position, entries = await find_repeated(channel, keys, position, _ENTRIES_PER_READ)
        for entry in entries:
            if await drop_entry(channel, keys, entry.id, _claimed(entry)):
                log.error(
                    "entry %s of the log of %s, with %d examples, was removed: the server has run half of an"
                    " append that was never acknowledged (docs/redis.md)",
                    entry.id,
                    keys.model,
                    entry.examples,
                )
        if not position:
            return


def _claimed(entry: LogEntry) -> set[bytes]:
    """The ids that its examples may have claimed: of their events, and of the batches that made these."""
    with contextlib.suppress(FormatError):
        ids = [one for one in examples_of(entry).event_ids or [] if one]
        return {*ids, *(one[:BATCH_ID_BYTES] for one in ids)}
    return set()
