"""Requests and results of calls."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Features = Mapping[str, Any] | Sequence[tuple[str, Any]]
"""Values by name, or pairs that may repeat a name: text, numbers, booleans, lists of them, or None."""


def new_id() -> str:
    """A random id of 32 hexadecimal digits."""
    return uuid.uuid4().hex


def features_json(features: Features) -> Any:
    """An object, or a list of pairs."""
    return dict(features) if isinstance(features, Mapping) else [list(pair) for pair in features]


@dataclass(frozen=True, slots=True)
class Example:
    """Features and their outcome: label 1 for a click, 0 for none, or between (a dwell time, a soft label).

    weight: a multiple of the loss. sample_rate: the share of such examples that is sent. event_time: a time
    with a zone, or seconds since 1970. event_id: an example is learned once under its id, so an `Example`
    that is sent again is no second one.
    """

    features: Features
    label: float | bool
    weight: float | None = None
    sample_rate: float | None = None
    event_time: datetime | float | None = None
    event_id: str = field(default_factory=new_id)

    def to_json(self) -> dict[str, Any]:
        time = self.event_time.isoformat() if isinstance(self.event_time, datetime) else self.event_time
        optional = {"weight": self.weight, "sample_rate": self.sample_rate, "event_time": time}
        required = {"features": features_json(self.features), "label": self.label, "event_id": self.event_id}
        return required | _given(optional)


@dataclass(frozen=True, slots=True)
class Label:
    """The label of a logged prediction, by its id: from 0 to 1. It counts once, however often it is sent."""

    id: str
    label: float | bool
    weight: float | None = None
    sample_rate: float | None = None

    def to_json(self) -> dict[str, Any]:
        optional = {"weight": self.weight, "sample_rate": self.sample_rate}
        return {"id": self.id, "label": self.label} | _given(optional)


@dataclass(frozen=True, slots=True)
class Instance:
    """Features to predict. Under the same id a prediction is logged once."""

    features: Features
    id: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"features": features_json(self.features)} | _given({"id": self.id})


@dataclass(frozen=True, slots=True)
class Prediction:
    """revision: the state that was used. logged: whether it awaits its label; None if it was not to."""

    probability: float
    id: str | None
    logged: bool | None
    model: str
    revision: str


@dataclass(frozen=True, slots=True)
class Update:
    """The outcome of an example or a label.

    status: "learned", "appended" (durable, learned later), "duplicate", "skipped"; of a label also "waiting",
    "sampled_out", "late", "conflict" and "unknown"; in a stream also "invalid". probability, loss: just
    before it was learned; None while unknown. revision: the state that has learned it. detail: why it is
    invalid.
    """

    status: str
    probability: float | None
    loss: float | None
    revision: str | None
    event_id: str | None
    id: str | None
    detail: str | None = None


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
