"""Features of an example to 32-bit hashes and values, as the hash contract says.

    text, boolean     category `name=text`, value 1             {"site": "a.com"}   -> murmur("site=a.com")
    list of strings   one category each
    null              nothing, or the category `name=`
    number            by the contract a category, a bucket or a value of the feature `name`
    cross             category `a^b=x<0x1F>y` of every combination of the members' texts

One function encodes for predictions and for updates.  It is the hot path of both, so checks and hashes
share one loop, and names that were found valid are remembered.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# Not mmh3.hash: given a str with a lone surrogate it reads a null pointer and the process dies.
from mmh3 import mmh3_32_uintdigest as murmur

from model_core.contract import HashContract, Limits, check_name, scale_of
from model_core.crosses import Crosses
from model_core.encoded import Draft, Encoded
from model_core.errors import InvalidInput, Path
from model_core.feature_text import Scaled, bucket_text, decimal_text, signed_log1p

__all__ = ["Encoded", "FeatureEncoder", "Limits"]

_REMEMBERED_NAMES = 8192
_REPORTED_MIXED_NAMES = 1000
_DEFAULT_LIMITS = Limits()


class _NumberRule(NamedTuple):
    kind: str  # "category", "bucket", "log", "raw" or "scale"
    prefix: str  # of the categories: `name=`
    name_hash: int  # of the feature `name`
    scale: float


class FeatureEncoder:
    """Encodes features by one contract; raises InvalidInput, with the path, for what cannot be encoded.

    mixed_names: names seen both as text and as a number though no type declares them; at most 1,000.
    """

    def __init__(self, contract: HashContract, limits: Limits = _DEFAULT_LIMITS) -> None:
        self.contract = contract
        self.limits = limits
        self.mixed_names: set[str] = set()
        self._prefixes: dict[str, str] = {}
        self._number_rules: dict[str, _NumberRule] = {}
        self._crosses = Crosses(contract)

    def encode(self, features: Mapping[str, Any], path: Path = ("features",)) -> Encoded:
        """Hashes in the order of the features, then those of the crosses."""
        return self._encode_onto(Draft([], [], []), features.items(), len(features), {}, path)

    def encode_pairs(self, pairs: Sequence[tuple[str, Any]], path: Path = ("features",)) -> Encoded:
        """The same for formats that may name a feature several times, or write `Scaled` values."""
        return self._encode_onto(Draft([], [], []), pairs, len(pairs), {}, path)

    def encode_instances(
        self,
        context: Mapping[str, Any],
        instances: Sequence[Mapping[str, Any]],
        context_path: Path = ("context",),
        instances_path: Path = ("instances",),
        features_key: str = "features",
    ) -> list[Encoded]:
        """Each instance together with the shared context, whose features are hashed once.

        Order: the context's features, the instance's own, then the crosses, which may span both.
        The features of instance i have the path (*instances_path, i, features_key).
        """
        shared = Draft([], [], [])
        self._check_count(len(context), context_path)
        self._add(shared, context.items(), context_path)
        texts = self._crosses.texts(context.items())
        encoded = []
        for i, features in enumerate(instances):
            path = (*instances_path, i, features_key)
            if not context.keys().isdisjoint(features):
                both = next(name for name in features if name in context)
                raise InvalidInput((*path, both), "in the context already: send it in one of the two")
            encoded.append(self._encode_onto(shared.copy(), features.items(), len(features), texts, path))
        return encoded

    def _encode_onto(
        self,
        draft: Draft,
        items: Iterable[tuple[str, Any]],
        count: int,
        shared_texts: Mapping[str, Sequence[str]],
        path: Path,
    ) -> Encoded:
        """Add features and then crosses to what a context has made; `items` is iterated twice."""
        self._check_count(count, path)
        self._add(draft, items, path)
        if self.contract.crosses:
            self._add_crosses(draft, {**shared_texts, **self._crosses.texts(items)}, path)
        self._check_count(len(draft.hashes), path)
        return draft.finish()

    def _add(self, draft: Draft, items: Iterable[tuple[str, Any]], path: Path) -> None:
        """The hot loop: one branch for each type that JSON has, the commonest first."""
        seed, hashes, prefixes = self.contract.seed, draft.hashes, self._prefixes
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
                elif kind is Scaled:
                    self._add_scaled(draft, name, value, path)
                else:
                    allowed = "a string, a number, a boolean, null or a list of strings"
                    raise InvalidInput((*path, str(name)), f"must be {allowed}")
        except UnicodeEncodeError:
            raise InvalidInput((*path, name), "must be valid Unicode, without lone surrogates") from None

    def _add_number(self, draft: Draft, name: str, value: float, path: Path) -> None:
        rule = self._number_rules.get(name)
        if rule is None:
            rule = self._admit_number(name, path)
        kind, prefix, name_hash, scale = rule
        if kind == "category":
            text = decimal_text(value, (*path, name))
            draft.hashes.append(murmur((prefix + text).encode(), self.contract.seed))
            return
        bound = self.limits.value_magnitude
        if not -bound <= value <= bound:
            raise self._out_of_bounds(value, (*path, name))
        if kind == "bucket":
            draft.hashes.append(murmur((prefix + bucket_text(value)).encode(), self.contract.seed))
            return
        if kind == "log":
            value = signed_log1p(value)
        elif kind == "scale":
            value = value * scale
            if not -bound <= value <= bound:
                raise self._out_of_bounds(value, (*path, name), "scaled ")
        if value != 1:
            draft.positions.append(len(draft.hashes))
            draft.values.append(float(value))
        draft.hashes.append(name_hash)

    def _add_missing(self, draft: Draft, name: str, path: Path) -> None:
        prefix = self._prefixes.get(name)
        if prefix is None:
            check_name(name, (*path, str(name)), self.limits.name_bytes)
            prefix = name + "="
        if self.contract.missing == "indicator":
            draft.hashes.append(murmur(prefix.encode(), self.contract.seed))

    def _add_list(self, draft: Draft, name: str, texts: list[Any], path: Path) -> None:
        prefix = self._prefixes.get(name) or self._admit_text(name, path)
        self._check_count(len(draft.hashes) + len(texts), path)
        for i, text in enumerate(texts):
            if type(text) is not str:
                raise InvalidInput((*path, name, i), "a list holds only strings: send its numbers as strings")
            draft.hashes.append(murmur((prefix + text).encode(), self.contract.seed))

    def _add_scaled(self, draft: Draft, name: str, scaled: Scaled, path: Path) -> None:
        value, factor = 1.0, scaled.factor
        if scaled.feature is None:
            check_name(name, (*path, name), self.limits.name_bytes)
            draft.hashes.append(murmur(name.encode(), self.contract.seed))
        else:
            self._add(draft, ((name, scaled.feature),), path)
            if draft.positions and draft.positions[-1] == len(draft.hashes) - 1:
                draft.positions.pop()
                value = draft.values.pop()
        value *= factor
        if not -self.limits.value_magnitude <= value <= self.limits.value_magnitude:
            raise self._out_of_bounds(value, (*path, name))
        if value != 1.0:
            draft.positions.append(len(draft.hashes) - 1)
            draft.values.append(value)

    def _add_crosses(self, draft: Draft, texts: Mapping[str, Sequence[str]], path: Path) -> None:
        self._check_count(len(draft.hashes) + self._crosses.count(texts), path)
        seed = self.contract.seed
        draft.hashes.extend(murmur(category.encode(), seed) for category in self._crosses.categories(texts))

    def _admit_text(self, name: str, path: Path) -> str:
        """The prefix `name=` of a feature that may be text, remembered."""
        check_name(name, (*path, str(name)), self.limits.name_bytes)
        if self.contract.types.get(name) == "number":
            raise InvalidInput((*path, name), "declared a number by the model: send it without quotes")
        self._note_mixed(name, self._number_rules)
        if len(self._prefixes) >= _REMEMBERED_NAMES:
            self._prefixes.clear()
        self._prefixes[name] = prefix = name + "="
        return prefix

    def _admit_number(self, name: str, path: Path) -> _NumberRule:
        """What becomes of the numbers of this feature, remembered."""
        check_name(name, (*path, str(name)), self.limits.name_bytes)
        declared = self.contract.types.get(name)
        if declared is None and self.contract.strict:
            detail = (
                "the model is strict and its `types` do not declare this number: declare it, or send text"
            )
            raise InvalidInput((*path, name), detail)
        self._note_mixed(name, self._prefixes)
        transform = self.contract.transform_of(name)
        scale = scale_of(transform)
        kind = "category" if declared == "category" else "scale" if scale is not None else str(transform)
        rule = _NumberRule(kind, name + "=", murmur(name.encode(), self.contract.seed), scale or 0.0)
        if len(self._number_rules) >= _REMEMBERED_NAMES:
            self._number_rules.clear()
        self._number_rules[name] = rule
        return rule

    def _note_mixed(self, name: str, other_kind: Mapping[str, object]) -> None:
        if (
            name in other_kind
            and name not in self.contract.types
            and len(self.mixed_names) < _REPORTED_MIXED_NAMES
        ):
            self.mixed_names.add(name)

    def _check_count(self, count: int, path: Path) -> None:
        if count > self.limits.features_per_example:
            limit = self.limits.features_per_example
            raise InvalidInput(
                path, f"an example has at most {limit} features, its lists and crosses included"
            )

    def _out_of_bounds(self, value: float, path: Path, what: str = "") -> InvalidInput:
        bound = self.limits.value_magnitude
        if value != value:
            return InvalidInput(path, "NaN is not a value: send null for what is missing")
        return InvalidInput(path, f"the {what}value must be between -{bound:g} and {bound:g}")
