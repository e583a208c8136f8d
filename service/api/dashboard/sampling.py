"""Samples the watched models once a second for the dashboard: from this process's own copies and instruments,
and from Redis, whose failures are shown and not hidden.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Literal

from redis.exceptions import ResponseError

from service.api.dashboard.awaiting import Awaiting, read_awaiting
from service.api.dashboard.feed import LAST
from service.api.dashboard.figures import Evaluation, evaluation_of, read_field
from service.api.dashboard.traffic import RATE_SECONDS, Rates, Traffic, read_totals
from service.api.dashboard.verdict import Situation, verdict
from service.api.routes.health import readiness
from service.api.services import Services
from service.errors import ServiceError, UnknownModel
from service.example_log.lag import LogLag, lag_of
from service.models.registry import OpenModel
from service.settings.groups import ModelSettings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import FIGURES, MODELS, SHORT_SLICE_FIGURES
from service.telemetry.metrics import Metrics


class Watched:
    """The samples of one model while it is watched; `channel` is its own, since in a cluster each model may
    be on another server.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.lag: LogLag | None = None
        self.learner: bool | None = None
        self.awaiting: Awaiting | None = None
        self.evaluation: Evaluation | None = None  # not known before Redis has answered
        self._slices: bytes | None = None  # sent as it is: parsing hundreds of slices would be costly
        self._slices_of: tuple[str, int | None] | None = None
        self._stored: bytes | None = None
        self._sent: bytes | None = b"never"
        self._rounds: deque[tuple[float, str, int]] = deque()

    async def ask(self, model: OpenModel) -> None:
        """Raises what Channel.call raises; fields whose values are no longer known are then None."""
        keys, channel = model.mirror.replica.keys, self.channel
        self.lag = self.learner = self.awaiting = None
        self.lag = await lag_of(channel, keys)
        self.learner = bool(await channel.call("EXISTS", keys.lease))
        self.awaiting = await read_awaiting(channel, keys)
        stored = await read_field(channel, keys, FIGURES)
        if self.evaluation is None or stored != self._stored:
            self._stored, self.evaluation = stored, evaluation_of(stored)
        slices_of = (keys.incarnation, self.evaluation.slices_t)
        if slices_of != self._slices_of:
            self._slices = await read_field(channel, keys, SHORT_SLICE_FIGURES) or b"{}"
            self._slices_of = slices_of

    def learned_per_second(self, now: float, incarnation: str, rounds: int) -> float | None:
        """The rate over RATE_SECONDS, whichever process learned."""
        self._rounds.append((now, incarnation, rounds))
        while self._rounds[0][0] < now - RATE_SECONDS or self._rounds[0][1] != incarnation:
            self._rounds.popleft()
        seconds = now - self._rounds[0][0]
        return max(0, rounds - self._rounds[0][2]) / seconds if seconds > 0 else None

    def figures_if_new(self) -> dict[str, bytes]:
        found = {}
        if self.evaluation is not None and self._sent != self._stored:
            self._sent = self._stored
            found["figures"] = event("figures", self.evaluation.json())
        if self._slices is not None:
            found["slices"], self._slices = event_of("slices", self._slices), None
        return found


class Sampler:
    """Samples as long as there are listeners."""

    def __init__(self, services: Services, settings: ModelSettings, metrics: Metrics) -> None:
        self._services = services
        self._settings = settings
        self._metrics = metrics
        self._channel = services.channel()
        self._traffic = Traffic()
        self._watched: dict[str, Watched] = {}
        self._names: list[str] | None = None

    async def sample(self, models: Collection[str]) -> dict[str, dict[str, bytes]]:
        """The events of this second for each of the models, by their names or aliases."""
        await self._watch(models)
        self._traffic.add(await asyncio.to_thread(read_totals, self._metrics))
        opened, said = {}, {}
        for name in models:
            try:
                opened[name] = await self._services.aliases.open(name)
            except UnknownModel as gone:
                said[name] = {LAST: event(LAST, {"detail": gone.detail})}
            except ServiceError as trouble:
                said[name] = {"trouble": event("trouble", {"detail": trouble.detail})}
        answers = await self._ask(opened)
        return said | {name: self._events_of(name, model, answers) for name, model in opened.items()}

    async def _watch(self, models: Collection[str]) -> None:
        for name in self._watched.keys() - set(models):
            await self._watched.pop(name).channel.close()
        for name in set(models) - self._watched.keys():
            self._watched[name] = Watched(self._services.channel())

    async def _ask(self, opened: Mapping[str, OpenModel]) -> bool:
        """True if Redis answered; after one failure the others are not tried: each may be slow."""
        try:
            self._names = sorted(name.decode() for name in await self._channel.call("SMEMBERS", MODELS))
            for name, model in opened.items():
                await self._watched[name].ask(model)
        except (*CONNECTION_FAILURES, ResponseError):
            return False
        return True

    def _events_of(self, name: str, model: OpenModel, answers: bool) -> dict[str, bytes]:
        watched, mirror = self._watched[name], model.mirror
        rates, rounds = self._traffic.of(model.name), mirror.replica.state.t
        now = time.monotonic()
        learned = watched.learned_per_second(now, mirror.replica.keys.incarnation, rounds)
        report = readiness(self._services, self._settings)
        quiet, evaluation = mirror.age_seconds, watched.evaluation or Evaluation()
        situation = Situation(
            predict=self._freshness(report.predict != "unavailable", quiet),
            update=report.update,
            reasons=report.reasons,
            quiet_seconds=quiet,
            rates=rates,
            learner=watched.learner if answers else None,
            backlog=watched.lag.examples if watched.lag and answers else None,
            lag_seconds=watched.lag.seconds if watched.lag and answers else None,
            awaiting=watched.awaiting if answers else None,
            learned_per_second=learned if answers else None,
            rounds=rounds,
            nonfinite=evaluation.measures.get("nonfinite"),
            windows=None if watched.evaluation is None else evaluation.headline,
            judgement=evaluation.judgement,
            ended_seconds=evaluation.ended_seconds(time.time()),
        )
        live = self._live(model, situation, watched.lag if answers else None)
        return {"live": event("live", live)} | watched.figures_if_new()

    def _freshness(self, prepared: bool, quiet: float) -> Literal["fresh", "stale", "unavailable"]:
        if not prepared:
            return "unavailable"
        return "stale" if quiet > self._settings.stale_after_seconds else "fresh"

    def _live(self, model: OpenModel, now: Situation, lag: LogLag | None) -> dict[str, Any]:
        replica = model.mirror.replica
        found = verdict(now)
        return {
            "time": time.time(),
            "model": model.name,
            "models": self._names,
            "aliases": self._services.aliases.targets,
            "revision": replica.revision,
            "incarnation": replica.keys.incarnation,
            "t": now.rounds,
            "features_seen": replica.state.features_seen,
            "features_dropped": replica.state.discount.dropped,
            "verdict": found._asdict() | {"checks": [check._asdict() for check in found.checks]},
            "predict": now.predict,
            "update": now.update,
            "mirror_age_seconds": now.quiet_seconds,
            "learner": now.learner,
            "lag": None if lag is None else {"examples": lag.examples, "seconds": lag.seconds},
            "awaiting": now.awaiting.sentence if now.awaiting else "",
            "rates": _rates(now.rates) | {"learned": now.learned_per_second},
        }

    async def close(self) -> None:
        await self._watch(())
        await self._channel.close()


def event(kind: str, content: object) -> bytes:
    return event_of(kind, json.dumps(content, allow_nan=False).encode())


def event_of(kind: str, content: bytes) -> bytes:
    """Formats an event whose data is JSON in one line."""
    return b"event: " + kind.encode() + b"\ndata: " + content + b"\n\n"


def _rates(rates: Rates) -> dict[str, Any]:
    latencies = {"predict": rates.predict, "of_model": rates.of_model, "update": rates.update}
    return {
        "predictions": rates.predictions,
        "requests": rates.requests,
        "failures": rates.failures,
        **{name: None if one is None else one._asdict() for name, one in latencies.items()},
    }
