"""The hyperparameters of a model (family, update, learning rate, schedule, penalties) and their bounds.

Psi(x) = l1 |x|_1 + (psi_l2 / 2) |x|^2 + indicator of [-box, box]^n is weighted by the schedule's alpha_t;
l2 adds (l2 / 2) |x|^2 once, permanently.  Forgetting discounts the evidence, never the penalties.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Any, Literal, TypeVar, get_args

from model_core.errors import InvalidInput
from model_core.learning.schedules import Constant, Custom, InvSqrt, Once, OverT, Schedule, Xiao

Family = Literal["ftrl", "rda", "comid", "aogd"]
Update = Literal["first_order", "implicit"]

SMALLEST, LARGEST = 1e-9, 1e6
LONGEST_SCHEDULE = 10_000
LARGEST_T = 10**15
LONGEST_HALF_LIFE = 1e12
MOST_EXPERTS = 8
LARGEST_SHARE = 0.5
SMALLEST_TRACE = 1e-30


@dataclass(frozen=True)
class AdaptiveRate:
    """Q_{1:t} = (beta + sqrt(n_t)) / alpha per coordinate (McMahan et al. 2013)."""

    alpha: float = 0.1
    beta: float = 1.0


@dataclass(frozen=True)
class GammaRate:
    """Q_{1:t} = max(floor, sqrt(n_t) / gamma) per coordinate (the paper's experiments)."""

    gamma: float
    floor: float = 0.0


@dataclass(frozen=True)
class ScalarRate:
    """Q_{1:t} = factor G sqrt(2 t) / D for all coordinates (Corollary 1; factor 2 for rda and aogd)."""

    G: float
    D: float
    factor: float = 1.0


@dataclass(frozen=True)
class HalfLife:
    """After so many rounds ("examples"), or so much of the model's time ("seconds"), evidence counts half.

    Before round t, with D_t rounds or seconds since the round before, z <- d z and n <- d^2 n for every
    coordinate, d = 2^-(D_t / length).
    """

    unit: Literal["examples", "seconds"]
    length: float


@dataclass(frozen=True)
class Expert:
    """One model of a mixture: FTRL-Proximal with a rate, an l1 and a half-life of its own."""

    rate: AdaptiveRate = AdaptiveRate()
    l1: float = 0.5
    forgetting: HalfLife | None = None


@dataclass(frozen=True)
class MixtureRate:
    """Several experts learn the same examples, and their Bayes mixture is served.

    share: the part of the experts' weights that is spread evenly again after each example.
    """

    experts: tuple[Expert, ...]
    share: float = 1e-4


Rate = AdaptiveRate | GammaRate | ScalarRate | MixtureRate

_RATES: dict[type[Any], str] = {
    AdaptiveRate: "adaptive",
    GammaRate: "gamma",
    ScalarRate: "scalar",
    MixtureRate: "mixture",
}
_SCHEDULES: dict[type[Any], str] = {
    Constant: "constant",
    OverT: "over_T",
    Once: "once",
    InvSqrt: "inv_sqrt",
    Xiao: "xiao",
    Custom: "custom",
}


@dataclass(frozen=True)
class Hyperparameters:
    """The defaults are those of one expert alone, in which formulas and tests are stated; a new model of the
    service is a mixture (service/models/config/model.py).  from_json validates; the constructor trusts its
    caller.

    With a mixture, l1 and forgetting here are without effect: each expert has its own.

    drop_below: a feature is dropped once all that forgets has weight 0 for it and an n below this; None: it
    stays (rows.drop_faded).
    """

    family: Family = "ftrl"
    update: Update = "first_order"
    rate: Rate = AdaptiveRate()
    schedule: Schedule = field(default_factory=Once)
    l1: float = 0.5
    l2: float = 0.0
    psi_l2: float = 0.0
    box: float | None = None
    forgetting: HalfLife | None = None
    drop_below: float | None = None

    @classmethod
    def from_json(cls, obj: object) -> "Hyperparameters":
        """Parsed JSON, as to_json writes it; what is left out takes its default.

        InvalidInput names the path of the first thing that is wrong, and says what is allowed and why.
        """
        fields = _object(
            obj,
            (),
            {"family", "update", "rate", "schedule", "l1", "l2", "psi_l2", "box", "forgetting", "drop_below"},
        )
        default = cls()
        family = _choice(fields.get("family", default.family), ("family",), get_args(Family))
        update = _choice(fields.get("update", default.update), ("update",), get_args(Update))
        box, drop_below = fields.get("box"), fields.get("drop_below")
        hyper = cls(
            family,
            update,
            _rate(fields["rate"], family) if "rate" in fields else default.rate,
            _schedule(fields["schedule"]) if "schedule" in fields else default.schedule,
            _l1(fields, (), default.l1),
            _number(fields.get("l2", default.l2), ("l2",), 0.0, "l2/2 times x squared is a penalty"),
            _number(fields.get("psi_l2", 0.0), ("psi_l2",), 0.0, "psi_l2/2 times x squared is a penalty"),
            None
            if box is None
            else _number(box, ("box",), SMALLEST, "weights stay in [-box, box]; null: no box"),
            _half_life(fields.get("forgetting")),
            None if drop_below is None else _number(drop_below, ("drop_below",), SMALLEST_TRACE, _DROPPED),
        )
        if isinstance(hyper.rate, MixtureRate):
            hyper = _mixture(hyper, hyper.rate, fields)
        elif hyper.forgetting is not None and (why := _cannot_forget(hyper)) is not None:
            raise InvalidInput(("forgetting",), why)
        if hyper.drop_below is not None and (why := _cannot_drop(hyper)) is not None:
            raise InvalidInput(("drop_below",), why)
        return hyper

    @property
    def experts(self) -> "tuple[Hyperparameters, ...]":
        """The hyperparameters of each expert of a mixture as those of a model of its own; else these."""
        if not isinstance(self.rate, MixtureRate):
            return (self,)
        return tuple(_of_expert(self, expert) for expert in self.rate.experts)

    @property
    def number_of_experts(self) -> int:
        return len(self.rate.experts) if isinstance(self.rate, MixtureRate) else 1

    def to_json(self) -> dict[str, Any]:
        """The JSON object, every field written out but `forgetting` and `drop_below` where there is none.

        That of a mixture has no l1 beside those of its experts.
        """
        schedule = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self.schedule).items()}
        return {
            "family": self.family,
            "update": self.update,
            "rate": {"kind": _RATES[type(self.rate)], **_rate_json(self.rate)},
            "schedule": {"kind": _SCHEDULES[type(self.schedule)], **schedule},
            **({} if isinstance(self.rate, MixtureRate) else {"l1": self.l1}),
            "l2": self.l2,
            "psi_l2": self.psi_l2,
            "box": self.box,
            **({} if self.forgetting is None else {"forgetting": _half_life_json(self.forgetting)}),
            **({} if self.drop_below is None else {"drop_below": self.drop_below}),
        }


def moves_untouched_weights(hyper: Hyperparameters) -> bool:
    """Test whether rounds change features that are not in the example; each then costs all features."""
    if isinstance(hyper.rate, ScalarRate) and hyper.family in ("ftrl", "comid"):
        return True
    return hyper.family in ("comid", "aogd") and hyper.psi_l2 > 0


def refusal(hyper: Hyperparameters) -> str | None:
    """Return the reason why these hyperparameters, though mathematically sound, are not served, or None.

    A served model keeps (z, n) per feature, and reads a weight from them and the number of rounds alone.
    """
    mirror_descent = hyper.family in ("comid", "aogd")
    if isinstance(hyper.rate, ScalarRate) and hyper.family != "rda":
        return (
            f"the scalar rate with family {hyper.family} moves every weight on every round, also those of "
            "features that are not in the example; use the adaptive or the gamma rate, or family rda"
        )
    if mirror_descent and hyper.psi_l2 > 0:
        return (
            f"psi_l2 with family {hyper.family} shrinks the weights of features that are not in the example "
            "by a product without a shared closed form; use l2, or family ftrl or rda"
        )
    if mirror_descent and isinstance(hyper.schedule, Once):
        return (
            f"schedule once with family {hyper.family} applies l1 on round 1 only: features first seen later "
            "are never regularised; use another schedule, or family ftrl or rda"
        )
    return None


def _names(kinds: dict[type[Any], str]) -> dict[str, set[str]]:
    """kind -> the names of its fields."""
    return {name: {f.name for f in fields_of(kind)} for kind, name in kinds.items()}


Path = tuple[str | int, ...]
Choice = TypeVar("Choice", bound=str)


def _rate(obj: object, family: Family) -> Rate:
    kind, fields = _kind(obj, ("rate",), _names(_RATES))

    def number(name: str, default: float | None, smallest: float, why: str) -> float:
        return _number(_required(fields, name, ("rate",), default), ("rate", name), smallest, why)

    if kind == "adaptive":
        return AdaptiveRate(
            number("alpha", 0.1, SMALLEST, "learning rates are alpha / (beta + sqrt(n))"),
            number("beta", 1.0, 0.0, "learning rates are alpha / (beta + sqrt(n))"),
        )
    if kind == "mixture":
        return MixtureRate(
            _experts(_required(fields, "experts", ("rate",))),
            _number(fields.get("share", 1e-4), ("rate", "share"), 0.0, _SHARED, LARGEST_SHARE),
        )
    if kind == "gamma":
        return GammaRate(
            number("gamma", None, SMALLEST, "learning rates are gamma / sqrt(n), at most 1 / floor"),
            number("floor", 0.0, 0.0, "learning rates are gamma / sqrt(n), at most 1 / floor"),
        )
    return ScalarRate(
        number("G", None, SMALLEST, "it bounds the gradients"),
        number("D", None, SMALLEST, "it bounds the weights"),
        number(
            "factor", 2.0 if family in ("rda", "aogd") else 1.0, SMALLEST, "it multiplies the inverse rate"
        ),
    )


_SHARED = "that part of the weights is spread evenly among the experts after each example"


def _experts(value: object) -> tuple[Expert, ...]:
    path: Path = ("rate", "experts")
    if not isinstance(value, list | tuple):
        raise InvalidInput(path, f"must be a list of 2 to {MOST_EXPERTS} experts", "wrong_type")
    if not 1 <= len(value) <= MOST_EXPERTS:
        raise InvalidInput(path, f"must be a list of 2 to {MOST_EXPERTS} experts", "wrong_length")
    experts = tuple(_expert(one, (*path, i)) for i, one in enumerate(value))
    units = [expert.forgetting.unit for expert in experts if expert.forgetting is not None]
    if len(set(units)) > 1:
        raise InvalidInput(
            path, "all half-lives must be of one unit: half_life_examples or half_life_seconds"
        )
    return experts


def _expert(obj: object, path: Path) -> Expert:
    default = Expert()
    fields = _object(obj, path, {"alpha", "beta", "l1", *_HALF_LIVES})
    half_lives = {name: fields[name] for name in _HALF_LIVES if fields.get(name) is not None}
    why = "learning rates are alpha / (beta + sqrt(n))"
    return Expert(
        AdaptiveRate(
            _number(fields.get("alpha", default.rate.alpha), (*path, "alpha"), SMALLEST, why),
            _number(fields.get("beta", default.rate.beta), (*path, "beta"), 0.0, why),
        ),
        _l1(fields, path, default.l1),
        _one_half_life(half_lives, path) if half_lives else None,
    )


def _rate_json(rate: Rate) -> dict[str, Any]:
    if not isinstance(rate, MixtureRate):
        return asdict(rate)
    return {"experts": [_expert_json(expert) for expert in rate.experts], "share": rate.share}


def _expert_json(expert: Expert) -> dict[str, float]:
    half_life = {} if expert.forgetting is None else _half_life_json(expert.forgetting)
    return {**asdict(expert.rate), "l1": expert.l1, **half_life}


def _mixture(hyper: Hyperparameters, rate: MixtureRate, fields: Mapping[str, object]) -> Hyperparameters:
    """Check what a mixture allows beside its rate.  A single expert is the model without a mixture."""
    for name in ("l1", "forgetting"):
        if fields.get(name) is not None:
            own = "l1" if name == "l1" else " or ".join(_HALF_LIVES)
            raise InvalidInput((name,), f"each expert of a mixture has its own: set {own} in rate.experts")
    if hyper.family != "ftrl":
        raise InvalidInput(("family",), "must be ftrl for a mixture, whose experts are FTRL-Proximal")
    if hyper.update != "first_order":
        raise InvalidInput(("update",), "must be first_order for a mixture")
    if not isinstance(hyper.schedule, Once):
        raise InvalidInput(("schedule",), "must be once for a mixture, whose experts may forget")
    return hyper if len(rate.experts) > 1 else _of_expert(hyper, rate.experts[0])


def _of_expert(hyper: Hyperparameters, expert: Expert) -> Hyperparameters:
    return replace(hyper, rate=expert.rate, l1=expert.l1, forgetting=expert.forgetting)


def _l1(fields: Mapping[str, object], path: Path, default: float) -> float:
    return _number(fields.get("l1", default), (*path, "l1"), 0.0, "l1 times |x| is a penalty")


def _schedule(obj: object) -> Schedule:
    kind, fields = _kind(obj, ("schedule",), _names(_SCHEDULES))
    if kind == "over_T":
        return OverT(_rounds(_required(fields, "T", ("schedule",))))
    if kind == "xiao":
        why = "alpha_t = 1 + rho (sqrt(t) - sqrt(t-1)) must not increase"
        return Xiao(_number(_required(fields, "rho", ("schedule",)), ("schedule", "rho"), 0.0, why))
    if kind == "custom":
        return Custom(_alphas(_required(fields, "values", ("schedule",))))
    return Constant() if kind == "constant" else Once() if kind == "once" else InvSqrt()


_HALF_LIVES: dict[str, Literal["examples", "seconds"]] = {
    "half_life_examples": "examples",
    "half_life_seconds": "seconds",
}


def _half_life(obj: object) -> HalfLife | None:
    path: Path = ("forgetting",)
    return None if obj is None else _one_half_life(_object(obj, path, set(_HALF_LIVES)), path)


def _one_half_life(fields: Mapping[str, object], path: Path) -> HalfLife:
    if len(fields) != 1:
        raise InvalidInput(path, f"must have one of {' and '.join(_HALF_LIVES)}; null: nothing is forgotten")
    ((name, value),) = fields.items()
    why = "evidence of so long ago counts half"
    return HalfLife(_HALF_LIVES[name], _number(value, (*path, name), 1.0, why, LONGEST_HALF_LIFE))


def _half_life_json(half_life: HalfLife) -> dict[str, float]:
    return {f"half_life_{half_life.unit}": half_life.length}


def _cannot_forget(hyper: Hyperparameters) -> str | None:
    if hyper.family not in ("ftrl", "rda"):
        return f"is not defined for family {hyper.family}, whose state is a point; use family ftrl or rda"
    if isinstance(hyper.rate, ScalarRate):
        return (
            "is not defined for the scalar rate, which no evidence sets; use the adaptive or the gamma rate"
        )
    if not isinstance(hyper.schedule, Once):
        kind = _SCHEDULES[type(hyper.schedule)]
        return f"is not defined for schedule {kind}, whose penalties grow with the rounds; use schedule once"
    return None


_DROPPED = "features of weight 0 with less evidence than this (the sum n of squared gradients) are dropped"


def _cannot_drop(hyper: Hyperparameters) -> str | None:
    that_forget = [expert for expert in hyper.experts if expert.forgetting is not None]
    if not that_forget:
        return "needs a half-life (`forgetting`, or of an expert of a mixture): without one no evidence fades"
    if any(expert.l1 == 0.0 for expert in that_forget):
        return "needs an l1 above 0 wherever there is a half-life: without it no weight becomes 0"
    return None


def _rounds(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_T:
        raise InvalidInput(("schedule", "T"), f"must be a whole number of rounds from 1 to {LARGEST_T}")
    return value


def _alphas(value: object) -> tuple[float, ...]:
    path: Path = ("schedule", "values")
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= LONGEST_SCHEDULE:
        raise InvalidInput(path, f"must be a list of 1 to {LONGEST_SCHEDULE} numbers: alpha_1, alpha_2, ...")
    alphas = tuple(_number(v, (*path, i), 0.0, "alpha_t must not be negative") for i, v in enumerate(value))
    for i in range(1, len(alphas)):
        if alphas[i] > alphas[i - 1]:
            detail = f"{alphas[i]:g} is above the {alphas[i - 1]:g} before it: alpha_t must not increase"
            raise InvalidInput((*path, i), detail)
    return alphas


def _object(obj: object, path: Path, allowed: set[str]) -> Mapping[str, object]:
    if not isinstance(obj, Mapping):
        detail = f"must be an object with {', '.join(sorted(allowed)) or 'no fields'}"
        raise InvalidInput(path, detail, "wrong_type")
    for key in obj:
        if key not in allowed:
            detail = f"unknown; allowed: {', '.join(sorted(allowed)) or 'nothing'}"
            raise InvalidInput((*path, str(key)), detail, "unknown_field")
    return obj


def _kind(obj: object, path: Path, kinds: dict[str, set[str]]) -> tuple[str, Mapping[str, object]]:
    if not isinstance(obj, Mapping):
        raise InvalidInput(path, f'must be an object with a "kind" of {", ".join(kinds)}', "wrong_type")
    kind = _choice(_required(obj, "kind", path), (*path, "kind"), tuple(kinds))
    return kind, _object(obj, path, {"kind", *kinds[kind]})


def _required(fields: Mapping[str, object], name: str, path: Path, default: object = None) -> object:
    if name not in fields and default is None:
        raise InvalidInput((*path, name), "is missing", "required")
    return fields.get(name, default)


def _choice(value: object, path: Path, choices: tuple[Choice, ...]) -> Choice:
    for choice in choices:
        if value == choice:
            return choice
    raise InvalidInput(path, f"must be one of {', '.join(choices)}")


def _number(value: object, path: Path, smallest: float, why: str, largest: float = LARGEST) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and smallest <= value <= largest:
        return float(value)
    raise InvalidInput(path, f"must be a number from {smallest:g} to {largest:g}: {why}")
