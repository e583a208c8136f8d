"""What a restore is to do, and what it did."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from model_core.hyperparameters import Hyperparameters
from service.bulk_load import PATIENCE_SECONDS


@dataclass(frozen=True)
class RestorePlan:
    """`snapshot`: an id, a tag or "newest". `replay_log`: learn again what came after it, with `hyper` if
    given; else learning goes on from now. `may_create`: a model that is not there. `instead_of`: of a model
    that goes back by itself, the incarnation and the generation that it is to replace, and no other.
    """

    model: str
    snapshot: str
    replay_log: bool = False
    hyper: Hyperparameters | None = None
    may_create: bool = True
    instead_of: tuple[str, int] | None = None
    patience_seconds: float = PATIENCE_SECONDS


@dataclass(frozen=True)
class Restored:
    """`before`: id of the snapshot of the state that was replaced, None where there was no model. `t`: rounds
    at the switch; `replayed`: examples that were learned again until then; `seconds`: of all of it.
    """

    model: str
    snapshot: str
    before: str | None
    t: int
    replayed: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
