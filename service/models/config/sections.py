"""The optional sections of a model's configuration: `evaluation`, `feedback` and `snapshots`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from model_core.errors import InvalidInput
from model_core.hashing.contract import Limits, check_name

MIN_COMPARED, MAX_COMPARED = 100, 1_000_000
MAX_MARGIN = 1e6
MAX_SECONDS = 30 * 86_400
MIN_BYTES, MAX_BYTES = 1 << 16, 1 << 40
MIN_SAMPLE_RATE = 1e-6
MAX_SLICED, MAX_SLICES = 8, 100


@dataclass(frozen=True)
class AutoRollback:
    """examples: the number compared at a time. margin: the increase of mean log loss that counts as worse."""

    examples: int = 5_000
    margin: float = 0.01

    @classmethod
    def from_json(cls, body: object) -> AutoRollback:
        """Raises InvalidInput with the path."""
        fields = _object(body, "auto_rollback", ("examples", "margin"))
        return cls(_examples(fields.get("examples", cls.examples)), _margin(fields.get("margin", cls.margin)))


@dataclass(frozen=True)
class SnapshotsConfig:
    """auto_rollback: None is off."""

    auto_rollback: AutoRollback | None = None

    @classmethod
    def from_json(cls, body: object) -> SnapshotsConfig:
        """Raises InvalidInput with the path."""
        gate = _object(body, "snapshots", ("auto_rollback",)).get("auto_rollback")
        if gate is None:
            return cls()
        try:
            return cls(AutoRollback.from_json(gate))
        except InvalidInput as wrong:
            raise wrong.within("auto_rollback") from None

    def to_json(self) -> dict[str, Any]:
        return {"auto_rollback": None if self.auto_rollback is None else asdict(self.auto_rollback)}


def _object(body: object, what: str, names: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise InvalidInput((), "must be an object", "wrong_type")
    for name in body:
        if name not in names:
            allowed = " and ".join(f"`{one}`" for one in names)
            raise InvalidInput((str(name),), f"unknown field; `{what}` has {allowed}", "unknown_field")
    return body


def _examples(value: object) -> int:
    if type(value) is not int or not MIN_COMPARED <= value <= MAX_COMPARED:
        raise InvalidInput(("examples",), f"must be an integer from {MIN_COMPARED} to {MAX_COMPARED}")
    return value


def _margin(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_MARGIN:
        raise InvalidInput(("margin",), f"must be a number from 0 to {MAX_MARGIN:g}")
    return float(value)


@dataclass(frozen=True)
class FeedbackConfig:
    """log: /predict logs predictions unless the request says otherwise.
    wait: the reply of /predict waits until they are logged.
    exposure: "explicit" if POST /impressions reports what was shown, "on_predict" if every logged prediction
        counts as shown.
    window_seconds: time from exposure until a prediction without a click gets label 0.
    learn_at: a label is learned at the end of its window, as label 0 is, or when it arrives.
    late: a click after the window is dropped or appended.
    late_seconds: time after the window for which a prediction is known to late clicks.
    unshown_seconds: time for which a logged prediction may be reported as shown.
    grace_seconds: minimum time for which an early label is held until its prediction is shown.
    negative_sample_rate: share of the labels 0 that is learned, each with the inverse weight.
    max_bytes: limit of all pending predictions in Redis; above it, predictions are served but not logged.
    """

    log: bool = False
    wait: bool = True
    exposure: Literal["explicit", "on_predict"] = "explicit"
    window_seconds: float = 1800.0
    learn_at: Literal["window_close", "arrival"] = "window_close"
    late: Literal["drop", "append"] = "drop"
    late_seconds: float = 1800.0
    unshown_seconds: float = 600.0
    grace_seconds: float = 60.0
    negative_sample_rate: float = 1.0
    max_bytes: int = 1 << 28

    @property
    def longest_wait_seconds(self) -> float:
        """Upper bound of the time from a prediction until it is removed, with due times rounded up."""
        waits = (self.unshown_seconds, self.grace_seconds, self.window_seconds, self.late_seconds)
        return sum(wait * 31 / 30 + 2 for wait in waits)

    @classmethod
    def from_json(cls, body: object) -> FeedbackConfig:
        """Raises InvalidInput with the path."""
        if not isinstance(body, Mapping):
            raise InvalidInput((), "must be an object", "wrong_type")
        for name in body:
            if name not in _CHECKS:
                known = ", ".join(field.name for field in fields(cls))
                raise InvalidInput((name,), f"unknown field; a feedback has {known}", "unknown_field")
        return cls(**{name: _CHECKS[name](value, name) for name, value in body.items()})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput((name,), "must be true or false", "wrong_type")
    return value


def _one_of(*choices: str) -> Callable[[object, str], str]:
    def check(value: object, name: str) -> str:
        if not isinstance(value, str) or value not in choices:
            raise InvalidInput((name,), f"must be one of {', '.join(choices)}")
        return value

    return check


def _number(low: float, high: float) -> Callable[[object, str], float]:
    def check(value: object, name: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise InvalidInput((name,), f"must be a number from {low:g} to {high:g}")
        return float(value)

    return check


def _bytes(value: object, name: str) -> int:
    if type(value) is not int or not MIN_BYTES <= value <= MAX_BYTES:
        raise InvalidInput((name,), f"must be an integer from {MIN_BYTES} to {MAX_BYTES}")
    return value


_CHECKS: dict[str, Callable[[object, str], Any]] = {
    "log": _flag,
    "wait": _flag,
    "exposure": _one_of("explicit", "on_predict"),
    "window_seconds": _number(1, MAX_SECONDS),
    "learn_at": _one_of("window_close", "arrival"),
    "late": _one_of("drop", "append"),
    "late_seconds": _number(1, MAX_SECONDS),
    "unshown_seconds": _number(1, MAX_SECONDS),
    "grace_seconds": _number(1, MAX_SECONDS),
    "negative_sample_rate": _number(MIN_SAMPLE_RATE, 1),
    "max_bytes": _bytes,
}


_FIELDS = ("slices", "most")


@dataclass(frozen=True)
class EvaluationConfig:
    """slices: names of features. most: the number of values of each, the most frequent ones, that are slices
    of their own; the others share one slice.
    """

    slices: tuple[str, ...] = ()
    most: int = 20

    @classmethod
    def from_json(cls, body: object) -> EvaluationConfig:
        """Raises InvalidInput with the path."""
        if not isinstance(body, Mapping):
            raise InvalidInput((), "must be an object", "wrong_type")
        for name in body:
            if name not in _FIELDS:
                raise InvalidInput(
                    (name,), "unknown field; an evaluation has `slices` and `most`", "unknown_field"
                )
        return cls(_names(body.get("slices", [])), _most(body.get("most", cls.most)))

    def to_json(self) -> dict[str, Any]:
        return {"slices": list(self.slices), "most": self.most}


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_SLICED:
        raise InvalidInput(("slices",), f"must be a list of at most {MAX_SLICED} names of features")
    for i, name in enumerate(value):
        if not isinstance(name, str):
            raise InvalidInput(("slices", i), "must be the name of a feature", "wrong_type")
        check_name(name, ("slices", i), Limits().name_bytes)
        if name in value[:i]:
            raise InvalidInput(("slices", i), "is named twice", "duplicate_name")
    return tuple(value)


def _most(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MAX_SLICES:
        raise InvalidInput(("most",), f"must be an integer from 1 to {MAX_SLICES}")
    return value
