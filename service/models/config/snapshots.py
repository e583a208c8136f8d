"""Whether a model goes back to a good snapshot by itself: the section `snapshots` of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from model_core.errors import InvalidInput

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
