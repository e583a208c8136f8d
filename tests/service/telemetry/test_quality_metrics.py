"""The gauges of a model's slices, and of the experts of a mixture."""

from __future__ import annotations

import re
from typing import get_args

from model_core.evaluation.figures import Figures, Window
from model_core.learning.census import take_census
from model_core.learning.hyperparameters import Expert, Hyperparameters, MixtureRate
from model_core.learning.state import ModelState
from service.telemetry.metrics import Metrics

FIGURES = {
    window: Figures(window, "weight", 60, 20, log_loss=0.5, calibration_ratio=1.1)
    for window in get_args(Window)
}


def shown(metrics: Metrics) -> set[str]:
    return set(re.findall(r"^(ftrl_slice_\w+\{.*\}) ", metrics.render().decode(), re.MULTILINE))


def test_slices_are_shown_for_an_hour_and_a_day_until_removed() -> None:
    metrics = Metrics()
    for value in ("phone", 'a "b"'):
        metrics.sliced("m", "device", value, FIGURES)
    assert len(shown(metrics)) == 2 * 2 * 4
    metrics.retain_slices("m", {("device", "phone")})
    assert len(shown(metrics)) == 2 * 4
    assert 'ftrl_slice_clicks{feature="device",model="m",value="phone",window="1h"}' in shown(metrics)
    metrics.learner_state("m", leading=False, blocked=False)
    assert shown(metrics) == set()


def test_each_expert_of_a_mixture_has_a_weight() -> None:
    metrics, hyper = Metrics(), Hyperparameters(rate=MixtureRate((Expert(),) * 4))
    metrics.measured("m", take_census(ModelState.empty(4, 4), hyper))
    metrics.measured("single", take_census(ModelState.empty(4), Hyperparameters()))
    text = metrics.render().decode()
    assert re.findall(r"^ftrl_model_expert_weight_ratio(.*)$", text, re.MULTILINE) == [
        f'{{expert="{number}",model="m"}} 0.25' for number in range(4)
    ]
