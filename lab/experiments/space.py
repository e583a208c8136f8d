"""The models that `ftrl tune` and `ftrl whatif` try: every combination of the given values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, NamedTuple

from model_core.errors import InvalidInput
from model_core.hashing.contract import HashContract
from service.errors import CommandFailure
from service.models.config.model import NEW_MODEL, ModelConfig

FAMILIES = ("ftrl",)
ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
BETAS = (0.1, 1.0)
L1S = (0.0, 0.5)
HALF_LIVES = (None, 100_000.0)
NOTHING_FORGOTTEN = "none"
"""The half-life of a model that does not forget, among the varied values."""
MIXTURE = "mixture"
"""The rate of a mixture, among the varied values: its experts have all the others."""

Varied = dict[str, Any]


class Option(NamedTuple):
    """A model to be tried, and the values in which it differs from the others: dimension -> value."""

    config: ModelConfig
    varied: Varied


def text_of(value: object) -> str:
    """A varied value as it is shown."""
    return f"{value:g}" if isinstance(value, float) else str(value)


MAX_OPTIONS = 1_000
"""The sums of one model's evaluation take up to 1 MiB, beside its state."""

_OF_CONTRACTS = ("hashing", "numeric", "bits")
_OF_LEARNERS = ("family", "update", "rate", "alpha", "beta", "gamma", "l1", "l2", "half_life")
DIMENSIONS = ("name", *_OF_CONTRACTS, *_OF_LEARNERS)
"""The names of all varied values, in the order in which they are shown."""
_COMBINATIONS = (("hyper",), ("hyper", "forgetting"))  # the paths of refusals that concern several values


class LeftOut(NamedTuple):
    """A combination that the service would refuse, and the reason."""

    varied: Varied
    reason: str


@dataclass(frozen=True)
class Space:
    """hyper, hashings: as in the body of PUT /models/{name}; each of `hashings` is tried.

    A dimension without values is taken from `hyper` and `hashings`; family, rate and l1, if not given there
    either, take the values above, and with the rate so does the half-life; then the mixture of a new model is
    tried, too. alphas and betas apply to the adaptive rate, gammas to the rate gamma. half_lives: in
    examples; None: nothing is forgotten.
    """

    hyper: Mapping[str, Any] = field(default_factory=dict)
    hashings: tuple[Mapping[str, Any], ...] = ({},)
    families: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()
    gammas: tuple[float, ...] = ()
    l1s: tuple[float, ...] = ()
    l2s: tuple[float, ...] = ()
    bits: tuple[int, ...] = ()
    numerics: tuple[str, ...] = ()
    half_lives: tuple[float | None, ...] = ()

    def options(self) -> tuple[list[Option], list[LeftOut]]:
        """Each model once. Raises InvalidInput if a single value is invalid, CommandFailure if there are more
        than MAX_OPTIONS combinations.
        """
        combinations = prod(len(values) for values in self._dimensions().values())
        if combinations > MAX_OPTIONS:
            raise CommandFailure(
                f"{combinations:,} combinations are more than the {MAX_OPTIONS:,} that can be tried at once:"
                " give fewer values"
            )
        found: dict[str, Option] = {}
        left_out = []
        for varied in self._combinations():
            try:
                config = ModelConfig.from_json(self._body(varied))
            except InvalidInput as refused:
                if refused.path not in _COMBINATIONS:  # an invalid value, not an invalid combination
                    raise
                left_out.append(LeftOut(varied, refused.detail))
            else:
                found.setdefault(config.canonical(), Option(config, varied))
        return list(found.values()), left_out

    def present(self, body: Mapping[str, Any]) -> Option:
        """The configuration that the candidates are compared with: that of `body`, as in PUT /models/{name}.

        The default of `hyper` is that of a new model, the default of `hashing` the first contract that is
        tried, with the default transform and size if they are among those tried. Raises InvalidInput.
        """
        hashing = body.get("hashing")
        if hashing is None:
            hashing = dict(self.hashings[0])
            for name, values in (("bits", self.bits), ("numeric", self.numerics)):
                default = getattr(HashContract(), name)
                if values:
                    hashing[name] = default if default in values else values[0]
        config = ModelConfig.from_json({"hyper": body.get("hyper", {}), "hashing": hashing})
        return Option(config, self.varied_of(config, is_tried="hashing" not in body))

    def varied_of(self, config: ModelConfig, *, is_tried: bool = True) -> Varied:
        """The values of a configuration in the dimensions of this space. is_tried: it hashes as the first
        contract does.
        """
        values = values_of(config)
        values["hashing"] = 0 if is_tried else "present"
        names = dict.fromkeys(name for varied in self._combinations() for name in varied)
        if values.get("rate") == MIXTURE:
            names["rate"] = None
        return {name: values[name] for name in names if name in values}

    def _combinations(self) -> Iterator[Varied]:
        dimensions = self._dimensions()
        for values in product(*dimensions.values()):
            varied: Varied = {}
            for name, value in zip(dimensions, values, strict=True):
                varied |= value if name == "rate" else {name: value}
            yield varied
        if self._tries_mixture:
            contracts = {name: dimensions[name] for name in _OF_CONTRACTS if name in dimensions}
            for values in product(*contracts.values()):
                yield dict(zip(contracts, values, strict=True)) | {"rate": MIXTURE}

    def _dimensions(self) -> dict[str, tuple[Any, ...]]:
        """The dimensions with values, by name; the slowest to vary first. A rate is several values."""
        dimensions = {
            "hashing": tuple(range(len(self.hashings))) if len(self.hashings) > 1 else (),
            "numeric": self.numerics,
            "bits": self.bits,
            "family": self.families or self._default("family", FAMILIES),
            "update": self.updates,
            "rate": self._rates(),
            "l1": self.l1s or self._default("l1", L1S),
            "l2": self.l2s,
            "half_life": tuple(NOTHING_FORGOTTEN if h is None else h for h in self._half_lives()),
        }
        return {name: values for name, values in dimensions.items() if values}

    def _rates(self) -> tuple[Varied, ...]:
        alphas, betas = self.alphas, self.betas
        if not self._is_rate_given:
            alphas, betas = ALPHAS, betas or BETAS
        adaptive: list[Varied] = [{"alpha": a} for a in alphas] or [{}] * bool(betas)
        if betas:
            adaptive = [rate | {"beta": b} for rate in adaptive for b in betas]
        return (*adaptive, *({"gamma": g} for g in self.gammas))

    @property
    def _tries_mixture(self) -> bool:
        """Where neither the rate is given nor anything that a mixture cannot have."""
        others = self.updates or set(self.hyper) - {"l2", "box"}
        return not (self._is_rate_given or others) and "ftrl" in (self.families or FAMILIES)

    def _half_lives(self) -> tuple[float | None, ...]:
        return self.half_lives or (() if self._is_rate_given else self._default("forgetting", HALF_LIVES))

    @property
    def _is_rate_given(self) -> bool:
        return bool(self.alphas or self.gammas) or "rate" in self.hyper

    def _default(self, name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        is_mixture = _values_of_rate(self.hyper.get("rate")).get("rate") == MIXTURE
        return () if name in self.hyper or is_mixture else values

    def _body(self, varied: Varied) -> dict[str, Any]:
        hyper, hashing = dict(self.hyper), dict(self.hashings[varied.get("hashing", 0)])
        hyper |= {name: varied[name] for name in ("family", "update", "l1", "l2") if name in varied}
        hashing |= {name: varied[name] for name in ("bits", "numeric") if name in varied}
        if varied.get("rate") == MIXTURE:
            return {"hyper": hyper | {"rate": NEW_MODEL.to_json()["rate"]}, "hashing": hashing}
        if "half_life" in varied:
            known = varied["half_life"] != NOTHING_FORGOTTEN
            hyper["forgetting"] = {"half_life_examples": varied["half_life"]} if known else None
        for kind, names in (("adaptive", ("alpha", "beta")), ("gamma", ("gamma",))):
            fields = {name: varied[name] for name in names if name in varied}
            if fields:
                hyper["rate"] = self._other_fields_of_rate(kind) | {"kind": kind} | fields
        return {"hyper": hyper, "hashing": hashing}

    def _other_fields_of_rate(self, kind: str) -> dict[str, Any]:
        """beta or floor, if `hyper` has a rate of this kind."""
        rate = self.hyper.get("rate")
        return dict(rate) if isinstance(rate, dict) and rate.get("kind") == kind else {}


def values_of(config: ModelConfig) -> Varied:
    """The values of a configuration in all dimensions that it has."""
    hyper, hashing = config.hyper.to_json(), config.hashing.to_json()
    values = hyper | _values_of_rate(hyper["rate"]) | {name: hashing[name] for name in ("bits", "numeric")}
    half_life = config.hyper.forgetting
    if config.hyper.number_of_experts == 1:
        values["half_life"] = NOTHING_FORGOTTEN if half_life is None else half_life.length
    if half_life is not None and half_life.unit == "seconds":
        values["half_life"] = f"{half_life.length:g} s"
    return {name: values[name] for name in DIMENSIONS if values.get(name) is not None}


def _values_of_rate(rate: object) -> Varied:
    """The varied values that a rate has, given as in `hyper`."""
    if not isinstance(rate, dict):
        return {}
    return {"rate": MIXTURE} if rate.get("kind") == "mixture" else {"rate": None} | rate
