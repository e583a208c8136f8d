"""The history of a model's figures: how they are packed, and what a reader is shown of them.

The learner that leads adds the figures of each moment, and a mark where something happened to the model
(`service/learning/history.py`). All is in Redis, so it survives restarts and every process shows the same.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

from model_core.evaluation.figures import Figures, Window
from service.storage.channel import Channel
from service.storage.records import ModelKeys
from service.storage.scripts.history import Mark, read_entries

Span = Literal["1h", "24h", "7d", "30d"]
FIGURES = ("auc", "log_loss", "calibration_ratio", "base_rate")
WINDOWS: tuple[Window, ...] = ("15m", "1h", "24h")
STEP_SECONDS = 5.0
IDLE_STEP_SECONDS = 60.0
"""Between figures while nothing is learned: they do not change."""

Row = TypeVar("Row")

_HOUR = 3600.0
_DAY = 24 * _HOUR
_LENGTHS = {
    "1h": (_HOUR, STEP_SECONDS),
    "24h": (_DAY, 300.0),
    "7d": (7 * _DAY, 900.0),
    "30d": (30 * _DAY, _HOUR),
}
_GAP_STEPS = 3
_ROW = struct.Struct(f"<d3f{len(WINDOWS) * len(FIGURES)}f")
_WEIGHT = struct.Struct("<f")


class Moment(NamedTuple):
    """The figures of one moment; those that are not known are NaN.

    t: completed rounds. figures: those of FIGURES for each of WINDOWS, in order. experts: the weight of each
    expert of a mixture.
    """

    t: int
    backlog: float
    lag_seconds: float
    density: float
    figures: tuple[float, ...]
    experts: tuple[float, ...] = ()

    def packed(self) -> bytes:
        row = _ROW.pack(self.t, self.backlog, self.lag_seconds, self.density, *self.figures)
        return row + b"".join(map(_WEIGHT.pack, self.experts))

    @classmethod
    def unpack(cls, packed: bytes) -> Moment:
        """Raises struct.error if it is shorter than a moment."""
        t, backlog, lag_seconds, density, *figures = _ROW.unpack_from(packed)
        weights = packed[_ROW.size : len(packed) - (len(packed) - _ROW.size) % _WEIGHT.size]
        experts = tuple(weight for (weight,) in _WEIGHT.iter_unpack(weights))
        return cls(int(t), backlog, lag_seconds, density, tuple(figures), experts)


def figures_of(windows: Iterable[Figures]) -> tuple[float, ...]:
    """The part of a moment that the figures of all windows by weight have."""
    by_window = {figures.window: figures for figures in windows}
    values = (getattr(by_window[window], name) for window in WINDOWS for name in FIGURES)
    return tuple(math.nan if value is None else value for value in values)


class Past(NamedTuple):
    """Moments and marks with their times, in milliseconds since the epoch."""

    moments: list[tuple[int, Moment]]
    marks: list[tuple[int, Mark]]


async def read_past(channel: Channel, keys: ModelKeys, span: Span, after_ms: int) -> Past:
    """Reads what is later than `after_ms`: of each step of the span the last moment. Raises what Channel.call
    raises.
    """
    by_seconds, by_minutes = keys.history
    stream = by_seconds if span == "1h" else by_minutes
    rows = thinned(await read_entries(channel, stream, after_ms), _LENGTHS[span][1])
    marks = await read_entries(channel, keys.marks, after_ms)
    return Past(
        [(at, Moment.unpack(fields[b"r"])) for at, fields in rows],
        [(at, Mark(fields[b"kind"].decode(), fields[b"detail"].decode())) for at, fields in marks],
    )


def length_seconds(span: Span) -> float:
    return _LENGTHS[span][0]


def past_as_json(past: Past, span: Span) -> dict[str, Any]:
    """Columns of equal length, by time; null where a figure is not known, and for a moment in each gap."""
    step = _LENGTHS[span][1]
    rows = list(_with_gaps(past.moments, max(step, IDLE_STEP_SECONDS) * _GAP_STEPS))
    moments = [moment for _, moment in rows]
    windows = {
        window: {
            name: [None if m is None else _number(m.figures[i * len(FIGURES) + j]) for m in moments]
            for j, name in enumerate(FIGURES)
        }
        for i, window in enumerate(WINDOWS)
    }
    experts = max((len(m.experts) for m in moments if m is not None), default=0)
    return {
        "span": span,
        "step_seconds": step,
        "time": [at / 1000 for at, _ in rows],
        "learned": _learned(rows),
        "backlog": [None if m is None else _number(m.backlog) for m in moments],
        "lag_seconds": [None if m is None else _number(m.lag_seconds) for m in moments],
        "density": [None if m is None else _number(m.density) for m in moments],
        "windows": windows,
        "experts": [
            [None if m is None or k >= len(m.experts) else _number(m.experts[k]) for m in moments]
            for k in range(experts)
        ],
        "marks": [{"time": at / 1000, **mark._asdict()} for at, mark in past.marks],
    }


def thinned(rows: Iterable[tuple[int, Row]], step_seconds: float) -> list[tuple[int, Row]]:
    """The last row of each step, of rows with their times in milliseconds."""
    return list({int(at // (step_seconds * 1000)): (at, row) for at, row in rows}.values())


def _with_gaps(
    moments: Sequence[tuple[int, Moment]], gap_seconds: float
) -> Iterator[tuple[int, Moment | None]]:
    for (at, moment), (following, _) in pairwise([*moments, *moments[-1:]]):
        yield at, moment
        if following - at > gap_seconds * 1000:
            yield at + 1, None


def _learned(rows: Sequence[tuple[int, Moment | None]]) -> list[float | None]:
    """Examples a second since the moment before; null after a gap, and where the rounds went back."""
    rates: list[float | None] = [None] * len(rows)
    for k, ((began, before), (ended, now)) in enumerate(pairwise(rows), 1):
        if before is not None and now is not None and now.t >= before.t and ended > began:
            rates[k] = _number((now.t - before.t) * 1000 / (ended - began))
    return rates


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
