"""What a replay over HTTP makes of the service's answers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.kernels.numerics import log_loss, sigmoid
from service.cli.replay.http import _margin


@given(st.floats(-800, 800), st.sampled_from([0, 1]))
def test_the_margin_is_found_again(margin: float, label: int) -> None:
    told = {"probability": sigmoid(margin), "loss": log_loss(margin, label)}
    found = _margin(told, label)
    assert found == pytest.approx(margin, rel=1e-8, abs=1e-8) or min(abs(found), abs(margin)) > 700
    assert log_loss(found, label) == pytest.approx(told["loss"], rel=1e-9, abs=1e-15)


@given(st.floats(-690, 6.9))
def test_a_click_and_another_of_one_probability_stay_tied(margin: float) -> None:
    probability = sigmoid(margin)
    margins = [
        _margin({"probability": probability, "loss": log_loss(margin, label)}, label) for label in (0, 1)
    ]
    assert margins[0] == margins[1]


def test_an_example_that_was_skipped_has_no_margin() -> None:
    assert math.isnan(_margin({"probability": None, "loss": None}, 1))
