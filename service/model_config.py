"""What a model is made of: its hyperparameters and its hash contract, fixed at creation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model_core.errors import InvalidInput
from model_core.hashing import HashContract
from model_core.hyperparameters import Hyperparameters

DEFAULT_MODEL = "default"


@dataclass(frozen=True)
class ModelConfig:
    hyper: Hyperparameters = field(default_factory=Hyperparameters)
    hashing: HashContract = field(default_factory=HashContract)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ModelConfig:
        """From the body of a PUT; what is left out takes its default. Raises InvalidInput with the path."""
        for name in body:
            if name not in ("hyper", "hashing"):
                raise InvalidInput((name,), "unknown field; a model has `hyper` and `hashing`")
        try:
            hyper = Hyperparameters.from_json(body.get("hyper", {}))
        except InvalidInput as wrong:
            raise wrong.within("hyper") from None
        try:
            hashing = HashContract.from_json(body.get("hashing", {}))
        except InvalidInput as wrong:
            raise wrong.within("hashing") from None
        return cls(hyper, hashing)

    def to_json(self) -> dict[str, Any]:
        return {"hyper": self.hyper.to_json(), "hashing": self.hashing.to_json()}

    def canonical(self) -> str:
        """The text under which it is stored; equal for equal configurations."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
