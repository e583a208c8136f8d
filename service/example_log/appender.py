"""Appends the examples of requests to the log, several requests at once, and reports their results."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from redis.exceptions import ResponseError

from model_core.examples.batch import NO_FLOATS, ExampleBatch
from model_core.kernels.numerics import log_losses, sigmoids
from service.errors import NO_ANSWER, AppendOutcome, LogFull, StateUnavailable, UpdateUnavailable
from service.example_log.incoming import NewExamples
from service.example_log.stream import (
    MAX_ENTRY_EXAMPLES,
    ExampleLog,
    MicroBatch,
    Place,
    event_digest,
    logged_examples,
    share_out,
)
from service.models.mirror import Source
from service.models.registry import OpenModel
from service.models.replica import ModelGone
from service.runtime.coalescer import STOPPING, Asked, Coalescer
from service.settings.groups import LogSettings
from service.storage.errors import CONNECTION_FAILURES
from service.storage.health import ServerHealth
from service.storage.records import ModelKeys
from service.storage.scripts.log import Found
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics

MAX_EXAMPLES_PER_APPEND = 4096
EXAMPLES_PER_TURN = 500
"""The results of more examples are packed in parts, between which other requests are answered."""
CLOSE_DEADLINES_SECONDS = 0.1
"""Requests whose deadlines are this close fail together, a little early; then the batch is built again."""

UpdateStatus = Literal[
    "learned", "appended", "duplicate", "skipped", "waiting", "sampled_out", "late", "conflict", "unknown"
]


class UpdateResults(NamedTuple):
    """Results of r examples, or of r labels for logged predictions: columns, in order.

    probabilities, losses float64[r]: progressive, that is by the state just before the example was learned;
    NaN if unknown. revisions: of the states that have learned it; None if unknown. ids: event ids, or for
    labels the ids of the predictions; id_field: the name of that field in replies.
    """

    statuses: list[UpdateStatus]
    probabilities: npt.NDArray[np.float64]
    losses: npt.NDArray[np.float64]
    revisions: list[str | None]
    ids: list[str]
    id_field: Literal["event_id", "id"] = "event_id"

    def part(self, start: int, stop: int) -> UpdateResults:
        """The results of examples start .. stop - 1."""
        return UpdateResults(
            self.statuses[start:stop],
            self.probabilities[start:stop],
            self.losses[start:stop],
            self.revisions[start:stop],
            self.ids[start:stop],
            self.id_field,
        )

    def put(self, rows: Sequence[int], others: UpdateResults) -> None:
        """Replaces these rows by those of `others`, in order."""
        for row, status, revision in zip(rows, others.statuses, others.revisions, strict=True):
            self.statuses[row], self.revisions[row] = status, revision
        self.probabilities[rows], self.losses[rows] = others.probabilities, others.losses


NO_RESULTS = UpdateResults([], NO_FLOATS, NO_FLOATS, [], [])


async def until_learned(model: OpenModel, places: Iterable[Place], deadline: float) -> None:
    """Waits at most until the loop's time is `deadline`; `is_in_log` confirms that they are learned."""
    for entry in {place.entry for place in places if place.entry is not None}:
        await model.outcomes.learned(entry, deadline)


async def is_in_log(model: OpenModel, placed: Placed, digest: Callable[[str], bytes] = event_digest) -> bool:
    """False if the server may have lost examples of these after it had acknowledged them.

    They are looked up in the log, by their ids, if the mirror has reconnected or loaded since, or has passed
    an entry without seeing it learned: only then may the server be another, which lacks an entry or has other
    examples under the id of one. `digest`: of an event id, as the log has it.
    """
    passed = any(_is_passed(model, place) for place in placed.places)
    if not passed and model.mirror.source == placed.source:
        return True
    logged = list(logged_examples(placed.places, lambda index: digest(placed.event_ids[index])))
    if not logged:
        return True
    try:
        found = await model.mirror.find([example for _, example in logged])
    except (*CONNECTION_FAILURES, ResponseError):
        return False
    accepted = {True: (Found.IN_LOG, Found.MAY_BE_TRIMMED), False: (Found.IN_LOG,)}
    return len(found) == len(logged) and all(
        where in accepted[place.duplicate] for (place, _), where in zip(logged, found, strict=True)
    )


def _is_passed(model: OpenModel, place: Place) -> bool:
    if place.entry is None or place.duplicate:
        return False
    return model.outcomes.held(place.entry) is None and model.outcomes.knows(place.entry)


def results_of(model: OpenModel, placed: Placed, labels: npt.NDArray[np.float64]) -> UpdateResults:
    """The results of examples in the log as known now; labels float64[r]."""
    margins: list[npt.NDArray[np.float64]] = []
    statuses: list[UpdateStatus] = []
    revisions: list[str | None] = []
    for place in placed.places:
        outcome = None if place.entry is None else model.outcomes.held(place.entry)
        start, stop = place.offset, place.offset + place.examples
        margins.append(np.full(place.examples, np.nan) if outcome is None else outcome.margins[start:stop])
        statuses += _statuses(model, place, None if outcome is None else outcome.skipped[start:stop])
        revisions += [None if outcome is None else outcome.revision] * place.examples
    joined = margins[0] if len(margins) == 1 else np.concatenate([NO_FLOATS, *margins])
    return UpdateResults(statuses, sigmoids(joined), log_losses(joined, labels), revisions, placed.event_ids)


def _statuses(model: OpenModel, place: Place, skipped: bytes | None) -> Sequence[UpdateStatus]:
    """`skipped` is None without an outcome: a state that was loaded as a whole has none, and old ones are
    dropped.
    """
    if place.duplicate:
        return ["duplicate"] * place.examples
    if skipped is None:
        is_learned = place.entry is not None and model.outcomes.knows(place.entry)
        return ["learned" if is_learned else "appended"] * place.examples
    if 1 not in skipped:
        return ["learned"] * place.examples
    return ["skipped" if flag else "learned" for flag in skipped]


class Placed(NamedTuple):
    """The places of the examples of a request in the log, and the event ids that a retry sends.

    `source`: the source of the mirror before they were sent.
    """

    places: list[Place]
    event_ids: list[str]
    source: Source | None = None


class _Request(NamedTuple):
    examples: NewExamples
    deadline: float
    source: Source | None


_Asked = Asked[_Request, Placed]


class Appender:
    """Requests that arrive in a burst, or while an append is under way, share the next one."""

    def __init__(self, topology: Topology, keys: ModelKeys, settings: LogSettings, metrics: Metrics) -> None:
        self._log = ExampleLog(topology, keys, settings, partial(metrics.lost_examples, keys.model))
        self._model = keys.model
        self._metrics = metrics
        self._requests = Coalescer[_Request, Placed](self._append_together, MAX_EXAMPLES_PER_APPEND)

    async def append(self, examples: NewExamples, deadline: float, source: Source | None = None) -> Placed:
        """Raises what ExampleLog.append raises."""
        return await self._requests.submit(_Request(examples, deadline, source), len(examples.batch))

    async def _append_together(self, requests: list[_Asked]) -> None:
        """Each request fails at its own deadline only, whichever requests share its append."""
        while requests:
            try:
                micro_batch = await _packed(requests)
            except asyncio.CancelledError:
                for asked in requests:
                    asked.refuse(UpdateUnavailable("not_appended", [], STOPPING))
                raise
            try:
                requests = await self._append(requests, micro_batch)
            except asyncio.CancelledError:  # the service stops while the server may be appending
                _refuse(requests, micro_batch, "unknown", why=STOPPING)
                raise

    async def _append(self, requests: list[_Asked], micro_batch: MicroBatch) -> list[_Asked]:
        """Returns the requests that are certainly not in the log and still have time. If that is unknown, the
        same micro-batch is tried again.
        """
        started = time.monotonic()
        while pending := [asked for asked in requests if asked.waits]:
            deadline = pending[0].request.deadline
            try:
                places = await self._log.append(micro_batch, deadline)
            except UpdateUnavailable as failure:
                latest = deadline + CLOSE_DEADLINES_SECONDS
                _refuse(requests, micro_batch, failure.outcome, latest, failure.why)
                if failure.outcome == "not_appended":
                    return [asked for asked in pending if asked.waits]
            else:
                self._metrics.appended_examples(self._model, len(micro_batch), time.monotonic() - started)
                _answer(requests, places, micro_batch)
                break
        return []

    async def drain(self, seconds: float) -> None:
        """Waits until all requests are answered, at most so many seconds."""
        await self._requests.drain(seconds)

    async def close(self) -> None:
        await self._requests.close(UpdateUnavailable("not_appended", [], STOPPING))
        await self._log.close()


async def _packed(requests: list[_Asked]) -> MicroBatch:
    """Makes one micro-batch of the requests. Other tasks run after MAX_ENTRY_EXAMPLES each."""
    micro_batch = MicroBatch()
    event_ids: list[str | None] = []
    for examples, size in ((asked.request.examples, asked.size) for asked in requests):
        event_ids += examples.event_ids or [None] * size
        micro_batch.slice_names.update(examples.slice_names)
    batch = ExampleBatch.concatenate([asked.request.examples.batch for asked in requests])
    for start in range(0, len(batch), MAX_ENTRY_EXAMPLES):
        if start:
            await asyncio.sleep(0)
        stop = min(start + MAX_ENTRY_EXAMPLES, len(batch))
        micro_batch.extend(batch.slice(start, stop), event_ids[start:stop])
    return micro_batch


def _bounds(requests: list[_Asked]) -> Iterator[tuple[int, int]]:
    """The start and end of each request among the examples of the append."""
    return pairwise(accumulate((asked.size for asked in requests), initial=0))


def _answer(requests: list[_Asked], places: list[Place], micro_batch: MicroBatch) -> None:
    shares = share_out(places, (asked.size for asked in requests))
    for asked, share, (start, stop) in zip(requests, shares, _bounds(requests), strict=True):
        asked.answer(Placed(share, micro_batch.event_ids[start:stop], asked.request.source))


def _refuse(
    requests: list[_Asked],
    micro_batch: MicroBatch,
    outcome: AppendOutcome,
    latest: float = math.inf,
    why: str = NO_ANSWER,
) -> None:
    """Refuses requests whose deadline is not after `latest`, each with its own event ids."""
    for asked, (start, stop) in zip(requests, _bounds(requests), strict=True):
        if asked.request.deadline <= latest:
            asked.refuse(UpdateUnavailable(outcome, micro_batch.event_ids[start:stop], why))


class Updates:
    def __init__(
        self, topology: Topology, settings: LogSettings, health: ServerHealth, metrics: Metrics
    ) -> None:
        self._topology = topology
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._appenders: dict[str, Appender] = {}  # by incarnation

    async def append(self, model: OpenModel, examples: NewExamples, deadline: float) -> Placed:
        """Durable when it returns.

        Raises LogFull, UpdateUnavailable, StateUnavailable (the model was deleted meanwhile).
        """
        if not len(examples.batch):
            return Placed([], [], model.mirror.source)
        if self._health.shedding:
            raise LogFull(
                f"Redis uses {self._health.used_share:.0%} of its memory limit; examples are refused above"
                f" {self._health.share_limit:.0%}, so that what is in the log can still be learned."
            )
        source = model.mirror.source
        try:
            placed = await self._appender(model).append(examples, deadline, source)
        except ModelGone:
            raise StateUnavailable(
                f"Model {model.name!r} was deleted or re-created; nothing was appended."
            ) from None
        except (UpdateUnavailable, StateUnavailable):
            self._health.doubt_writes(model.name)
            raise
        if model.slices is not None:
            model.slices.mark_logged(examples.slice_names)
        return placed

    def _appender(self, model: OpenModel) -> Appender:
        keys = model.mirror.replica.keys
        appender = self._appenders.get(keys.incarnation)
        if appender is None:
            model.belongs(self._retire_appender, keys.incarnation)
            appender = Appender(self._topology, keys, self._settings, self._metrics)
            self._appenders[keys.incarnation] = appender
        return appender

    async def _retire_appender(self, incarnation: str) -> None:
        """Closes the appender of a deleted model. Pending requests are answered first: the server knows their
        outcome.
        """
        if incarnation in self._appenders:
            await self._appenders[incarnation].drain(self._settings.update_timeout_seconds)
            await self._close_appender(incarnation)

    async def _close_appender(self, incarnation: str) -> None:
        appender = self._appenders.pop(incarnation, None)
        if appender is not None:
            await appender.close()

    async def close(self) -> None:
        for incarnation in list(self._appenders):
            await self._close_appender(incarnation)
