"""Which features of a model are evaluated value by value: the section `evaluation` of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from model_core.errors import InvalidInput
from model_core.hashing.contract import Limits, check_name

MOST_SLICED, MOST_SLICES = 8, 100
_FIELDS = ("slices", "most")


@dataclass(frozen=True)
class EvaluationConfig:
    """slices: names of features. most: how many values of each have figures of their own, the most frequent;
    the rest is one slice more.
    """

    slices: tuple[str, ...] = ()
    most: int = 20

    @classmethod
    def from_json(cls, body: object) -> EvaluationConfig:
        """Raises InvalidInput with the path."""
        if not isinstance(body, Mapping):
            raise InvalidInput((), "must be an object", "wrong_type")
        for name in body:
            if name not in _FIELDS:
                raise InvalidInput(
                    (name,), "unknown field; an evaluation has `slices` and `most`", "unknown_field"
                )
        return cls(_names(body.get("slices", [])), _most(body.get("most", cls.most)))

    def to_json(self) -> dict[str, Any]:
        return {"slices": list(self.slices), "most": self.most}


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_SLICED:
        raise InvalidInput(("slices",), f"must be a list of at most {MOST_SLICED} names of features")
    for i, name in enumerate(value):
        if not isinstance(name, str):
            raise InvalidInput(("slices", i), "must be the name of a feature", "wrong_type")
        check_name(name, ("slices", i), Limits().name_bytes)
        if name in value[:i]:
            raise InvalidInput(("slices", i), "is named twice", "duplicate_name")
    return tuple(value)


def _most(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MOST_SLICES:
        raise InvalidInput(("most",), f"must be an integer from 1 to {MOST_SLICES}")
    return value
