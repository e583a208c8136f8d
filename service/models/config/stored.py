"""How a model is configured, by what is stored of it."""

from __future__ import annotations

import json
from dataclasses import replace

from model_core.errors import InvalidInput
from service.errors import ContractMismatch
from service.models.config.feedback import FeedbackConfig
from service.models.config.model import ModelConfig
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
