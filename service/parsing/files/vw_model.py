"""Reads the text that `vw --invert_hash FILE` writes of a linear model."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from model_core.hashing.feature_text import joined
from model_core.kernels.number_text import DECIMAL
from model_core.text.problems import Namespaces
from service.parsing.files.source import TextSource
from service.parsing.files.weights import (
    Problem,
    WeightLine,
    WeightsFile,
    checked_feature_name,
    parsed_weight,
)

CONSTANT = "Constant"
ANSWER = "write it with `vw --loss_function logistic --invert_hash FILE`"

_WEIGHT = re.compile(r"(?P<word>.*):(?P<hash>[0-9]+):(?P<numbers>[^:]*)")
_WITHOUT_WORD = re.compile(r"[0-9]+:[-+.0-9]\S*( \S+)*")
_OF_MANY = re.compile(r".*\[[0-9]+\]")
_LINEAR = frozenset(
    {"--adaptive", "--bfgs", "--bit_precision", "--decay_learning_rate", "--ftrl", "--ftrl_alpha"}
    | {"--ftrl_beta", "--hash", "--hash_seed", "--ignore", "--initial_t", "--invariant", "--keep", "--l1"}
    | {"--l2", "--learning_rate", "--link", "--loss_function", "--no_bias_regularization", "--noconstant"}
    | {"--normalized", "--passes", "--power_t", "--random_seed", "--sgd", "--sparse_weights"}
)
_WITH_COLON = ("Min label:", "Max label:", "bits:", "lda:", "options:", "Checksum:", ":")
"""Beginnings of lines of the header in which a colon, not a space, ends the key."""
_INTERACTIONS = frozenset({"--cubic", "--interactions", "--quadratic"})


class VowpalWabbitModel(WeightsFile):
    """The weights of a dump, with the sums of squared gradients that its learner keeps beside them.

    namespaces: as for Vowpal Wabbit text: `ignore` takes them off the words, `prefix` leaves `f^word`.
    """

    def __init__(self, source: TextSource, name_bytes: int, namespaces: Namespaces) -> None:
        super().__init__(source)
        self._name_bytes = name_bytes
        self._keeps_namespaces = namespaces == "prefix"
        self._header: dict[str, str] = {}
        self._has_crosses = False
        self._place_of_n: int | None = None
        self._gravity, self._contraction = 0.0, 1.0

    def lines(self) -> Iterator[WeightLine]:
        in_header = True
        for number, line in enumerate(self._source.lines(), 1):
            try:
                text = line.decode().rstrip("\r\n")
            except UnicodeDecodeError:
                raise self.failure("not_utf8", "not UTF-8", number) from None
            if number == 1 and not text.startswith("Version "):
                raise self.failure("not_a_dump", f"no text of a Vowpal Wabbit model: {ANSWER}", number)
            if in_header:
                found = _WEIGHT.fullmatch(text)
                if found is None and not _WITHOUT_WORD.fullmatch(text):
                    self._note(text)
                    continue
                in_header = False
                self._check_header()
            try:
                yield self._line(number, text)
            except Problem as problem:
                raise self.failure(problem.code, problem.detail, number) from None

    def _note(self, text: str) -> None:
        """Remember a line of the header: `key:value` or `key value`."""
        key, colon, value = text.partition(":") if text.startswith(_WITH_COLON) else text.partition(" ")
        if colon:
            self._header[key] = value.strip()

    def _check_header(self) -> None:
        """Raise BadWeights unless the weights are those of log-odds, and all that predictions need."""
        options = [word for word in self._header.get("options", "").split() if word.startswith("--")]
        self._has_crosses = not _INTERACTIONS.isdisjoint(options)
        for option in options:
            if option.partition("=")[0] not in _LINEAR | _INTERACTIONS:
                detail = f"a model with {option} is more than one weight for each word and cannot be imported"
                raise self.failure("unsupported_option", detail)
        if self._number("Max label", 50.0) <= 1.0:
            detail = f"its predictions were no log-odds: train with --loss_function logistic, and {ANSWER}"
            raise self.failure("unsupported_option", detail)
        self._gravity, self._contraction = self._number("l1_state", 0.0), self._number("l2_state", 1.0)
        self.examples = int(self._number("example_number", 0.0))
        if "--ftrl" in options:
            self._place_of_n = 2  # weight, z, n
        elif "--adaptive" in options or not {"--sgd", "--normalized", "--invariant"} & set(options):
            self._place_of_n = 1  # weight, sum of squared gradients, norm

    def _number(self, key: str, default: float) -> float:
        """Read a number of the header. Raises BadWeights."""
        text = self._header.get(key, "")
        if not text:
            return default
        if not DECIMAL.fullmatch(text):
            raise self.failure("not_a_dump", f"{key} is {text[:60]!r}, and no number")
        return float(text)

    def _line(self, number: int, text: str) -> WeightLine:
        found = _WEIGHT.fullmatch(text)
        if found is None and _WITHOUT_WORD.fullmatch(text):
            detail = f"a readable model has hashes alone, no words: {ANSWER}"
            raise Problem("only_hashes", detail)
        if found is None:
            raise Problem("malformed_line", "not `word:hash:weight`")
        word, numbers = found["word"], found["numbers"].split()
        if not numbers:
            raise Problem("malformed_line", "no weight")
        weight, n = self._regularized(parsed_weight(numbers[0])), math.nan
        if self._place_of_n is not None and len(numbers) > self._place_of_n:
            n = abs(parsed_weight(numbers[self._place_of_n], "sum of squared gradients"))
        if _OF_MANY.fullmatch(word):
            raise Problem("unsupported_option", f"{word[:60]!r} has several weights: no linear model")
        if word == CONSTANT:
            return WeightLine(number, "", None, weight, n=n)
        parts = word.split("*") if self._has_crosses else [word]
        features = [self._feature(part) for part in parts]
        if len(features) == 1:
            ((name, category),) = features
            return WeightLine(number, name, category, weight, n=n)
        names = tuple(name for name, _ in features)
        values = [category for _, category in features if category is not None]
        if len(values) < len(names) or len(set(names)) < len(names):
            detail = (
                f"{word[:60]!r} cannot be a cross, which is made of categories (name=value) of different"
                " names: write all words of the crossed namespaces so, or train without the interaction"
            )
            raise Problem("not_a_cross", detail)
        return WeightLine(number, "^".join(names), joined(values), weight, n=n, cross=names)

    def _regularized(self, weight: float) -> float:
        """Return the weight that predictions use: --l1 and --l2 are taken off when they are made."""
        return math.copysign(max(abs(weight) - self._gravity, 0.0) * self._contraction, weight)

    def _feature(self, word: str) -> tuple[str, str | None]:
        """Return name and category of a word."""
        namespace, caret, rest = word.partition("^")
        if caret and not self._keeps_namespaces and "=" not in namespace:
            word = rest
        name, equals, category = word.partition("=")
        return checked_feature_name(name, self._name_bytes), category if equals else None
