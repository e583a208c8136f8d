"""The configuration of Alertmanager: one cause is one notification."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.servers import free_port
from tests.support.shared_data import REPOSITORY
from tests.support.waiting import wait_until

FILE = REPOSITORY / "deploy" / "alertmanager" / "alertmanager.yml"
CONFIGURATION: dict[str, Any] = yaml.safe_load(FILE.read_text())
RULES = yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "rules" / "alerts.yml").read_text())
SEVERITIES = {rule["alert"]: rule["labels"]["severity"] for rule in RULES["groups"][0]["rules"]}
PROGRAM = "prometheus-alertmanager"  # Debian's name of it


def matched(matchers: list[str]) -> set[str]:
    """The alerts that a rule's matchers name; fails where there is no such alert."""
    [matcher] = matchers
    names = set(re.fullmatch(r'alertname=~?"([\w|]+)"', matcher)[1].split("|"))  # type: ignore[index]
    assert names <= set(SEVERITIES)
    return names


def test_each_inhibition_names_alerts_that_there_are_and_leaves_their_cause() -> None:
    inhibits = {
        (source, target)
        for rule in CONFIGURATION["inhibit_rules"]
        for source, target in itertools.product(
            matched(rule["source_matchers"]), matched(rule["target_matchers"])
        )
    }
    assert len(inhibits) > 20
    assert not inhibits & {(target, source) for source, target in inhibits}
    for source, target in inhibits:
        assert (SEVERITIES[source], SEVERITIES[target]) != ("ticket", "page")


def test_compose_runs_it_with_this_file() -> None:
    services = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
    assert (
        f"./{FILE.relative_to(REPOSITORY)}:/etc/alertmanager/alertmanager.yml:ro"
        in (services["alertmanager"]["volumes"])
    )
    prometheus = yaml.safe_load((REPOSITORY / "deploy" / "compose" / "prometheus.yml").read_text())
    [manager] = prometheus["alerting"]["alertmanagers"]
    assert manager["static_configs"] == [{"targets": ["alertmanager:9093"]}]


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[httpx.Client]:
    if shutil.which(PROGRAM) is None:
        pytest.skip(f"{PROGRAM} is not installed (Debian: apt install {PROGRAM})")
    address = f"127.0.0.1:{free_port()}"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                PROGRAM,
                f"--config.file={FILE}",
                f"--storage.path={tmp_path / 'data'}",
                f"--web.listen-address={address}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client(base_url=f"http://{address}", verify=False) as client:
            wait_until(lambda: client.get("/-/ready").is_success)
            yield client
    finally:
        process.kill()
        process.wait()


def test_consequences_of_an_outage_are_inhibited_and_the_rest_is_not(alertmanager: httpx.Client) -> None:
    firing = [
        {"alertname": "FtrlRedisDown", "job": "ftrl-api"},
        {"alertname": "FtrlNoLearner"},
        {"alertname": "FtrlNotReady", "instance": "api:8000", "purpose": "update"},
        {"alertname": "FtrlCalibrationOff", "model": "a"},
        {"alertname": "FtrlPartCalibrationOff", "model": "a", "check": "slice"},
        {"alertname": "FtrlPartCalibrationOff", "model": "b", "check": "slice"},
    ]
    alerts = [{"labels": labels | {"severity": SEVERITIES[labels["alertname"]]}} for labels in firing]
    assert alertmanager.post("/api/v2/alerts", json=alerts).is_success
    wait_until(lambda: len(notified(alertmanager)) == 3)
    assert notified(alertmanager) == {
        ("FtrlRedisDown", None, "page"),
        ("FtrlCalibrationOff", "a", "page"),
        ("FtrlPartCalibrationOff", "b", "ticket"),
    }


def notified(alertmanager: httpx.Client) -> set[tuple[str, str | None, str]]:
    """Name, model and receiver of the alerts that are not inhibited."""
    return {
        (alert["labels"]["alertname"], alert["labels"].get("model"), receiver["name"])
        for alert in alertmanager.get("/api/v2/alerts").json()
        if not alert["status"]["inhibitedBy"]
        for receiver in alert["receivers"]
    }
