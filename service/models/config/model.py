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
from model_core.examples.records import NO_TIME
from model_core.hashing.contract import FROM_LOG, HashContract, Limits
from model_core.learning.hyperparameters import (
    AdaptiveRate,
    Expert,
    HalfLife,
    Hyperparameters,
    MixtureRate,
    refusal,
)
from model_core.learning.rounds import Learned, learn_batch, margins_with, probabilities_with
from model_core.learning.state import Evidence, ModelState, evidence_before_learning
from model_core.learning.step import FIXED, NOTHING_LEARNED, Prior
from model_core.learning.update import BY_SECONDS, Terms, coefficients
from service.errors import CommandFailure, ContractMismatch, ServiceError
from service.models.config.sections import EvaluationConfig, FeedbackConfig, SnapshotsConfig
from service.settings.groups import LimitSettings, ModelSettings
from service.storage.records import FORMAT_VERSION, READABLE_FORMATS, Meta


def checked_config(model: str, meta: Meta) -> ModelConfig:
    """The stored configuration that is in force. Raises ContractMismatch if this version would not read it as
    it was written.
    """
    config = config_at_creation(model, meta)
    if not meta.feedback:
        return config
    return replace(config, feedback=feedback_in_force(model, b"{}", meta.feedback))


def feedback_in_force(model: str, config: bytes, feedback: bytes) -> FeedbackConfig:
    """The feedback settings by two fields of a model's meta. Raises ContractMismatch."""
    stored = json.loads(feedback) if feedback else json.loads(config).get("feedback", {})
    try:
        return FeedbackConfig.from_json(stored)
    except InvalidInput as wrong:
        raise ContractMismatch(
            f"Model {model!r} has feedback settings that this version does not know: {wrong}"
        ) from wrong


def config_at_creation(model: str, meta: Meta) -> ModelConfig:
    """The configuration before any change in place. Raises ContractMismatch."""
    if meta.format_version not in READABLE_FORMATS:
        raise ContractMismatch(
            f"Model {model!r} is stored in format {meta.format_version}, this version reads up to"
            f" {FORMAT_VERSION}: use the version that wrote it."
        )
    return read_config(json.loads(meta.config), meta.fingerprint, f"Model {model!r}", ContractMismatch)


def read_config(
    document: Mapping[str, Any], fingerprint: str, subject: str, mismatch: Callable[[str], ServiceError]
) -> ModelConfig:
    """Parses the configuration of a model or a snapshot, which errors name as `subject`.

    Raises the error that `mismatch` makes if this version does not know the configuration, or would hash
    under another contract than the one with that fingerprint.
    """
    try:
        config = ModelConfig.from_json(document)
    except InvalidInput as wrong:
        raise mismatch(f"{subject} has a configuration that this version does not know: {wrong}") from wrong
    if config.hashing.fingerprint != fingerprint:
        raise mismatch(
            f"{subject} was hashed under the contract {fingerprint}, this version would hash under"
            f" {config.hashing.fingerprint}: its weights would mean other features."
        )
    return config


DEFAULT_MODEL = "default"

HALF_LIFE = HalfLife("examples", 100_000.0)
EXPERTS = (
    Expert(AdaptiveRate(0.05, 0.1), 0.05),
    Expert(AdaptiveRate(0.1, 0.1), 0.05, HALF_LIFE),
    Expert(AdaptiveRate(0.7, 1.0), 0.05, HALF_LIFE),
    Expert(AdaptiveRate(2.0, 0.1), 0.001),
)
"""The experts of a new model, unless it is given others; docs/mathematics.md says how they were chosen."""

NEW_MODEL = Hyperparameters(rate=MixtureRate(EXPERTS))


def hyper_from_json(body: object) -> Hyperparameters:
    """Parses the hyperparameters of a model: without a rate it is the mixture of EXPERTS, unless something is
    given that only a model without a mixture has. Raises InvalidInput.
    """
    if isinstance(body, Mapping) and _SINGLE.isdisjoint(body):
        default = NEW_MODEL.to_json()
        if all(body.get(name, default[name]) == default[name] for name in ("family", "update", "schedule")):
            body = {**body, "rate": default["rate"]}
    return Hyperparameters.from_json(body)


_SINGLE = {"rate", "l1", "forgetting"}


@dataclass(frozen=True)
class ModelConfig:
    """`hyper`, `hashing` and optional sections: see `_SECTIONS`."""

    hyper: Hyperparameters = NEW_MODEL
    hashing: HashContract = field(default_factory=HashContract)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    feedback: FeedbackConfig = field(default_factory=FeedbackConfig)
    snapshots: SnapshotsConfig = field(default_factory=SnapshotsConfig)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ModelConfig:
        """Parses the body of a PUT; omitted fields take their defaults. Raises InvalidInput with the path."""
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
        """A copy with other fields in some sections, given as in the body of a PUT; the rest is the same.

        Raises InvalidInput with the path.
        """
        body = self.to_json()
        return self.from_json(body | {name: body[name] | fields for name, fields in sections.items()})

    def with_former_defaults(self) -> ModelConfig:
        """The configuration that the same PUT had made before defaults of new models changed."""
        hyper, hashing = self.hyper, self.hashing
        if hyper.rate == NEW_MODEL.rate:
            hyper = replace(hyper, rate=AdaptiveRate())
        if hashing.prior_probability == FROM_LOG:
            hashing = replace(hashing, prior_probability=None)
        return replace(self, hyper=hyper, hashing=hashing)

    def empty_state(self) -> ModelState:
        """The arrays of the model before its first round."""
        return ModelState.empty(self.hashing.bits, self.hyper.number_of_experts, self._prior)

    def evidence_before_learning(self) -> Evidence:
        """The evidence beside the arrays before the first round."""
        return evidence_before_learning(self.hyper.number_of_experts, self._prior)

    @property
    def _prior(self) -> Prior:
        return NOTHING_LEARNED if self.hashing.prior_probability == FROM_LOG else FIXED

    def predict(self, state: ModelState, batch: ExampleBatch) -> npt.NDArray[np.float64]:
        """Probabilities float64[r], read at the state's t."""
        return probabilities_with(state, self.coefficients, batch)

    def margins(self, state: ModelState, batch: ExampleBatch) -> npt.NDArray[np.float64]:
        """Margins float64[r]; `predict` returns their sigmoids."""
        return margins_with(state, self.coefficients, batch)

    def learn(self, state: ModelState, batch: ExampleBatch, log_time: int | None = None) -> Learned:
        """Learns one round per example, in order; changes the state in place.

        `log_time`: of the log entry, in milliseconds; examples without a time of their own happened then.
        Raises CommandFailure if the model needs a time that neither has: only a file can lack it.
        """
        if self.coefficients.forgets == BY_SECONDS:
            if log_time is not None:
                batch = batch.dated(log_time)
            elif len(batch) and (not batch.event_times.size or batch.event_times.min() == NO_TIME):
                raise CommandFailure(
                    "the model forgets by seconds, and the file has examples without a time: name its column"
                    " as `time` in a schema (`event_time` in JSON lines), or let the model forget by"
                    " half_life_examples"
                )
        return learn_batch(state, self.hyper, self.hashing.bias, self._offset, batch)

    @cached_property
    def coefficients(self) -> Terms:
        return coefficients(self.hyper, self.hashing.bias, self._offset)

    @cached_property
    def _offset(self) -> float:
        return self.hashing.prior_offset

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name).to_json() for name in _SECTIONS}

    def canonical(self) -> str:
        """The text that is stored; equal for equal configurations. Optional sections at their defaults are
        left out, so that a model that was stored before they existed compares equal.
        """
        stored = {
            name: section
            for name, section in self.to_json().items()
            if name in _ALWAYS_STORED or section != _SECTIONS[name]({}).to_json()
        }
        return json.dumps(stored, sort_keys=True, separators=(",", ":"))


_SECTIONS: Mapping[str, Callable[[Any], Any]] = {
    "hyper": hyper_from_json,
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
    """The limits of one example."""
    return Limits(settings.max_features, settings.max_name_bytes, settings.max_value, settings.max_weight)


def default_config(settings: ModelSettings) -> ModelConfig:
    """Build the configuration that the model `default` is first created with.

    Raises CommandFailure, which names the setting and the file, if the file is not such a configuration.
    """
    if settings.default_model is None:
        return ModelConfig()
    try:
        body = json.loads(settings.default_model.read_bytes())
        if not isinstance(body, dict):
            raise InvalidInput(
                (), "must be a JSON object, as in the body of PUT /models/{name}", "wrong_type"
            )
        return ModelConfig.from_json(body)
    except OSError as failure:
        why = failure.strerror or str(failure)
    except InvalidInput as wrong:
        why = str(wrong)
    except (ValueError, RecursionError) as wrong:  # not JSON, or not UTF-8
        why = f"not JSON: {wrong}"
    raise CommandFailure(
        f"the file of FTRL_DEFAULT_MODEL (--default-model) cannot be used: {settings.default_model}: {why}"
    )
