"""The evaluation of a model that is being learned: at the learner's commit, and told now and then."""

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
from model_core.examples.batch import ExampleBatch
from model_core.learning.census import Census, CensusTaker
from model_core.learning.rounds import Learned
from service.models.evaluation.report import report_of
from service.models.evaluation.slice_report import ToldSlices, slices_in_pieces
from service.models.evaluation.slices import unpack_names
from service.models.evaluation.state import EvaluationChanges, Evaluations
from service.models.mirror import Mirror
from service.models.replica import Replica
from service.storage.channel import Channel
from service.storage.records import (
    FIGURES,
    SHORT_SLICE_FIGURES,
    SLICE_FIGURES,
    LogEntry,
    ModelKeys,
    mapping_of,
)
from service.storage.scripts.commit import read_evaluation, store_figures
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

REPORT_EVERY_SECONDS = 1.0
SLICES_EVERY_SECONDS = 5.0
CENSUS_EVERY_SECONDS = 5.0
RESTS_A_PIECE = 20
"""How long nothing is told after a piece of telling, as a multiple of how long that took: so telling takes
at most 5 % of the learner's time, whatever there is to tell.
"""
A_TURN_SECONDS = 0.002


class LiveEvaluation:
    """`token` names the commit at which it is; with any other than the learner's it has to be read again."""

    def __init__(self, model: str, metrics: Metrics) -> None:
        self._model = model
        self._publisher = EvaluationPublisher(model, metrics)
        self._token: bytes | None = None
        self._evaluations: Evaluations
        self._unreadable: list[bytes] = []  # fields that the next commit deletes

    async def follow(self, mirror: Mirror) -> None:
        """To the commit of the mirror, or if that is not the server's, both to the server's.

        Raises what Mirror.load raises.
        """
        while self._token != mirror.replica.token:
            replica = mirror.replica
            stored = await read_evaluation(mirror.channel, replica.keys, replica.token)
            if stored is not None:
                self._take_up(replica, *stored)
                self._token = replica.token
            else:
                await mirror.catch_up()

    async def learn_names(self, entries: Iterable[LogEntry], channel: Channel, keys: ModelKeys) -> None:
        """Before these entries are learned."""
        if any(entry.slices for entry in entries) and self._evaluations.slices is not None:
            found = await channel.call("HGETALL", keys.slices)
            self._evaluations.know(unpack_names(mapping_of(found).items()))

    def add(self, entry: LogEntry, batch: ExampleBatch, learned: Learned) -> None:
        margins = learned.margins
        if b"\1" in learned.skipped.tobytes():  # a few times as fast as any()
            margins = np.where(learned.skipped, np.nan, margins)
        self._evaluations.add(margins, batch, entry.id.milliseconds)
        self._publisher.heard()

    def take(self) -> EvaluationChanges:
        """For the commit of what was added; to be taken once, and sent until the commit is known."""
        written, deleted = self._evaluations.take()
        deleted, self._unreadable = self._unreadable + deleted, []
        return EvaluationChanges(written, deleted)

    def moved_to(self, token: bytes | None) -> None:
        """The commit of what was taken is known. None: it was refused, or somebody else may learn now."""
        self._token = token

    async def tell(self, mirror: Mirror) -> None:
        """A little of it, if it is time. The learner must not have learned more than is committed."""
        if self._token == mirror.replica.token:
            await self._publisher.turn(self._evaluations, mirror)

    def waits_for(self) -> float:
        """Seconds until it has something to tell, if nothing is learned meanwhile."""
        return self._publisher.waits_for()

    def _take_up(self, replica: Replica, fields: dict[bytes, bytes], names: dict[bytes, bytes]) -> None:
        config = replica.config.evaluation
        self._unreadable = []
        try:
            self._evaluations = Evaluations.from_fields(config, fields)
        except FormatError as damage:
            log.error("the evaluation of %s begins anew: %s", self._model, damage)  # noqa: TRY400
            self._evaluations, self._unreadable = Evaluations(config), list(fields)
        self._evaluations.know(unpack_names(names.items()))
        self._publisher.restart(sliced=self._evaluations.slices is not None)


class EvaluationPublisher:
    """Reports and counts piece by piece, between the commits of the learner. `clock`: in seconds."""

    def __init__(self, model: str, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._metrics = metrics
        self._clock = clock
        self.restart(sliced=False)

    def restart(self, *, sliced: bool) -> None:
        """What was told belongs to another evaluation; `sliced`: whether this one has slices."""
        self._sliced = sliced
        self.heard()
        self._slicing: Iterator[ToldSlices | None] | None = None
        self._slices: ToldSlices | None = None
        self._stored: ToldSlices | None = None
        self._taker = CensusTaker()
        self._census: Census | None = None
        self._count_began: int | None = None  # at which round; None: no count is under way
        self._counted: int | None = None  # the round for which the census is exact
        self._next_report = self._next_slices = self._next_census = self._rests_until = 0.0

    def heard(self) -> None:
        """There is something new to tell."""
        self._news, self._slices_news = True, self._sliced

    def waits_for(self) -> float:
        """Seconds until it has something to do, if nothing happens."""
        return max(self._due_at(), self._rests_until) - self._clock()

    async def turn(self, evaluations: Evaluations, mirror: Mirror) -> None:
        started = self._clock()
        if started < self._rests_until:
            return
        fields, ended = None, started
        while fields is None and ended < started + A_TURN_SECONDS and ended >= self._due_at():
            fields = self._piece(evaluations, mirror.replica, ended)
            ended = self._clock()
        self._rests_until = ended + RESTS_A_PIECE * (ended - started)
        if fields is not None:
            await self._store(fields, mirror)

    def _due_at(self) -> float:
        report = self._next_report if self._news else math.inf
        slices = self._next_slices if self._slices_news or self._slicing else math.inf
        return min(report, slices, self._next_census)

    def _piece(self, evaluations: Evaluations, replica: Replica, now: float) -> dict[bytes, bytes] | None:
        """Whatever is due; what there is to store is given back."""
        if self._news and now >= self._next_report:
            self._news, self._next_report = False, now + REPORT_EVERY_SECONDS
            return self._report(evaluations, replica)
        if self._slicing is None and self._slices_news and now >= self._next_slices:
            show = partial(self._metrics.sliced, self._model)
            self._slicing = slices_in_pieces(evaluations, replica.state.t, show)
            self._slices_news, self._next_slices = False, now + SLICES_EVERY_SECONDS
        if self._slicing is None:
            self._count(replica, now)
        elif told := next(self._slicing):
            self._slicing, self._slices, self._news = None, told, True
            self._metrics.retain_slices(self._model, told.names)
        return None

    def _report(self, evaluations: Evaluations, replica: Replica) -> dict[bytes, bytes]:
        report, told = report_of(evaluations, replica.revision, replica.state.t), self._slices
        for source, windows in report.sources.items():
            for figures in chain.from_iterable(windows):
                self._metrics.evaluated(self._model, source, figures)
        fields = {FIGURES: report.as_json(self._model, self._census, told.t if told else None)}
        if told is not self._stored and told is not None:
            fields |= {SLICE_FIGURES: told.whole, SHORT_SLICE_FIGURES: told.short}
        return fields

    def _count(self, replica: Replica, now: float) -> None:
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
        if census != self._census:
            self._census, self._news = census, True
            self._metrics.measured(self._model, census)

    async def _store(self, fields: Mapping[bytes, bytes], mirror: Mirror) -> None:
        told, replica = self._slices, mirror.replica
        try:
            stored = await store_figures(mirror.channel, replica.keys, replica.token, fields)
        except ResponseError as refusal:  # a full server, say: it is told again with the next news
            log.warning("figures of %s are not stored: %s", self._model, refusal)
            self._news = True
        else:
            self._stored = told if stored else self._stored
