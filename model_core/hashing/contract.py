"""The hash contract: which features a model makes of names and values.

Two models, or a model and a client, agree on every slot exactly when their contracts have one fingerprint.
"""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from model_core.errors import InvalidInput, Path
from model_core.kernels.numerics import log1p

CONTRACT_VERSION = 1
LARGEST_NUMBER = float.fromhex("0x1.fffffffffffffp+1023")
"""The bound of numbers that become buckets, which grow by their logarithm only: any finite float64."""

FROM_LOG: Literal["from_log"] = "from_log"

FeatureType = Literal["category", "number"]
Transform = Literal["bucket", "log", "raw"] | Mapping[str, float]

_FORBIDDEN_IN_NAMES = re.compile("[\x00-\x1f\x7f-\x9f=]")
_TRANSFORMS = '"bucket", "log", "raw" or {"scale": number}'


class Limits(NamedTuple):
    """Upper bounds of one example; each is a setting of the service."""

    features_per_example: int = 1024
    name_bytes: int = 256
    value_magnitude: float = 1e6  # not of numbers that become buckets
    weight: float = 1e6


@dataclass(frozen=True)
class HashContract:
    """The rules by which names and values become 32-bit hashes, values and slots.

    seed: of MurmurHash3 x86 32; a slot is the low `bits` bits of the hash.
    types: names whose numbers are categories, or that must be numbers.
    numeric, transforms: what becomes of numbers, by default and by name: "bucket" (a category of sign and
        floor(log2(1 + |v|))), "log" (sign(v) * log1p(|v|)), "raw" (v), {"scale": s} (s * v).
    crosses: tuples of names; one category for each combination of their values.
    missing: "indicator" makes the category `name=` of a null, "ignore" makes nothing.
    strict: refuse numbers that `types` does not declare.
    prior_probability: sets a fixed offset of the margin, logit of it; None: 0; "from_log": the one of
        the first examples that the model learns (Prior).  Part of neither hashes nor fingerprint.

    Raises InvalidInput, with a path inside the contract, for anything else.
    """

    seed: int = 0
    bits: int = 22
    types: Mapping[str, FeatureType] = field(default_factory=dict)
    numeric: Transform = "bucket"
    transforms: Mapping[str, Transform] = field(default_factory=dict)
    crosses: tuple[tuple[str, ...], ...] = ()
    bias: bool = True
    missing: Literal["ignore", "indicator"] = "ignore"
    strict: bool = False
    prior_probability: float | Literal["from_log"] | None = FROM_LOG

    def __post_init__(self) -> None:
        _check_integer("seed", self.seed, 0, 2**32 - 1)
        _check_integer("bits", self.bits, 10, 28)
        for name in ("bias", "strict"):
            _check(isinstance(getattr(self, name), bool), (name,), "must be true or false")
        _check(self.missing in ("ignore", "indicator"), ("missing",), 'must be "ignore" or "indicator"')
        _check_types(self.types)
        _check_transform(self.numeric, ("numeric",))
        _check_transforms(self.transforms, self.types)
        _check_crosses(self.crosses)
        _check_prior(self.prior_probability)

    @classmethod
    def from_json(cls, obj: object) -> "HashContract":
        """The contract of a JSON object as in a model's configuration; absent keys take their defaults."""
        if not isinstance(obj, Mapping):
            raise InvalidInput((), "must be an object", "wrong_type")
        allowed = [f.name for f in fields(cls)]
        for key in obj:
            if key not in allowed:
                raise InvalidInput((str(key),), f"unknown; allowed are {', '.join(allowed)}", "unknown_field")
        known: dict[str, Any] = dict(obj)
        if "crosses" in known:
            known["crosses"] = _crosses_from_json(known["crosses"])
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        """The whole contract with every key, such that from_json(to_json()) equals it."""
        return {
            "seed": self.seed,
            "bits": self.bits,
            "types": dict(self.types),
            "numeric": _transform_to_json(self.numeric),
            "transforms": {name: _transform_to_json(t) for name, t in self.transforms.items()},
            "crosses": [list(cross) for cross in self.crosses],
            "bias": self.bias,
            "missing": self.missing,
            "strict": self.strict,
            "prior_probability": self.prior_probability,
        }

    @property
    def fingerprint(self) -> str:
        """16 hex digits of all that decides hashes and slots: not `strict`, not `prior_probability`."""
        deciding = self.to_json()
        del deciding["strict"], deciding["prior_probability"]
        canonical = json.dumps(
            {"version": CONTRACT_VERSION, **deciding}, sort_keys=True, separators=(",", ":")
        )
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    @property
    def size(self) -> int:
        """The number of slots: 2**bits, the bias not counted."""
        return 1 << self.bits

    @property
    def prior_offset(self) -> float:
        """logit(prior_probability), which every margin starts from; 0 without a fixed one."""
        p = self.prior_probability
        if p is None or p == FROM_LOG:
            return 0.0
        # Either form keeps the argument of log1p large where p is close to 0 or 1, so that no digit is lost.
        return float(-log1p((1.0 - 2.0 * p) / p) if p < 0.5 else log1p((2.0 * p - 1.0) / (1.0 - p)))

    def declared_names(self) -> set[str]:
        """Collect the names in types, transforms and crosses."""
        return {*self.types, *self.transforms, *itertools.chain.from_iterable(self.crosses)}

    def transform_of(self, name: str) -> Transform:
        """Return the transform of the numbers of one feature."""
        return self.transforms.get(name, self.numeric)


def check_name(name: object, path: Path, limit_bytes: int = Limits().name_bytes) -> None:
    """Raise InvalidInput unless `name` can name a feature."""
    if not isinstance(name, str):
        raise InvalidInput(path, "a feature's name must be a string", "wrong_type")
    if name == "":
        raise InvalidInput(path, "a feature needs a name", "wrong_length")
    found = _FORBIDDEN_IN_NAMES.search(name)
    if found:
        what = "'='" if found[0] == "=" else f"the control character {found[0]!r}"
        raise InvalidInput(path, f"a feature's name cannot contain {what}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidInput(path, "a feature's name must be valid Unicode, without lone surrogates") from None
    if size > limit_bytes:
        detail = f"a feature's name takes at most {limit_bytes} bytes of UTF-8, not {size}"
        raise InvalidInput(path, detail, "wrong_length")


def out_of_bounds(value: float, bound: float, path: Path, what: str = "") -> InvalidInput:
    """Build the error for a value that is larger than the bound, or NaN."""
    if value != value:
        return InvalidInput(path, "NaN is not a value: send null for what is missing", "out_of_range")
    detail = f"the {what}value must be between -{bound:g} and {bound:g}"
    if not what and is_like_an_id(value):
        detail += "; send an id as text"
    return InvalidInput(path, detail, "out_of_range")


def is_like_an_id(value: float) -> bool:
    """Test for a whole number that is finite and not negative."""
    return 0 <= value < math.inf and (isinstance(value, int) or value.is_integer())


def scale_of(transform: Transform) -> float | None:
    """s of {"scale": s}, None for every other transform."""
    return None if isinstance(transform, str) else float(transform["scale"])


def _check(fine: bool, path: Path, detail: str) -> None:
    if not fine:
        raise InvalidInput(path, detail)


def _check_integer(name: str, value: object, low: int, high: int) -> None:
    fine = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    _check(fine, (name,), f"must be an integer from {low} to {high}")


def _check_types(types: object) -> None:
    if not isinstance(types, Mapping):
        raise InvalidInput(("types",), "must be an object of names", "wrong_type")
    for name, kind in types.items():
        check_name(name, ("types", str(name)))
        _check(kind in ("category", "number"), ("types", name), 'must be "category" or "number"')


def _check_transform(transform: object, path: Path) -> None:
    if isinstance(transform, str):
        _check(transform in ("bucket", "log", "raw"), path, f"must be {_TRANSFORMS}")
        return
    if not isinstance(transform, Mapping) or set(transform) != {"scale"}:
        raise InvalidInput(path, f"must be {_TRANSFORMS}")
    scale = transform["scale"]
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise InvalidInput((*path, "scale"), "must be a number", "wrong_type")
    bound = Limits().value_magnitude
    _check(-bound <= scale <= bound, (*path, "scale"), f"must be a number of at most {bound:g} in size")


def _check_transforms(transforms: object, types: Mapping[str, FeatureType]) -> None:
    if not isinstance(transforms, Mapping):
        raise InvalidInput(("transforms",), "must be an object of names", "wrong_type")
    for name, transform in transforms.items():
        check_name(name, ("transforms", str(name)))
        _check_transform(transform, ("transforms", name))
        is_category = types.get(name) == "category"
        _check(
            not is_category, ("transforms", name), 'its type is "category": there is no number to transform'
        )


def _crosses_from_json(crosses: object) -> tuple[tuple[str, ...], ...]:
    if not _is_list(crosses):
        raise InvalidInput(("crosses",), "must be a list of lists of names", "wrong_type")
    assert isinstance(crosses, Sequence)
    for i, cross in enumerate(crosses):
        _check(_is_list(cross), ("crosses", i), "must be a list of names")
    return tuple(tuple(cross) for cross in crosses)


def _is_list(obj: object) -> bool:
    return isinstance(obj, Sequence) and not isinstance(obj, str | bytes)


def _check_crosses(crosses: tuple[tuple[str, ...], ...]) -> None:
    seen: set[str] = set()
    for i, cross in enumerate(crosses):
        _check(len(cross) >= 2, ("crosses", i), "a cross needs at least two names")
        for j, name in enumerate(cross):
            check_name(name, ("crosses", i, j))
        _check(len(set(cross)) == len(cross), ("crosses", i), "a cross names each feature once")
        joined = "^".join(cross)
        _check(joined not in seen, ("crosses", i), f"another cross has the name {joined!r} already")
        seen.add(joined)


def _check_prior(prior: object) -> None:
    fine = prior in (None, FROM_LOG) or (isinstance(prior, float) and 1e-300 < prior < 1.0)
    _check(fine, ("prior_probability",), 'must be a number above 0 and below 1, "from_log" or null')


def _transform_to_json(transform: Transform) -> str | dict[str, float]:
    scale = scale_of(transform)
    return str(transform) if scale is None else {"scale": scale}
