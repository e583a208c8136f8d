"""Writes what commits have changed into the state in Redis, behind them: each slot once, however many commits
changed it, and in chunks, so that the server answers others meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from redis.exceptions import ResponseError

from service.learning.commit import Behind
from service.models.mirror import Mirror
from service.settings.groups import LearnerSettings
from service.storage.errors import CONNECTION_FAILURES
from service.storage.health import ServerHealth
from service.storage.records import SLOTS_A_CHUNK, Checkpoint, changed_records
from service.storage.scripts.commit import write_behind
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

SLOTS_A_STEP = 2_000
"""How many are written with a commit at least, and by an idle learner before it looks for new entries."""
CHUNKS_AT_A_TIME = SLOTS_A_STEP // SLOTS_A_CHUNK
"""So many are sent before the first reply is awaited: the server may be far away."""
SHARE_OF_COMMITS = 4
"""A checkpoint begins once its commits take one in so many bytes of what the commits stream may hold."""
REST = 3.0
"""After a checkpoint none begins by time for so many times as long as it took to write it,"""
MAX_REST_SECONDS = 30.0
"""but at most for this long."""


class Chunk(NamedTuple):
    """Slots (changed_type) that are written at a time, and those whose features were dropped (uint32).
    `complete`: after the last chunk of a checkpoint. `size`: how many slots.
    """

    slots: npt.NDArray[np.void]
    dropped: bytes
    complete: Checkpoint | None
    size: int


class Checkpointer:
    """Writes one checkpoint after the other: the rows of the slots that changed until it began, as they are
    when they are written. What changes meanwhile is in later commits, which readers lay over the rows.
    """

    def __init__(
        self, mirror: Mirror, settings: LearnerSettings, health: ServerHealth, metrics: Metrics
    ) -> None:
        self._mirror = mirror
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._rest: npt.NDArray[np.uint32] = np.empty(0, np.uint32)  # of the checkpoint that is being written
        self._through: Checkpoint | None = None  # it; None between two
        self._writing_seconds = 0.0  # of the checkpoint that is being written
        self._rests_until = 0.0

    async def follow(self, behind: Behind) -> None:
        """Find out what is behind, unless it is known, and show its age.

        Raises ModelGone, and what Channel.call raises.
        """
        if not behind.is_known:
            self._through = None
            await behind.read()
        self._metrics.behind(self._mirror.model, behind.age_seconds)

    async def write_next(self, behind: Behind) -> None:
        """Write SLOTS_A_STEP, if they are due. The mirror's arrays are those of its commit."""
        await self.write(self.take(behind, SLOTS_A_STEP), self._mirror.replica.token, behind)

    def take(self, behind: Behind, slots: int) -> list[Chunk]:
        """Chunks with at least so many slots, if as many are due, and the rows that the arrays have now. They
        are to be written once these rows are committed, before others are taken.
        """
        chunks: list[Chunk] = []
        for step in self._due(behind):
            chunks += step
            slots -= SLOTS_A_STEP
            if slots <= 0:
                break
        return chunks

    async def write(self, chunks: Sequence[Chunk], token: bytes, behind: Behind) -> bool:
        """Write chunks whose rows are those of the commit that `token` names; False if that failed."""
        for start in range(0, len(chunks), CHUNKS_AT_A_TIME):
            together = chunks[start : start + CHUNKS_AT_A_TIME]
            started = time.monotonic()
            if not await self._write_together(together, token, behind):
                self._through = None
                behind.forget()
                return False
            self._writing_seconds += time.monotonic() - started
            if together[-1].complete:
                behind.written_through()
                rest = min(REST * self._writing_seconds, MAX_REST_SECONDS)
                self._rests_until = time.monotonic() + rest
            self._metrics.written_behind(self._mirror.model, sum(chunk.size for chunk in together))
        return True

    async def _write_together(self, chunks: Sequence[Chunk], token: bytes, behind: Behind) -> bool:
        """The server refuses a chunk that does not follow on the one before, and so all after one that
        failed.
        """
        replica, names = self._mirror.replica, [secrets.token_bytes(8) for _ in chunks]
        sent = [
            write_behind(
                self._mirror.channel,
                replica.keys,
                replica.generation,
                token,
                chunk.slots,
                chunk.dropped,
                chunk.complete,
                previous=previous,
                name=name,
            )
            for chunk, previous, name in zip(chunks, [behind.written, *names[:-1]], names, strict=True)
        ]
        try:
            written = all(await asyncio.gather(*sent))
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            log.warning("a checkpoint of %s begins again: %s", self._mirror.model, failure)
            return False
        behind.written = names[-1]
        return written

    def _due(self, behind: Behind) -> Iterator[list[Chunk]]:
        """Of SLOTS_A_STEP each, so that the rows of many chunks are collected at once."""
        if not behind.is_known:
            self._through = None
        if self._through is None:
            if not behind.is_known or self.seconds_until_due(behind) > 0:
                return
            self._through, self._rest = behind.through, behind.take()
            self._writing_seconds = 0.0
        while self._through is not None:
            taken, self._rest = self._rest[:SLOTS_A_STEP], self._rest[SLOTS_A_STEP:]
            complete = None if self._rest.size else self._through
            if complete:
                self._through = None
            state = self._mirror.replica.state
            slots, rows, dropped = state.changes_at(taken)
            written = changed_records(slots, rows, state.discount)
            yield list(_chunks(written, dropped, complete))

    def seconds_until_due(self, behind: Behind) -> float:
        """Until there is something to write, if no further commit comes; infinite if nothing is behind."""
        if self._through is not None or behind.bytes * SHARE_OF_COMMITS > self._settings.commits_bytes:
            return 0.0
        if behind.since is None:
            return math.inf
        if self._health.shedding:
            return 0.0  # commits that take the memory are trimmed only behind a checkpoint
        due = max(behind.since + self._settings.checkpoint_seconds, self._rests_until)
        return max(0.0, due - time.monotonic())


def _chunks(
    slots: npt.NDArray[np.void], dropped: npt.NDArray[np.uint32], complete: Checkpoint | None
) -> Iterator[Chunk]:
    """Of SLOTS_A_CHUNK each. What was dropped goes with the last, which completes what they complete."""
    last = max(len(slots) - 1, 0) // SLOTS_A_CHUNK
    for number in range(last + 1):
        some = slots[number * SLOTS_A_CHUNK : (number + 1) * SLOTS_A_CHUNK]
        if number < last:
            yield Chunk(some, b"", None, len(some))
        else:
            yield Chunk(some, dropped.astype("<u4").tobytes(), complete, len(some) + len(dropped))
