"""The evaluation of a model that is being learned: at the learner's commit, and told now and then."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator

import numpy as np
from redis.exceptions import ResponseError

from model_core.census import Census, CensusTaker
from model_core.errors import FormatError
from model_core.examples import ExampleBatch
from model_core.learning import Learned
from service.evaluation.evaluations import EvaluationChanges, Evaluations
from service.evaluation.report import Report, report_in_pieces
from service.evaluation.slice_names import unpack_names
from service.metrics import Metrics
from service.mirror import Mirror
from service.redis_client import Channel, read_evaluation, store_figures
from service.redis_keys import LogEntry, ModelKeys, mapping_of
from service.replica import Replica

log = logging.getLogger(__name__)

REPORT_EVERY_SECONDS = 1.0
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
        self._teller = Teller(model, metrics)
        self._token: bytes | None = None
        self._evaluations: Evaluations
        self._unreadable: list[bytes] = []  # fields that the next commit deletes

    async def follow(self, mirror: Mirror) -> None:
        """To the commit of the mirror, or if that is not the server's, both to the server's.

        Raises what Mirror.load raises.
        """
        while self._token != mirror.replica.token:
            replica = mirror.replica
            keys = replica.keys
            found = await read_evaluation(
                mirror.channel,
                *(keys.meta, keys.evaluation, keys.slices, keys.incarnation, replica.token),
            )
            if found:
                self._take_up(replica, *(mapping_of(flat) for flat in found))
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
        self._teller.has_news = True

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
            await self._teller.turn(self._evaluations, mirror)

    def _take_up(self, replica: Replica, fields: dict[bytes, bytes], names: dict[bytes, bytes]) -> None:
        config = replica.config.evaluation
        self._unreadable = []
        try:
            self._evaluations = Evaluations.from_fields(config, fields)
        except FormatError as damage:
            log.error("the evaluation of %s begins anew: %s", self._model, damage)  # noqa: TRY400
            self._evaluations, self._unreadable = Evaluations(config), list(fields)
        self._evaluations.know(unpack_names(names.items()))
        self._teller.restart()


class Teller:
    """Reports and counts piece by piece, between the commits of the learner."""

    def __init__(self, model: str, metrics: Metrics) -> None:
        self.has_news = True
        self._model = model
        self._metrics = metrics
        self._pieces: Iterator[Report | None] | None = None
        self._taker = CensusTaker()
        self._census: Census | None = None
        self._count_began: int | None = None  # at which round; None: no count is under way
        self._counted: int | None = None  # the round for which the census is exact
        self._next_report = self._next_census = self._rests_until = 0.0

    def restart(self) -> None:
        """What was told belongs to another evaluation."""
        self._pieces, self._census, self._taker = None, None, CensusTaker()
        self._count_began = self._counted = None
        self._next_report = self._next_census = 0.0
        self.has_news = True

    async def turn(self, evaluations: Evaluations, mirror: Mirror) -> None:
        started = time.monotonic()
        if started < self._rests_until:
            return
        report, ended = None, started
        while report is None and ended < started + A_TURN_SECONDS and self._is_due(ended):
            report = self._piece(evaluations, mirror.replica, ended)
            ended = time.monotonic()
        self._rests_until = ended + RESTS_A_PIECE * (ended - started)
        if report is not None:
            await self._store(report, mirror)

    def _is_due(self, now: float) -> bool:
        reports = self._pieces is not None or (self.has_news and now >= self._next_report)
        return reports or now >= self._next_census

    def _piece(self, evaluations: Evaluations, replica: Replica, now: float) -> Report | None:
        if self._pieces is None and self.has_news and now >= self._next_report:
            self._pieces = report_in_pieces(evaluations, replica.revision, replica.state.t)
            self.has_news = False
            self._next_report = now + REPORT_EVERY_SECONDS
        if self._pieces is None:
            self._count(replica, now)
            return None
        report = next(self._pieces)
        self._pieces = None if report else self._pieces
        return report

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
            self._census, self.has_news = census, True
            self._metrics.measured(self._model, census)

    async def _store(self, report: Report, mirror: Mirror) -> None:
        for source, windows in report.sources.items():
            for pair in windows:
                for figures in pair:
                    self._metrics.evaluated(self._model, source, figures)
        self._metrics.sliced(self._model, report.slices)
        keys = mirror.replica.keys
        figures_json = report.as_json(self._model, self._census)
        try:
            await store_figures(
                mirror.channel,
                *(keys.meta, keys.evaluation, keys.incarnation, mirror.replica.token, figures_json),
            )
        except ResponseError as refusal:  # a full server, say: it is told again with the next news
            log.warning("figures of %s are not stored: %s", self._model, refusal)
            self.has_news = True
