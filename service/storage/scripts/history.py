"""Adds to the history of a model's figures, and reads it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from service.storage.channel import Channel, Script
from service.storage.records import LogId, ModelKeys, mapping_of

SECONDS_KEPT = 720
"""Figures in the history by seconds: an hour of one each five."""
MINUTES_STEP_MS = 300_000
MINUTES_KEPT = 8640
"""Figures in the history by minutes: 30 days of one each five."""
MARKS_KEPT = 1000
ENTRIES_A_READ = 1000

_ADD = Script("add_history", after=("clock",))


class Mark(NamedTuple):
    """Something that happened to a model: `start`, `snapshot`, `restore`, `rollback`, `promotion`,
    `load`, `alias` or `settings`.
    """

    kind: str
    detail: str


async def add_figures(
    channel: Channel, keys: ModelKeys, token: bytes, figures: bytes, seen: bytes, marks: Iterable[Mark]
) -> bool:
    """Adds figures that follow from the commit `token`, and marks; False if the model has moved on.

    `seen`: on what the next marks follow, or empty if that stays.
    """
    return bool(
        await _ADD(
            channel,
            (keys.meta, *keys.history, keys.marks, keys.marks_seen),
            *(
                keys.incarnation,
                token,
                figures,
                SECONDS_KEPT,
                MINUTES_STEP_MS,
                MINUTES_KEPT,
                MARKS_KEPT,
                seen,
            ),
            *chain.from_iterable(marks),
        )
    )


async def add_marks(channel: Channel, keys: ModelKeys, marks: Iterable[Mark]) -> bool:
    """Adds marks alone; False if there is no such incarnation."""
    return await add_figures(channel, keys, b"", b"", b"", marks)


async def read_entries(channel: Channel, stream: str, after_ms: int) -> list[tuple[int, dict[bytes, bytes]]]:
    """Time in milliseconds and fields of the entries later than `after_ms`, in order."""
    found: list[tuple[int, dict[bytes, bytes]]] = []
    start = f"{after_ms + 1}-0"
    while True:
        entries = await channel.call("XRANGE", stream, start, "+", "COUNT", ENTRIES_A_READ)
        found += [(LogId.parse(entry).milliseconds, mapping_of(fields)) for entry, fields in entries]
        if len(entries) < ENTRIES_A_READ:
            return found
        last = LogId.parse(entries[-1][0])
        start = str(LogId(last.milliseconds, last.sequence + 1))
