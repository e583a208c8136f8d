"""What a model is stored as."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model_core.errors import InvalidInput
from model_core.learning.hyperparameters import Hyperparameters
from service.errors import CommandFailure
from service.models.config.model import NEW_MODEL, ModelConfig, default_config
from service.settings import Settings


def test_sections_at_their_defaults_are_not_stored() -> None:
    spelled_out = ModelConfig.from_json(ModelConfig().to_json())
    assert set(json.loads(spelled_out.canonical())) == {"hyper", "hashing"}


def test_a_section_with_a_choice_is_stored_and_read_back() -> None:
    chosen = ModelConfig.from_json({"evaluation": {"slices": ["device"]}})
    assert json.loads(chosen.canonical())["evaluation"] == {"slices": ["device"], "most": 20}
    assert ModelConfig.from_json(json.loads(chosen.canonical())) == chosen


@pytest.mark.parametrize(
    ("hyper", "experts"),
    [
        ({}, 4),
        ({"family": "ftrl", "update": "first_order", "schedule": {"kind": "once"}}, 4),
        ({"l2": 0.1, "psi_l2": 0.2, "box": 1.0}, 4),
        ({"rate": {"kind": "adaptive"}}, 1),
        ({"rate": {"kind": "gamma", "gamma": 1.0}}, 1),
        ({"l1": 0.1}, 1),
        ({"forgetting": None}, 1),
        ({"family": "rda"}, 1),
        ({"update": "implicit"}, 1),
        ({"schedule": {"kind": "constant"}}, 1),
    ],
)
def test_a_new_model_is_a_mixture_unless_something_of_one_model_is_given(
    hyper: dict[str, Any], experts: int
) -> None:
    found, single = ModelConfig.from_json({"hyper": hyper}).hyper, Hyperparameters.from_json(hyper)
    assert found.number_of_experts == experts
    assert found == (single if experts == 1 else replace(single, rate=NEW_MODEL.rate))
    assert ModelConfig.from_json({"hyper": found.to_json()}).hyper == found


@pytest.mark.parametrize("body", [{"hyper": []}, {"hyper": None}, {"hyper": {"experts": []}}])
def test_hyperparameters_that_are_none_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        ModelConfig.from_json(body)
    assert caught.value.path[0] == "hyper"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"hyper": {"l1": -1}}', "hyper.l1"),
        (b'{"hypr": {}}', "hypr: unknown field"),
    ],
)
def test_a_broken_file_of_the_default_model_is_named_with_its_setting(
    content: bytes, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "model.json"
    file.write_bytes(content)
    with pytest.raises(CommandFailure, match=f"FTRL_DEFAULT_MODEL.*{re.escape(str(file))}: .*{says}"):
        default_config(Settings(default_model=file))


def test_a_file_of_the_default_model_that_went_away_is_named(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_bytes(b"{}")
    settings = Settings(default_model=file)
    file.unlink()
    with pytest.raises(CommandFailure, match=f"FTRL_DEFAULT_MODEL.*{re.escape(str(file))}: No such file"):
        default_config(settings)
