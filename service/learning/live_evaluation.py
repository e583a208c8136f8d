"""The evaluation of a model while it is learned: committed with it, and published at intervals."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain

import numpy as np
from redis.exceptions import ResponseError

from model_core.errors import FormatError
from model_core.evaluation import layout
from model_core.examples.batch import ExampleBatch
from model_core.learning.census import Census, CensusTaker
from model_core.learning.rounds import Learned
from service.learning.followed_log import FollowedEntry
from service.learning.history import HistoryWriter
from service.models.config.sections import EvaluationConfig
from service.models.evaluation.comparison import Compared, Comparison
from service.models.evaluation.report import Report, report_of
from service.models.evaluation.slice_report import SliceReport, slices_in_pieces
from service.models.evaluation.slices import unpack_names
from service.models.evaluation.state import Evaluations
from service.models.mirror import Mirror
from service.models.replica import Replica
from service.storage.records import (
    FIGURES,
    SHORT_SLICE_FIGURES,
    SLICE_FIGURES,
    LogEntry,
    mapping_of,
)
from service.storage.scripts.commit import read_evaluation, store_figures
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

REPORT_EVERY_SECONDS = 1.0
CHALLENGER_REPORT_SECONDS = 3.0
"""The interval for challengers, of which one process may learn many."""
SLICES_EVERY_SECONDS = 5.0
CENSUS_EVERY_SECONDS = 5.0
PAUSE_FACTOR = 20
"""Pause after a piece of publishing, as a multiple of the time that the piece took: publishing takes at most
5 % of the learner's time, however much there is to publish.
"""
TURN_SECONDS = 0.002


class LiveEvaluation:
    """The evaluation at the commit `_token`; if the learner's mirror is at another, it is read again."""

    def __init__(
        self,
        model: str,
        metrics: Metrics,
        history: HistoryWriter,
        report_seconds: float = REPORT_EVERY_SECONDS,
    ) -> None:
        self._model = model
        self._history = history
        self._publisher = EvaluationPublisher(model, metrics, report_seconds=report_seconds)
        self._token: bytes | None = None
        self._evaluations = Evaluations(EvaluationConfig())
        self._generation = -1  # of the state that is evaluated
        self._unreadable: list[bytes] = []  # fields that the next commit deletes

    async def follow(self, mirror: Mirror) -> None:
        """Read the evaluation of the mirror's commit, after catching up if the server has moved on.

        Raises what Mirror.load raises.
        """
        while self._token != mirror.replica.token:
            replica = mirror.replica
            stored = await read_evaluation(mirror.channel, replica.keys, replica.token)
            if stored is not None:
                fields, names = stored
                if replica.follows:
                    names = mapping_of(await mirror.channel.call("HGETALL", replica.log_keys.slices))
                self._adopt(replica, fields, names)
                self._token = replica.token
            else:
                await mirror.catch_up()

    async def learn_names(self, entries: Iterable[LogEntry], mirror: Mirror) -> None:
        """Read the names of new slices, before these entries are learned."""
        if any(entry.slices for entry in entries) and self._evaluations.slices is not None:
            found = await mirror.channel.call("HGETALL", mirror.replica.log_keys.slices)
            self._evaluations.know(unpack_names(mapping_of(found).items()))

    def add(self, entry: LogEntry, batch: ExampleBatch, learned: Learned) -> None:
        margins = learned.margins
        if b"\1" in learned.skipped.tobytes():  # a few times as fast as any()
            margins = np.where(learned.skipped, np.nan, margins)
        self._evaluations.add(margins, batch, entry.id.milliseconds)
        if isinstance(entry, FollowedEntry):
            compared = Compared(entry.generation, self._generation)
            self._evaluations.compare(compared, entry.predicted, margins, batch, entry.id.milliseconds)
        self._publisher.mark_changed()

    @property
    def comparison(self) -> Comparison | None:
        """The comparison of a challenger with its champion; None for others, and before the first entry."""
        return self._evaluations.comparison

    def take(self) -> layout.Changes:
        """Return the changes since the last call, to be sent with one commit until its outcome is known."""
        written, deleted = self._evaluations.take()
        deleted, self._unreadable = layout.packed_strings(*self._unreadable) + deleted, []
        return layout.Changes(written, deleted)

    def moved_to(self, token: bytes | None) -> None:
        """Record the commit of all that was taken; None if it was refused, or another learner may lead."""
        self._token = token

    async def publish(self, mirror: Mirror) -> None:
        """Publish a piece, if one is due. The learner must not have learned more than is committed."""
        if self._token == mirror.replica.token:
            await self._publisher.turn(self._evaluations, mirror)
            if self._publisher.newest is not None and time.monotonic() >= self._history.due_at:
                await self._history.add(self._publisher.newest, self._publisher.census, mirror)

    def seconds_until_due(self) -> float:
        """Return the seconds until there is something to publish, if nothing is learned meanwhile."""
        return self._publisher.seconds_until_due()

    def _adopt(self, replica: Replica, fields: dict[bytes, bytes], names: dict[bytes, bytes]) -> None:
        config = replica.config.evaluation
        self._unreadable, self._generation = [], replica.generation
        try:
            self._evaluations = Evaluations.from_fields(config, fields)
        except FormatError as damage:
            log.error("the evaluation of %s cannot be read and restarts from zero: %s", self._model, damage)  # noqa: TRY400
            self._evaluations, self._unreadable = Evaluations(config), list(fields)
        self._evaluations.know(unpack_names(names.items()))
        self._publisher.restart(sliced=self._evaluations.slices is not None)


class EvaluationPublisher:
    """Publishes reports and counts the state piece by piece, between commits. `clock` returns seconds."""

    def __init__(
        self,
        model: str,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        report_seconds: float = REPORT_EVERY_SECONDS,
    ) -> None:
        self._model = model
        self._metrics = metrics
        self._report_seconds = report_seconds
        self._clock = clock
        self.restart(sliced=False)

    def restart(self, *, sliced: bool) -> None:
        """Start with another evaluation; `sliced`: whether it has slices."""
        self._sliced = sliced
        self.mark_changed()
        self._slicing: Iterator[SliceReport | None] | None = None
        self._slices: SliceReport | None = None
        self._stored: SliceReport | None = None
        self._taker = CensusTaker()
        self.newest: Report | None = None
        self.census: Census | None = None
        self._count_began: int | None = None  # at which round; None: no count is under way
        self._counted: int | None = None  # the round for which the census is exact
        self._has_reported = False  # as its last piece
        self._next_report = self._next_slices = self._next_census = self._paused_until = 0.0

    def mark_changed(self) -> None:
        """Record that there is something new to publish."""
        self._changed, self._slices_changed = True, self._sliced

    def seconds_until_due(self) -> float:
        """Return the seconds until a piece is due, if nothing changes."""
        return max(self._due_at(), self._paused_until) - self._clock()

    async def turn(self, evaluations: Evaluations, mirror: Mirror) -> None:
        """Work on what is due for at most about TURN_SECONDS, and store a report that is ready."""
        started = self._clock()
        if started < self._paused_until:
            return
        fields, ended = None, started
        while fields is None and ended < started + TURN_SECONDS and ended >= self._due_at():
            fields = self._piece(evaluations, mirror.replica, ended)
            ended = self._clock()
        self._paused_until = ended + PAUSE_FACTOR * (ended - started)
        if fields is not None:
            await self._store(fields, mirror)

    def _due_at(self) -> float:
        return min(self._next_report if self._changed else math.inf, self._others_due_at())

    def _others_due_at(self) -> float:
        slices = self._next_slices if self._slices_changed or self._slicing else math.inf
        return min(slices, self._next_census)

    def _piece(self, evaluations: Evaluations, replica: Replica, now: float) -> dict[bytes, bytes] | None:
        """Do one piece of what is due, but no report right after one: a slow report is always due again;
        return the fields to store, if any.
        """
        others_first = self._has_reported and now >= self._others_due_at()
        self._has_reported = self._changed and now >= self._next_report and not others_first
        if self._has_reported:
            self._changed, self._next_report = False, now + self._report_seconds
            return self._report(evaluations, replica)
        if self._slicing is None and self._slices_changed and now >= self._next_slices:
            show = partial(self._metrics.sliced, self._model)
            self._slicing = slices_in_pieces(evaluations, replica.state.t, show)
            self._slices_changed, self._next_slices = False, now + SLICES_EVERY_SECONDS
        if self._slicing is None:
            self._count(replica, now)
        elif slices := next(self._slicing):
            self._slicing, self._slices, self._changed = None, slices, True
            self._metrics.retain_slices(self._model, slices.names)
        return None

    def _report(self, evaluations: Evaluations, replica: Replica) -> dict[bytes, bytes]:
        slices = self._slices
        parts = slices.parts if slices else {}
        self.newest = report = report_of(evaluations, replica.revision, replica.state.t, parts)
        self._metrics.model_size(self._model, replica.state.t, replica.state.features_seen)
        for source, windows in report.sources.items():
            for figures in chain.from_iterable(windows):
                self._metrics.evaluated(self._model, source, figures)
        if replica.follows and evaluations.comparison:
            compared = evaluations.comparison.paired.figures()
            self._metrics.compared(self._model, replica.follows.model, compared)
        findings = report.judgement.findings if report.judgement else ()
        self._metrics.judged(self._model, {one.check: one.wrong is True for one in findings})
        fields = {FIGURES: report.as_json(self._model, self.census, slices.t if slices else None)}
        if slices is not self._stored and slices is not None:
            fields |= {SLICE_FIGURES: slices.whole, SHORT_SLICE_FIGURES: slices.short}
        return fields

    def _count(self, replica: Replica, now: float) -> None:
        """Take one step of the census of the state, or start one."""
        t = replica.state.t
        if self._count_began is None:
            if t == self._counted:  # nothing was learned since
                self._next_census = now + CENSUS_EVERY_SECONDS
                return
            self._count_began = t
        census = self._taker.step(replica.state, replica.config.hyper)
        if census is None:
            return
        self._counted = t if t == self._count_began else None
        self._count_began, self._next_census = None, now + CENSUS_EVERY_SECONDS
        if census != self.census:
            self.census, self._changed = census, True
            self._metrics.measured(self._model, census)

    async def _store(self, fields: Mapping[bytes, bytes], mirror: Mirror) -> None:
        slices, replica = self._slices, mirror.replica
        try:
            stored = await store_figures(mirror.channel, replica.keys, replica.token, fields)
        except ResponseError as refusal:  # for example of a full server: the next report is tried again
            log.warning("the figures of %s were not stored: %s", self._model, refusal)
            self._changed = True
        else:
            self._stored = slices if stored else self._stored
