"""Features of an example to 32-bit hashes and values, as the hash contract says.

    text, boolean      category `name=text`, value 1             {"site": "a.com"}   -> murmur("site=a.com")
    number             by the contract a category, a bucket or a value of the feature `name`
    list               of texts and numbers: one feature each
    {"value", "times"} the feature of `value` (a text or a number), its value multiplied by `times`;
                       without `value`, the feature `name` itself, with the value `times`
    null               nothing, or the category `name=`
    cross              category `a^b=x<0x1F>y` of every combination of the members' texts

Features are an object, or a list of [name, value], in which a name may occur again: the order of features is
that of the sums, so that text formats which repeat a name can be written in JSON to the last bit.

One function encodes for predictions and for updates.  It is the hot path of both, so checks and hashes
share one loop, and names that were found valid are remembered.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

# Not mmh3.hash: given a str with a lone surrogate it reads a null pointer and the process dies.
from mmh3 import mmh3_32_uintdigest as murmur

from model_core.errors import InvalidInput, Path
from model_core.hashing.contract import (
    LARGEST_NUMBER,
    HashContract,
    Limits,
    check_name,
    out_of_bounds,
    scale_of,
)
from model_core.hashing.feature_text import (
    Crosses,
    Scaled,
    bucket_text,
    decimal_text,
    scaled_of,
    signed_log1p,
)

__all__ = ["Encoded", "FeatureEncoder", "Limits"]

_REMEMBERED_NAMES = 8192
_REPORTED_MIXED_NAMES = 1000
_DEFAULT_LIMITS = Limits()


Features = Mapping[str, Any] | list[Any]
"""An object of names and values, or a list of lists of a name and a value."""


class Encoded(NamedTuple):
    """One example's features, the bias not among them.

    hashes: 32-bit unsigned.  values: one for each hash, or None where all are 1.0.
    """

    hashes: list[int]
    values: list[float] | None


class Draft:
    """An example under construction: hashes, and the values that are not 1 with their positions."""

    __slots__ = ("hashes", "positions", "values")

    def __init__(self, hashes: list[int], positions: list[int], values: list[float]) -> None:
        self.hashes = hashes
        self.positions = positions
        self.values = values

    def copy(self) -> "Draft":
        return Draft(self.hashes.copy(), self.positions.copy(), self.values.copy())

    def finish(self) -> Encoded:
        if not self.positions:
            return Encoded(self.hashes, None)
        values = [1.0] * len(self.hashes)
        for position, value in zip(self.positions, self.values, strict=True):
            values[position] = value
        return Encoded(self.hashes, values)


class Context(NamedTuple):
    """Features that several examples share, encoded: their names, and what their crosses are made of."""

    names: AbstractSet[str]
    draft: Draft
    texts: Mapping[str, Sequence[str]]


class _NumberRule(NamedTuple):
    kind: str  # "category", "bucket", "log", "raw" or "scale"
    prefix: str  # of the categories: `name=`
    name_hash: int  # of the feature `name`
    scale: float


class FeatureEncoder:
    """Encodes features by one contract; raises InvalidInput, with the path, for what cannot be encoded.

    hash_text: what takes the bytes of a feature and the seed to its hash.
    met: called with each name that is not remembered, and whether its value is a number.
    mixed_names: at most 1,000 names, of the last 8,192, seen as text and as a number and declared as neither.
    unmet_names: names in the contract's types, transforms or crosses that no example or instance has had yet.
    encoded: how many examples and instances were encoded.
    """

    def __init__(
        self,
        contract: HashContract,
        limits: Limits = _DEFAULT_LIMITS,
        *,
        hash_text: Callable[[bytes, int], int] = murmur,
        met: Callable[[str, bool], None] | None = None,
    ) -> None:
        self.contract = contract
        self.limits = limits
        self.mixed_names: set[str] = set()
        self.unmet_names = contract.declared_names()
        self.encoded = 0
        self._murmur = hash_text
        self._met = met
        self._prefixes: dict[str, str] = {}
        self._number_rules: dict[str, _NumberRule] = {}
        self._crosses = Crosses(contract)

    def encode(self, features: Features, path: Path = ("features",)) -> Encoded:
        """Hashes in the order of the features, then those of the crosses."""
        items = _items_of(features, path)
        return self._encode_onto(Draft([], [], []), items, len(features), {}, path)

    def encode_pairs(self, pairs: Sequence[tuple[str, Any]], path: Path = ("features",)) -> Encoded:
        """The same for pairs whose values may be `Scaled`."""
        return self._encode_onto(Draft([], [], []), pairs, len(pairs), {}, path)

    def encode_instances(
        self, context: Features | Context, instances: Sequence[Features], first: int = 0
    ) -> list[Encoded]:
        """Each instance together with the shared context. Their paths are those of a /predict in which
        `first` instances come before them.
        """
        shared = context if isinstance(context, Context) else self.encode_context(context)
        return [
            self.encode_within(shared, features, ("instances", i, "features"))
            for i, features in enumerate(instances, first)
        ]

    def encode_context(self, features: Features, path: Path = ("context",)) -> Context:
        """Encode features once for any number of encode_within."""
        items, draft = _items_of(features, path), Draft([], [], [])
        self._check_count(len(features), path)
        self._add(draft, items, path)
        return Context({name for name, _ in items}, draft, self._crosses.texts(items))

    def encode_within(self, context: Context, features: Features, path: Path = ("features",)) -> Encoded:
        """Order: the context's features, the example's own, then the crosses, which may span both."""
        items = _items_of(features, path)
        for name, _ in items:
            if name in context.names:
                raise InvalidInput(
                    (*path, name), "in the context already: send it in one of the two", "duplicate_name"
                )
        return self._encode_onto(context.draft.copy(), items, len(features), context.texts, path)

    def _encode_onto(
        self,
        draft: Draft,
        items: Iterable[tuple[str, Any]],
        count: int,
        shared_texts: Mapping[str, Sequence[str]],
        path: Path,
    ) -> Encoded:
        """Add features and then crosses to what a context has made; `items` is iterated twice."""
        self.encoded += 1
        self._check_count(count, path)
        self._add(draft, items, path)
        if self.contract.crosses:
            self._add_crosses(draft, {**shared_texts, **self._crosses.texts(items)}, path)
        self._check_count(len(draft.hashes), path)
        return draft.finish()

    def _add(self, draft: Draft, items: Iterable[tuple[str, Any]], path: Path) -> None:
        """The hot loop: one branch for each type that JSON has, the commonest first."""
        seed, hashes, prefixes = self.contract.seed, draft.hashes, self._prefixes
        murmur = self._murmur
        name = ""
        try:
            for name, value in items:
                kind = type(value)
                if kind is str:
                    prefix = prefixes.get(name)
                    if prefix is None:
                        prefix = self._admit_text(name, path)
                    hashes.append(murmur((prefix + value).encode(), seed))
                elif kind is float or kind is int:
                    self._add_number(draft, name, value, path)
                elif kind is bool:
                    prefix = prefixes.get(name) or self._admit_text(name, path)
                    hashes.append(murmur((prefix + ("true" if value else "false")).encode(), seed))
                elif value is None:
                    self._add_missing(draft, name, path)
                elif kind is list:
                    self._add_list(draft, name, value, path)
                elif kind is Scaled or kind is dict:
                    self._add_scaled(draft, name, value, path)
                else:
                    allowed = (
                        "a string, a number, a boolean, null, a list of strings and numbers, or an object"
                    )
                    raise InvalidInput((*path, str(name)), f"must be {allowed}", "wrong_type")
        except UnicodeEncodeError:
            raise InvalidInput((*path, name), "must be valid Unicode, without lone surrogates") from None

    def _add_number(self, draft: Draft, name: str, value: float, path: Path) -> None:
        rule = self._number_rules.get(name)
        if rule is None:
            rule = self._admit_number(name, path)
        kind, prefix, name_hash, scale = rule
        if kind == "category":
            text = decimal_text(value, (*path, name))
            draft.hashes.append(self._murmur((prefix + text).encode(), self.contract.seed))
            return
        bound = LARGEST_NUMBER if kind == "bucket" else self.limits.value_magnitude
        if not -bound <= value <= bound:
            raise out_of_bounds(value, bound, (*path, name))
        if kind == "bucket":
            draft.hashes.append(self._murmur((prefix + bucket_text(value)).encode(), self.contract.seed))
            return
        if kind == "log":
            value = signed_log1p(value)
        elif kind == "scale":
            value = value * scale
            if not -bound <= value <= bound:
                raise out_of_bounds(value, bound, (*path, name), "scaled ")
        if value != 1:
            draft.positions.append(len(draft.hashes))
            draft.values.append(float(value))
        draft.hashes.append(name_hash)

    def _add_missing(self, draft: Draft, name: str, path: Path) -> None:
        prefix = self._prefixes.get(name)
        if prefix is None:
            check_name(name, (*path, str(name)), self.limits.name_bytes)
            self.unmet_names.discard(name)
            prefix = name + "="
        if self.contract.missing == "indicator":
            draft.hashes.append(self._murmur(prefix.encode(), self.contract.seed))

    def _add_list(self, draft: Draft, name: str, items: list[Any], path: Path) -> None:
        if not items:
            _ = self._prefixes.get(name) or self._admit_text(name, path)
        self._check_count(len(draft.hashes) + len(items), path)
        for i, item in enumerate(items):
            kind = type(item)
            if kind is str:
                prefix = self._prefixes.get(name) or self._admit_text(name, path)
                draft.hashes.append(self._murmur((prefix + item).encode(), self.contract.seed))
            elif kind is float or kind is int:
                self._add_number(draft, name, item, path)
            else:
                detail = "a list holds only strings and numbers"
                raise InvalidInput((*path, name, i), detail, "wrong_type")

    def _add_scaled(self, draft: Draft, name: str, given: Scaled | dict[str, Any], path: Path) -> None:
        scaled = scaled_of(given, (*path, name)) if isinstance(given, dict) else given
        value, factor = 1.0, scaled.factor
        if scaled.feature is None:
            check_name(name, (*path, name), self.limits.name_bytes)
            self.unmet_names.discard(name)
            draft.hashes.append(self._murmur(name.encode(), self.contract.seed))
        else:
            self._add(draft, ((name, scaled.feature),), path)
            if draft.positions and draft.positions[-1] == len(draft.hashes) - 1:
                draft.positions.pop()
                value = draft.values.pop()
        value *= factor
        bound = self.limits.value_magnitude
        if not -bound <= value <= bound:
            raise out_of_bounds(value, bound, (*path, name))
        if value != 1.0:
            draft.positions.append(len(draft.hashes) - 1)
            draft.values.append(value)

    def _add_crosses(self, draft: Draft, texts: Mapping[str, Sequence[str]], path: Path) -> None:
        self._check_count(len(draft.hashes) + self._crosses.count(texts), path)
        murmur, seed = self._murmur, self.contract.seed
        draft.hashes.extend(murmur(category.encode(), seed) for category in self._crosses.categories(texts))

    def _admit_text(self, name: str, path: Path) -> str:
        """The prefix `name=` of a feature that may be text, remembered."""
        check_name(name, (*path, str(name)), self.limits.name_bytes)
        if self.contract.types.get(name) == "number":
            detail = (
                "declared a number by the model, but this is text: write 0.5 in JSON,"
                " name:0.5 in Vowpal Wabbit text"
            )
            raise InvalidInput((*path, name), detail, "wrong_type")
        self._note(name, False, self._number_rules)
        if len(self._prefixes) >= _REMEMBERED_NAMES:
            self._prefixes.clear()
        self._prefixes[name] = prefix = name + "="
        return prefix

    def _admit_number(self, name: str, path: Path) -> _NumberRule:
        """Return the rule for the numbers of this feature, and remember it."""
        check_name(name, (*path, str(name)), self.limits.name_bytes)
        declared = self.contract.types.get(name)
        if declared is None and self.contract.strict:
            detail = (
                "the model is strict and its `types` do not declare this number: declare it, or send text"
                ' ("7" in JSON, name=7 in Vowpal Wabbit text)'
            )
            raise InvalidInput((*path, name), detail, "wrong_type")
        self._note(name, True, self._prefixes)
        transform = self.contract.transform_of(name)
        scale = scale_of(transform)
        kind = "category" if declared == "category" else "scale" if scale is not None else str(transform)
        rule = _NumberRule(kind, name + "=", self._murmur(name.encode(), self.contract.seed), scale or 0.0)
        if len(self._number_rules) >= _REMEMBERED_NAMES:
            self._number_rules.clear()
        self._number_rules[name] = rule
        return rule

    def _note(self, name: str, is_number: bool, other_kind: Mapping[str, object]) -> None:
        if self._met is not None:
            self._met(name, is_number)
        self.unmet_names.discard(name)
        is_mixed = name in other_kind and name not in self.contract.types
        if is_mixed and len(self.mixed_names) < _REPORTED_MIXED_NAMES:
            self.mixed_names.add(name)

    def _check_count(self, count: int, path: Path) -> None:
        if count > self.limits.features_per_example:
            limit = self.limits.features_per_example
            detail = f"an example has at most {limit} features, its lists and crosses included"
            raise InvalidInput(path, detail, "too_many")


def _items_of(features: Features, path: Path) -> Collection[tuple[str, Any]]:
    """The pairs of an object, or of a list of [name, value]."""
    if isinstance(features, Mapping):
        return features.items()
    for i, pair in enumerate(features):
        if type(pair) is not list or len(pair) != 2:
            raise InvalidInput((*path, i), "must be a list of a name and a value", "wrong_type")
        if type(pair[0]) is not str:
            raise InvalidInput((*path, i, 0), "a feature's name must be a string", "wrong_type")
    return features
