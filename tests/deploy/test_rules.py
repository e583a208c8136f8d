"""The rules and alerts of deploy/prometheus, checked and run by promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from service.telemetry.metrics import Metrics
from tests.support.alert_scenarios import SCENARIOS, unit_test
from tests.support.shared_data import REPOSITORY

PROMETHEUS = REPOSITORY / "deploy" / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
ALERTS = re.findall(r"alert: (\w+)", (PROMETHEUS / "rules" / "alerts.yml").read_text())

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt install prometheus)"
    ),
]


def promtool(*words: str, text: str | None = None) -> str:
    result = subprocess.run(
        ["promtool", *words], input=text, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_the_rules_are_valid() -> None:
    promtool("check", "rules", *map(str, RULES))


def test_the_configuration_is_valid() -> None:
    promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))


def test_the_metrics_are_named_as_prometheus_wants_them() -> None:
    metrics = Metrics()
    metrics.refresh()
    assert promtool("check", "metrics", text=metrics.render().decode()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("step_minutes", [1, 10])
def test_each_alert_fires_when_it_should_and_no_other_does(step_minutes: int, tmp_path: Path) -> None:
    tests = {
        "rule_files": list(map(str, RULES)),
        "evaluation_interval": f"{step_minutes}m",
        "group_eval_order": ["ftrl-traffic", "ftrl-quality", "ftrl-alerts"],
        "tests": [unit_test(scenario) for scenario in SCENARIOS if scenario.step_minutes == step_minutes],
    }
    file = tmp_path / "alerts.json"  # JSON is YAML
    file.write_text(json.dumps(tests))
    promtool("test", "rules", str(file))


def test_each_alert_has_a_scenario_in_which_it_fires() -> None:
    assert set().union(*(scenario.alerts for scenario in SCENARIOS)) == set(ALERTS)


def test_each_alert_has_its_section_in_the_runbook() -> None:
    runbook = (REPOSITORY / "docs" / "runbook.md").read_text()
    assert re.findall(r"^## (Ftrl\w+)$", runbook, re.MULTILINE) == ALERTS
    anchors = re.findall(r"runbook: docs/runbook.md#(\w+)", (PROMETHEUS / "rules" / "alerts.yml").read_text())
    assert anchors == [alert.lower() for alert in ALERTS]
