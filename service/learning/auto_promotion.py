"""Automatic promotion of a challenger that has been better than its champion for long enough."""

from __future__ import annotations

import asyncio
import logging
import time

from redis.exceptions import ResponseError

from model_core.evaluation.comparison import ComparisonFigures
from service.errors import ServiceError
from service.learning.live_evaluation import LiveEvaluation
from service.models.evaluation.comparison import Compared
from service.models.mirror import Mirror
from service.models.replica import ModelGone, read_meta
from service.runtime.tasks import begin, cancel_all
from service.snapshots.restore.promotion import promote
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.topology import Topology

log = logging.getLogger(__name__)

CHECK_EVERY_SECONDS = 1.0
RETRY_SECONDS = 60.0


class AutoPromotion:
    """Promotes one challenger, while its learner leads. `promote_after` is read when a promotion may be due,
    so that a change takes effect at once.
    """

    def __init__(
        self, topology: Topology, mirror: Mirror, store: SnapshotStore, evaluation: LiveEvaluation
    ) -> None:
        self._mirror = mirror
        self._store = store
        self._evaluation = evaluation
        self._channel = Channel(topology)
        self._due = 0.0
        self._working: asyncio.Task[None] | None = None

    def judge(self) -> None:
        """Begin a promotion if it is due; to be called between commits."""
        if time.monotonic() < self._due:
            return
        if self._working is None or self._working.done():
            self._due = time.monotonic() + CHECK_EVERY_SECONDS
            comparison, name = self._evaluation.comparison, self._mirror.model
            if comparison is not None and (figures := comparison.paired.figures()).verdict == "better":
                promoting = self._promote(name, comparison.compared, figures)
                self._working = begin(promoting, f"the automatic promotion of {name} failed")

    async def close(self) -> None:
        if self._working is not None:
            await cancel_all([self._working])
        await self._channel.close()

    async def _promote(self, name: str, compared: Compared | None, figures: ComparisonFigures) -> None:
        try:
            own = await read_meta(self._channel, name)
            champion = await read_meta(self._channel, own.log_keys(name).model)
            # A promotion just now has replaced both states, and the comparison is of the two before.
            is_of_these = compared == (champion.generation, own.generation)
            after = own.promote_after
            if is_of_these and after is not None and figures.pairs - figures.since_pairs >= after:
                await promote(self._channel, self._store, name, None, _reason(figures))
        except (ServiceError, ModelGone, *CONNECTION_FAILURES, ResponseError) as failure:
            self._due = time.monotonic() + RETRY_SECONDS
            log.warning("challenger %s is not promoted yet: %s", name, failure)


def _reason(figures: ComparisonFigures) -> str:
    low, high = figures.difference_interval or (0.0, 0.0)
    return (
        f"better since example {figures.since_pairs:,} of {figures.pairs:,} that both predicted:"
        f" its log loss is lower by {figures.difference:.5f} ({low:.5f} to {high:.5f})"
    )
