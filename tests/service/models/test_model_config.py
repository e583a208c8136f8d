"""What a model is stored as."""

from __future__ import annotations

import json

from service.models.config.model import ModelConfig


def test_sections_at_their_defaults_are_not_stored() -> None:
    spelled_out = ModelConfig.from_json(ModelConfig().to_json())
    assert set(json.loads(spelled_out.canonical())) == {"hyper", "hashing"}


def test_a_section_with_a_choice_is_stored_and_read_back() -> None:
    chosen = ModelConfig.from_json({"evaluation": {"slices": ["device"]}})
    assert json.loads(chosen.canonical())["evaluation"] == {"slices": ["device"], "most": 20}
    assert ModelConfig.from_json(json.loads(chosen.canonical())) == chosen
