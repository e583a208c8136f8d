"""What is shown of a model's slices."""

from __future__ import annotations

import re

from service.metrics import Metrics

FIGURES = {"auc": None, "log_loss": 0.5, "calibration_ratio": 1.1, "examples": 60, "clicks": 20}


def shown(metrics: Metrics) -> set[str]:
    return set(re.findall(r"^(ftrl_slice_\w+\{.*\}) ", metrics.render().decode(), re.MULTILINE))


def test_slices_are_shown_for_an_hour_and_a_day_and_go_when_there_is_none() -> None:
    metrics = Metrics()
    windows = {"1h": FIGURES, "24h": FIGURES, "all": FIGURES}
    metrics.sliced("m", {"device": {"phone": windows, 'a "b"': windows}})
    assert len(shown(metrics)) == 2 * 2 * 4
    metrics.sliced("m", {"device": {"phone": windows}})
    assert len(shown(metrics)) == 2 * 4
    assert 'ftrl_slice_clicks{feature="device",model="m",value="phone",window="1h"}' in shown(metrics)
    metrics.learner_state("m", leading=False, blocked=False)
    assert shown(metrics) == set()
