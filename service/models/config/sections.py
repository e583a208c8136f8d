"""The optional sections of a model's configuration: `evaluation`, `feedback` and `snapshots`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from model_core.errors import InvalidInput
from model_core.hashing.contract import Limits, check_name

FEWEST, MOST = 100, 1_000_000
LARGEST_MARGIN = 1e6


@dataclass(frozen=True)
class AutoRollback:
    """examples: how many are compared at a time. margin: by how much the mean log loss has to be worse."""

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
    if type(value) is not int or not FEWEST <= value <= MOST:
        raise InvalidInput(("examples",), f"must be an integer from {FEWEST} to {MOST}")
    return value


def _margin(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_MARGIN:
        raise InvalidInput(("margin",), f"must be a number from 0 to {LARGEST_MARGIN:g}")
    return float(value)


MAX_SECONDS = 30 * 86_400
MAX_BYTES = 1 << 40
LEAST_BYTES = 1 << 16
LEAST_RATE = 1e-6


@dataclass(frozen=True)
class FeedbackConfig:
    """log: whether /predict keeps predictions unless the request says otherwise.
    wait: whether its reply waits until they are kept.
    exposure: whether POST /impressions says what was shown, or every logged prediction counts as shown.
    window_seconds: from exposure until no click becomes a label 0.
    learn_at: whether a label is learned at the end of its window, as label 0 is, or when it arrives.
    late: what becomes of a click after the window.
    late_seconds: how long after the window it is known whose click it is.
    unshown_seconds: how long a prediction waits to be shown.
    grace_seconds: how long a label waits for the exposure of its prediction at least.
    negative_sample_rate: share of the labels 0 that is learned, each with the inverse weight.
    max_bytes: what all that waits may take of Redis; beyond, predictions are served and not logged.
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
        """From a prediction until nothing is known of it any more; what is due is rounded up on the way."""
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


def _number(least: float, most: float) -> Callable[[object, str], float]:
    def check(value: object, name: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise InvalidInput((name,), f"must be a number from {least:g} to {most:g}")
        return float(value)

    return check


def _bytes(value: object, name: str) -> int:
    if type(value) is not int or not LEAST_BYTES <= value <= MAX_BYTES:
        raise InvalidInput((name,), f"must be an integer from {LEAST_BYTES} to {MAX_BYTES}")
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
    "negative_sample_rate": _number(LEAST_RATE, 1),
    "max_bytes": _bytes,
}


MAX_SLICED, MOST_SLICES = 8, 100
_FIELDS = ("slices", "most")


@dataclass(frozen=True)
class EvaluationConfig:
    """slices: names of features. most: how many values of each have figures of their own, the most frequent;
    the rest is one slice more.
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
    if type(value) is not int or not 1 <= value <= MOST_SLICES:
        raise InvalidInput(("most",), f"must be an integer from 1 to {MOST_SLICES}")
    return value
