"""The models that `ftrl tune` tries: every combination of the given values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

from model_core.errors import InvalidInput
from service.models.config.model import ModelConfig

FAMILIES = ("ftrl", "rda")
ALPHAS = (0.02, 0.05, 0.1, 0.2)
L1S = (0.0, 0.5, 2.0)

Varied = dict[str, Any]


class Option(NamedTuple):
    """A model to be tried, and the values in which it differs from the others: dimension -> value."""

    config: ModelConfig
    varied: Varied


class LeftOut(NamedTuple):
    """A combination that the service would refuse, and the reason."""

    varied: Varied
    reason: str


@dataclass(frozen=True)
class Space:
    """hyper, hashings: as in the body of PUT /models/{name}; each of `hashings` is tried.

    A dimension without values is taken from `hyper` and `hashings`; family, rate and l1, if not given there
    either, take the values above. alphas apply to the adaptive rate, gammas to the rate gamma.
    """

    hyper: Mapping[str, Any] = field(default_factory=dict)
    hashings: tuple[Mapping[str, Any], ...] = ({},)
    families: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    gammas: tuple[float, ...] = ()
    l1s: tuple[float, ...] = ()
    l2s: tuple[float, ...] = ()
    bits: tuple[int, ...] = ()
    numerics: tuple[str, ...] = ()

    def options(self) -> tuple[list[Option], list[LeftOut]]:
        """Each model once. Raises InvalidInput if a single value is invalid."""
        found: dict[str, Option] = {}
        left_out = []
        for varied in self._combinations():
            try:
                config = ModelConfig.from_json(self._body(varied))
            except InvalidInput as refused:
                if refused.path != ("hyper",):  # an invalid value, not an invalid combination
                    raise
                left_out.append(LeftOut(varied, refused.detail))
            else:
                found.setdefault(config.canonical(), Option(config, varied))
        return list(found.values()), left_out

    def _combinations(self) -> Iterator[Varied]:
        dimensions = self._dimensions()
        for values in product(*dimensions.values()):
            pairs = zip(dimensions, values, strict=True)
            yield dict(value if name == "rate" else (name, value) for name, value in pairs)

    def _dimensions(self) -> dict[str, tuple[Any, ...]]:
        """The dimensions with values, by name; the slowest to vary first."""
        rates = [("alpha", a) for a in self.alphas] + [("gamma", g) for g in self.gammas]
        dimensions = {
            "hashing": tuple(range(len(self.hashings))) if len(self.hashings) > 1 else (),
            "numeric": self.numerics,
            "bits": self.bits,
            "family": self.families or self._default("family", FAMILIES),
            "update": self.updates,
            "rate": tuple(rates) or self._default("rate", tuple(("alpha", a) for a in ALPHAS)),
            "l1": self.l1s or self._default("l1", L1S),
            "l2": self.l2s,
        }
        return {name: values for name, values in dimensions.items() if values}

    def _default(self, name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return () if name in self.hyper else values

    def _body(self, varied: Varied) -> dict[str, Any]:
        hyper, hashing = dict(self.hyper), dict(self.hashings[varied.get("hashing", 0)])
        hyper |= {name: varied[name] for name in ("family", "update", "l1", "l2") if name in varied}
        hashing |= {name: varied[name] for name in ("bits", "numeric") if name in varied}
        for name, kind in (("alpha", "adaptive"), ("gamma", "gamma")):
            if name in varied:
                hyper["rate"] = self._other_fields_of_rate(kind) | {"kind": kind, name: varied[name]}
        return {"hyper": hyper, "hashing": hashing}

    def _other_fields_of_rate(self, kind: str) -> dict[str, Any]:
        """beta or floor, if `hyper` has a rate of this kind."""
        rate = self.hyper.get("rate")
        return dict(rate) if isinstance(rate, dict) and rate.get("kind") == kind else {}
