"""What a model is stored as."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from service.errors import CommandFailure
from service.models.config.model import ModelConfig, default_config
from service.settings import Settings


def test_sections_at_their_defaults_are_not_stored() -> None:
    spelled_out = ModelConfig.from_json(ModelConfig().to_json())
    assert set(json.loads(spelled_out.canonical())) == {"hyper", "hashing"}


def test_a_section_with_a_choice_is_stored_and_read_back() -> None:
    chosen = ModelConfig.from_json({"evaluation": {"slices": ["device"]}})
    assert json.loads(chosen.canonical())["evaluation"] == {"slices": ["device"], "most": 20}
    assert ModelConfig.from_json(json.loads(chosen.canonical())) == chosen


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
