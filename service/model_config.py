"""What a model is made of: its hyperparameters and its hash contract, fixed at creation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from model_core.contract import HashContract, Limits
from model_core.errors import InvalidInput
from model_core.examples import ExampleBatch
from model_core.hyperparameters import Hyperparameters, refusal
from model_core.learning import Learned, learn_batch, predict_probabilities
from model_core.state import ModelState
from service.settings import Settings

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
        if (why := refusal(hyper)) is not None:
            raise InvalidInput(("hyper",), why)
        try:
            hashing = HashContract.from_json(body.get("hashing", {}))
        except InvalidInput as wrong:
            raise wrong.within("hashing") from None
        return cls(hyper, hashing)

    def predict(self, state: ModelState, batch: ExampleBatch) -> npt.NDArray[np.float64]:
        """Probabilities float64[r], read at the state's t."""
        return predict_probabilities(state, self.hyper, self.hashing.bias, self.hashing.prior_offset, batch)

    def learn(self, state: ModelState, batch: ExampleBatch) -> Learned:
        """One round per example, in order; changes the state in place."""
        return learn_batch(state, self.hyper, self.hashing.bias, self.hashing.prior_offset, batch)

    def to_json(self) -> dict[str, Any]:
        return {"hyper": self.hyper.to_json(), "hashing": self.hashing.to_json()}

    def canonical(self) -> str:
        """The text under which it is stored; equal for equal configurations."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))


def limits_of(settings: Settings) -> Limits:
    """What one example may be at most."""
    return Limits(settings.max_features, settings.max_name_bytes, settings.max_value, settings.max_weight)
