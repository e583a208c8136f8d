"""The history of a model, written by the learner that leads: its figures, and what happened to it."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from redis.exceptions import ResponseError

from model_core.learning.census import Census
from service.example_log.lag import LogLag
from service.models.evaluation.report import Report
from service.models.history import IDLE_STEP_SECONDS, STEP_SECONDS, Moment, figures_of
from service.models.mirror import Mirror
from service.models.promotions import Promotion
from service.models.replica import Replica
from service.snapshots.take.origin import FROM_NOTHING
from service.storage.channel import Channel
from service.storage.scripts.history import Mark, add_figures

log = logging.getLogger(__name__)


class Seen(NamedTuple):
    """What marks follow on: a difference is something that happened."""

    generation: int
    base: str = ""
    """The snapshot from which the generation was restored; empty if it was loaded in another way."""
    rolled_back: str = ""
    """The snapshot of the latest automatic rollback."""
    feedback: str = ""
    snapshot: str = ""
    promoted: int = 0
    """The number of the last promotion of a challenger."""
    promotion: str = ""
    """The snapshot of the state that was promoted then."""

    @classmethod
    def parse(cls, stored: bytes) -> Seen:
        known = json.loads(stored)
        return cls(**{name: known[name] for name in cls._fields if name in known})

    def packed(self) -> bytes:
        return json.dumps(self._asdict()).encode()


class HistoryWriter:
    """Adds a moment each STEP_SECONDS, while nothing is learned each IDLE_STEP_SECONDS.

    newest_snapshot: returns the id of the model's last snapshot as far as the learner knows, or ''.
    """

    def __init__(
        self,
        model: str,
        newest_snapshot: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._newest_snapshot = newest_snapshot
        self._clock = clock
        self._seen: Seen | None = None
        self._starts = False
        self._written: tuple[float, int] = (-math.inf, -1)  # when, and after how many rounds
        self.lag: LogLag | None = None
        self.due_at = 0.0

    def lead(self) -> None:
        """Begin to lead: what happened before is read from Redis."""
        self._seen, self._starts, self._written = None, True, (-math.inf, -1)
        self.due_at = 0.0

    async def add(self, report: Report, census: Census | None, mirror: Mirror) -> None:
        """Add the figures of this moment; called when it is due. Raises any of CONNECTION_FAILURES."""
        now, replica, channel = self._clock(), mirror.replica, mirror.channel
        self.due_at = now + STEP_SECONDS
        try:
            before = self._seen or await self._read_seen(channel, replica)
            seen = await self._look(before, channel, replica)
            marks = list(self._marks(before, seen))
            if not marks and self._is_idle(now, replica):
                return
            changed = b"" if seen == self._seen else seen.packed()
            moment = self._moment(report, census, replica)
            if await add_figures(channel, replica.keys, replica.token, moment.packed(), changed, marks):
                self._seen, self._starts, self._written = seen, False, (now, replica.state.t)
        except ResponseError as refusal:  # for example of a full server: the next moment is tried
            log.debug("the history of %s was not added to: %s", self._model, refusal)

    def _is_idle(self, now: float, replica: Replica) -> bool:
        written, rounds = self._written
        return now < written + IDLE_STEP_SECONDS and rounds == replica.state.t

    async def _read_seen(self, channel: Channel, replica: Replica) -> Seen | None:
        stored = await channel.call("GET", replica.keys.marks_seen)
        return None if stored is None else Seen.parse(stored)

    async def _look(self, before: Seen | None, channel: Channel, replica: Replica) -> Seen:
        snapshot = max(self._newest_snapshot(), before.snapshot if before else "")  # they begin with the time
        feedback = replica.feedback.decode()
        if before is not None and before.generation == replica.generation:
            return before._replace(feedback=feedback, snapshot=snapshot)
        found = await channel.call("HMGET", replica.keys.meta, "base", "rolled_back", "promoted")
        base, rolled_back, promoted = ((value or b"") for value in found)
        promotion = Promotion.parse(promoted)
        noted = (promotion.number, promotion.snapshot) if promotion else (0, "")
        return Seen(replica.generation, base.decode(), rolled_back.decode(), feedback, snapshot, *noted)

    def _marks(self, before: Seen | None, now: Seen) -> Iterator[Mark]:
        if before is not None and now.generation != before.generation:
            yield from self._replacements(before, now)
        if before is not None and now.feedback != before.feedback:
            yield Mark("settings", now.feedback)
        if now.snapshot and (before is None or now.snapshot != before.snapshot):
            yield Mark("snapshot", now.snapshot)
        if self._starts:
            yield Mark("start", "")

    def _replacements(self, before: Seen, now: Seen) -> Iterator[Mark]:
        """How the state was replaced since, once for each way, as several may fall between two moments."""
        marks = []
        if now.rolled_back and now.rolled_back != before.rolled_back:
            marks.append(Mark("rollback", now.rolled_back))
        if now.promoted > before.promoted:
            marks.append(Mark("promotion", now.promotion))
        yield from marks
        if now.base in ("", FROM_NOTHING):
            yield Mark("load", "")
        elif now.base not in [mark.detail for mark in marks]:
            yield Mark("restore", now.base)

    def _moment(self, report: Report, census: Census | None, replica: Replica) -> Moment:
        windows = report.sources.get("served") or report.sources["progressive"]
        return Moment(
            replica.state.t,
            math.nan if self.lag is None else self.lag.examples,
            math.nan if self.lag is None else self.lag.seconds,
            math.nan if census is None else census.density,
            figures_of(by_weight for by_weight, _ in windows),
            () if census is None else tuple(census.expert_weights),
        )
