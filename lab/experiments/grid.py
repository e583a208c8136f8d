"""The grid of `ftrl whatif`: the configurations to try, as one JSON document.

It is an object of dimensions, each with the values to try, all combinations of which are tried in place of
those of the present configuration: {"alpha": [0.05, 0.1], "half_life": [null, 100000], "bits": [20, 22]}.

Or it is an array of configurations, as in the body of PUT /models/{name}, each with a name if it is to have
one: [{"name": "forgets", "hyper": {...}}, {"hashing": {"bits": 20}}]. What a configuration leaves out of
`hashing`, and `hyper` if it is left out, are those of the present one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from lab.experiments.space import MAX_OPTIONS, LeftOut, Option, Space, values_of
from model_core.errors import InvalidInput
from model_core.learning.hyperparameters import Hyperparameters, MixtureRate
from service.models.config.model import ModelConfig

_FIELDS = {
    "family": "families",
    "update": "updates",
    "alpha": "alphas",
    "beta": "betas",
    "gamma": "gammas",
    "l1": "l1s",
    "l2": "l2s",
    "half_life": "half_lives",
    "bits": "bits",
    "numeric": "numerics",
}
"""The dimensions of a grid, and the fields of Space that hold their values."""
_OF_ONE_RATE = ("update", "alpha", "beta", "gamma", "l1", "half_life")
_OF_A_CONFIGURATION = ("name", "hyper", "hashing")


def options_of(document: object, present: ModelConfig) -> tuple[list[Option], Option, list[LeftOut]]:
    """The configurations to try, the present one among the same dimensions, and what the service refuses.

    Raises InvalidInput with the path, and the nearest name of an unknown one, CommandFailure for too many.
    """
    if isinstance(document, Mapping):
        space = _space(document, present)
        options, left_out = space.options()
        return options, Option(present, space.varied_of(present)), left_out
    if not isinstance(document, list) or not 0 < len(document) <= MAX_OPTIONS:
        raise InvalidInput(
            (),
            'must be an object of dimensions, such as {"alpha": [0.05, 0.1]}, or an array of 1 to'
            f" {MAX_OPTIONS:,} configurations",
            "wrong_type",
        )
    found: dict[str, Option] = {}
    for number, body in enumerate(document):
        option = _option(number, body, present)
        found.setdefault(option.config.canonical(), option)
    return list(found.values()), Option(present, {"name": "present"} | values_of(present)), []


def _space(document: Mapping[str, Any], present: ModelConfig) -> Space:
    values: dict[str, tuple[Any, ...]] = {}
    for name, tried in document.items():
        if name not in _FIELDS:
            raise InvalidInput((name,), f"unknown dimension{_nearest(name, _FIELDS)}", "unknown_field")
        if not isinstance(tried, list) or not tried:
            raise InvalidInput((name,), "must be an array of the values to try", "wrong_type")
        values[_FIELDS[name]] = tuple(tried)
    if not values:
        raise InvalidInput((), f"no dimension; a grid has {', '.join(_FIELDS)}", "wrong_type")
    hyper = present.hyper.to_json()
    if isinstance(present.hyper.rate, MixtureRate) and not document.keys().isdisjoint(_OF_ONE_RATE):
        hyper = {**Hyperparameters().to_json(), **{name: hyper[name] for name in ("family", "l2", "box")}}
    return Space(hyper, (present.hashing.to_json(),), **values)


def _option(number: int, body: object, present: ModelConfig) -> Option:
    if not isinstance(body, Mapping):
        raise InvalidInput((number,), "must be an object, as in the body of PUT /models/{name}", "wrong_type")
    for name in body:
        if name not in _OF_A_CONFIGURATION:
            hint = _nearest(name, _OF_A_CONFIGURATION)
            raise InvalidInput((number, name), f"unknown field{hint}", "unknown_field")
    hashing = body.get("hashing", {})
    if not isinstance(hashing, Mapping):
        raise InvalidInput((number, "hashing"), "must be an object", "wrong_type")
    try:
        config = ModelConfig.from_json(
            {
                "hyper": body.get("hyper", present.hyper.to_json()),
                "hashing": {**present.hashing.to_json(), **hashing},
            }
        )
    except InvalidInput as wrong:
        raise _with_hint(wrong).within(number) from None
    return Option(config, {"name": str(body.get("name", f"#{number + 1}"))} | values_of(config))


def _with_hint(wrong: InvalidInput) -> InvalidInput:
    """The same error; that of an unknown field with the nearest of the names that it lists."""
    if wrong.code != "unknown_field":
        return wrong
    found = difflib.get_close_matches(str(wrong.path[-1]), re.findall(r"\w+", wrong.detail), n=1)
    hint = f" (did you mean {found[0]!r}?)" if found else ""
    return InvalidInput(wrong.path, wrong.detail + hint, wrong.code)


def _nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the name that was probably meant, or at all of them."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else f"; there are {', '.join(known)}"
