"""A model's configuration: hyperparameters, hash contract and optional sections, as sent and as stored.

All but `feedback` is fixed at creation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract, Limits
from model_core.learning.hyperparameters import Hyperparameters, refusal
from model_core.learning.rounds import Learned, learn_batch, margins_with, probabilities_with
from model_core.learning.state import ModelState
from model_core.learning.update import Coefficients, coefficients
from service.errors import ContractMismatch
from service.models.config.sections import EvaluationConfig, FeedbackConfig, SnapshotsConfig
from service.settings.groups import LimitSettings, ModelSettings
from service.storage.records import FORMAT_VERSION, Meta


def checked_config(model: str, meta: Meta) -> ModelConfig:
    """The stored configuration, as it is in force. Raises ContractMismatch where this code would not read it
    as it was written.
    """
    config = config_at_creation(model, meta)
    if not meta.feedback:
        return config
    return replace(config, feedback=feedback_in_force(model, b"{}", meta.feedback))


def feedback_in_force(model: str, config: bytes, feedback: bytes) -> FeedbackConfig:
    """Of these fields of a model's meta. Raises ContractMismatch."""
    stored = json.loads(feedback) if feedback else json.loads(config).get("feedback", {})
    try:
        return FeedbackConfig.from_json(stored)
    except InvalidInput as wrong:
        raise ContractMismatch(
            f"Model {model!r} has a feedback this version does not know: {wrong}"
        ) from wrong


def config_at_creation(model: str, meta: Meta) -> ModelConfig:
    """Before any change in place. Raises ContractMismatch."""
    if meta.format_version != FORMAT_VERSION:
        raise ContractMismatch(
            f"Model {model!r} is stored in format {meta.format_version}, this version reads {FORMAT_VERSION}:"
            " use the version that wrote it."
        )
    try:
        config = ModelConfig.from_json(json.loads(meta.config))
    except InvalidInput as wrong:
        raise ContractMismatch(
            f"Model {model!r} has a configuration this version does not know: {wrong}"
        ) from wrong
    if config.hashing.fingerprint != meta.fingerprint:
        raise ContractMismatch(
            f"Model {model!r} was hashed under the contract {meta.fingerprint}, this version would hash under"
            f" {config.hashing.fingerprint}: its weights would mean other features."
        )
    return config


DEFAULT_MODEL = "default"


@dataclass(frozen=True)
class ModelConfig:
    """`hyper` and `hashing`, and sections that may be left out: see `_SECTIONS`."""

    hyper: Hyperparameters = field(default_factory=Hyperparameters)
    hashing: HashContract = field(default_factory=HashContract)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    feedback: FeedbackConfig = field(default_factory=FeedbackConfig)
    snapshots: SnapshotsConfig = field(default_factory=SnapshotsConfig)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ModelConfig:
        """From the body of a PUT; what is left out takes its default. Raises InvalidInput with the path."""
        for name in body:
            if name not in _SECTIONS:
                *others, last = (f"`{section}`" for section in _SECTIONS)
                raise InvalidInput(
                    (name,), f"unknown field; a model has {', '.join(others)} and {last}", "unknown_field"
                )
        config = cls(**{name: _section(name, body.get(name, {})) for name in _SECTIONS})
        if (why := refusal(config.hyper)) is not None:
            raise InvalidInput(("hyper",), why)
        return config

    def changed(self, sections: Mapping[str, Mapping[str, Any]]) -> ModelConfig:
        """With other fields in some sections, given as in the body of a PUT; what is left out stays as it is.

        Raises InvalidInput with the path.
        """
        body = self.to_json()
        return self.from_json(body | {name: body[name] | fields for name, fields in sections.items()})

    def predict(self, state: ModelState, batch: ExampleBatch) -> npt.NDArray[np.float64]:
        """Probabilities float64[r], read at the state's t."""
        return probabilities_with(state, self.coefficients, batch)

    def margins(self, state: ModelState, batch: ExampleBatch) -> npt.NDArray[np.float64]:
        """Margins float64[r], of which `predict` gives the sigmoids."""
        return margins_with(state, self.coefficients, batch)

    def learn(self, state: ModelState, batch: ExampleBatch) -> Learned:
        """One round per example, in order; changes the state in place."""
        return learn_batch(state, self.hyper, self.hashing.bias, self._offset, batch)

    @cached_property
    def coefficients(self) -> Coefficients:
        return coefficients(self.hyper, self.hashing.bias, self._offset)

    @cached_property
    def _offset(self) -> float:
        return self.hashing.prior_offset

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name).to_json() for name in _SECTIONS}

    def canonical(self) -> str:
        """The text under which it is stored; equal for equal configurations. Optional sections at their
        defaults are left out, so that a model that was stored before there were any stays equal.
        """
        stored = {
            name: section
            for name, section in self.to_json().items()
            if name in _ALWAYS_STORED or section != _SECTIONS[name]({}).to_json()
        }
        return json.dumps(stored, sort_keys=True, separators=(",", ":"))


_SECTIONS: Mapping[str, Callable[[Any], Any]] = {
    "hyper": Hyperparameters.from_json,
    "hashing": HashContract.from_json,
    "evaluation": EvaluationConfig.from_json,
    "feedback": FeedbackConfig.from_json,
    "snapshots": SnapshotsConfig.from_json,
}
_ALWAYS_STORED = ("hyper", "hashing")


def _section(name: str, body: Any) -> Any:
    try:
        return _SECTIONS[name](body)
    except InvalidInput as wrong:
        raise wrong.within(name) from None


def limits_of(settings: LimitSettings) -> Limits:
    """What one example may be at most."""
    return Limits(settings.max_features, settings.max_name_bytes, settings.max_value, settings.max_weight)


def default_config(settings: ModelSettings) -> ModelConfig:
    """Of the model `default` where it is first created. Raises InvalidInput, ValueError, OSError."""
    if settings.default_model is None:
        return ModelConfig()
    return ModelConfig.from_json(json.loads(settings.default_model.read_bytes()))
