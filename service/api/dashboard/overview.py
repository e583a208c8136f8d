"""All models at once, a line for each: read from Redis alone, so that no model is loaded to be listed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from typing import Any

from redis.exceptions import ResponseError

from service.api.dashboard.figures import Evaluation, evaluation_of, read_field
from service.api.dashboard.verdict import Level, Situation, verdict
from service.api.routes.health import readiness
from service.api.schemas import Readiness
from service.api.services import Services
from service.errors import StateUnavailable
from service.example_log.lag import lag_of
from service.models.history import STEP_SECONDS, Moment
from service.models.replica import ModelGone, read_meta
from service.settings.groups import ModelSettings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import FIGURES, LogId, ModelKeys, mapping_of

MAX_MODELS = 200
KEPT_SECONDS = 2.0
"""For which all readers are sent the same lines."""
_URGENCY: tuple[Level, ...] = ("bad", "watch", "good", "none")


class Overview:
    """The lines of all models, read once for all readers that ask within KEPT_SECONDS."""

    def __init__(self, services: Services, settings: ModelSettings) -> None:
        self._services = services
        self._settings = settings
        self._reading: asyncio.Task[dict[str, Any]] | None = None
        self._read_at = 0.0

    async def read(self) -> dict[str, Any]:
        """Raises StateUnavailable."""
        now = time.monotonic()
        if self._reading is None or now > self._read_at + KEPT_SECONDS:
            self._reading, self._read_at = asyncio.create_task(self._read()), now
        return await asyncio.shield(self._reading)

    async def _read(self) -> dict[str, Any]:
        names = await self._services.models.names()
        report, aliases = readiness(self._services, self._settings), self._services.aliases.targets
        lines = []
        channel = self._services.channel()
        try:
            for name in names[:MAX_MODELS]:
                with contextlib.suppress(ModelGone):
                    line = await _line(channel, name, report)
                    lines.append(
                        line | {"aliases": sorted(a for a, model in aliases.items() if model == name)}
                    )
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            raise StateUnavailable("Redis does not answer.") from failure
        finally:
            await channel.close()
        return {"models": most_urgent_first(lines), "left_out": names[MAX_MODELS:], "time": time.time()}


def most_urgent_first(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Order lines by their level; those of one level stay in order."""
    return sorted(lines, key=lambda line: _URGENCY.index(line["level"]))


async def _line(channel: Channel, name: str, report: Readiness) -> dict[str, Any]:
    meta = await read_meta(channel, name)
    keys = ModelKeys(name, meta.incarnation)
    lag = await lag_of(channel, keys)
    learner = bool(await channel.call("EXISTS", keys.lease))
    evaluation = evaluation_of(await read_field(channel, keys, FIGURES))
    newest = await channel.call("XREVRANGE", keys.history[0], "+", "-", "COUNT", 2)
    learned = _learned_per_second(newest, meta.t, time.time())
    situation = Situation(
        predict="fresh" if report.predict != "unavailable" else "unavailable",
        update=report.update,
        reasons=report.reasons,
        learner=learner,
        backlog=lag.examples,
        lag_seconds=lag.seconds,
        learned_per_second=learned,
        rounds=meta.t,
        nonfinite=evaluation.measures.get("nonfinite"),
        windows=evaluation.headline,
        judgement=evaluation.judgement,
        ended_seconds=evaluation.ended_seconds(time.time()),
    )
    found = verdict(situation)
    return {
        "model": name,
        "follows": meta.follows.model if meta.follows else None,
        "level": found.level,
        "headline": found.headline,
        "t": meta.t,
        "learned": learned,
        "lag": {"examples": lag.examples, "seconds": lag.seconds},
        "snapshot": await _newest_snapshot(channel, keys),
        **_figures(evaluation),
    }


def _figures(evaluation: Evaluation) -> Mapping[str, Any]:
    """Take the figures of the window that is judged; before one is, of the last hour."""
    window = (evaluation.judgement or {}).get("window", "1h")
    figures = evaluation.headline.get(window, {})
    names = ("auc", "auc_interval", "log_loss", "calibration_ratio")
    return {"window": window, **{name: figures.get(name) for name in names}}


def _learned_per_second(
    newest_first: list[tuple[bytes, list[bytes]]], rounds: int, now: float
) -> float | None:
    """The rate since the last moment of the history, or before that if it has just been added."""
    moments = [
        (LogId.parse(entry).milliseconds / 1000, Moment.unpack(mapping_of(fields)[b"r"]).t)
        for entry, fields in newest_first
    ]
    for began, before in moments:
        if now - began >= STEP_SECONDS:
            return max(0, rounds - before) / (now - began)
    return None


async def _newest_snapshot(channel: Channel, keys: ModelKeys) -> str | None:
    """The id of the newest snapshot of this incarnation, as its history knows."""
    seen = await channel.call("GET", keys.marks_seen)
    return None if seen is None else json.loads(seen).get("snapshot") or None
