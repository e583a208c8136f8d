"""docker-compose.yml as it runs: `make compose-test` starts it, and each test leaves everything up."""

from __future__ import annotations

import os
import re
import signal
from urllib.parse import quote

import pytest

from tests.support.containers import address, call, compose, docker, inspected, python_in
from tests.support.shared_data import REPOSITORY
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.compose,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        "COMPOSE_TEST" not in os.environ, reason="needs the containers that `make compose-test` starts"
    ),
]

OURS = ("api", "learner")
SERVICES = (*OURS, "redis", "prometheus", "alertmanager", "grafana")
FEATURES = {"ad": "a17", "site": "news.example", "hour": 14}
TARGET = "from numba.core.registry import cpu_target as t; print(t.target_context.codegen().magic_tuple())"
COMPILED = """
from service.runtime.kernels import choose_kernel_cache
choose_kernel_cache()
from numba.core import event
from model_core.warm_up import warm_up
with event.install_recorder("numba:compile") as compiled:
    warm_up()
print(len(compiled.buffer))
"""
OBJECT_STORE = """
from botocore.exceptions import EndpointConnectionError
from botocore.session import get_session
from service.snapshots.store.objects import open_store
import os
os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
get_session().create_client("sts", "eu-west-1")
try:
    open_store("s3://bucket/prefix").names("")
except EndpointConnectionError as away:
    print(away)
"""

USE = """
import json
from urllib.request import Request, urlopen
def call(path, body):
    headers = {"Content-Type": "application/json"}
    return json.load(urlopen(Request("http://127.0.0.1:8000" + path, json.dumps(body).encode(), headers)))
learned = call("/update", {"features": {"ad": "a"}, "label": 1})
print(learned["status"], call("/models/default/snapshots", {})["t"])
"""


def rounds() -> int:
    return int(call(f"{address('api', 8000)}/models/default")["t"])


def learn(count: int) -> None:
    """Examples with no ids, each learned when the call has returned; on a service that is healthy."""
    example = {"features": FEATURES, "label": 1}
    reply = call(f"{address('api', 8000)}/update", {"examples": [example] * count})
    assert {one["status"] for one in reply["results"]} == {"learned"}


def probability(index: int = 1) -> float:
    return float(call(f"{address('api', 8000, index)}/predict", {"features": FEATURES})["probability"])


def targets() -> dict[str, list[str]]:
    """The health of Prometheus's targets, by their jobs."""
    found: dict[str, list[str]] = {}
    for target in call(f"{address('prometheus', 9090)}/api/v1/targets")["data"]["activeTargets"]:
        found.setdefault(target["labels"]["job"], []).append(target["health"])
    return found


def test_a_click_sent_through_the_published_port_is_learned() -> None:
    before = rounds(), probability()
    learn(20)
    assert rounds() == before[0] + 20
    assert probability() > before[1]


@pytest.mark.parametrize("service", SERVICES)
def test_no_container_runs_as_root(service: str) -> None:
    status = compose("exec", "-T", service, "cat", "/proc/1/status")
    users = re.findall(r"^Uid:\s+(.+)$", status, re.MULTILINE)[0].split()
    assert "0" not in users


@pytest.mark.parametrize("service", OURS)
def test_it_runs_unprivileged_on_a_read_only_file_system(service: str) -> None:
    code = "import os; print(os.statvfs('/').f_flag & os.ST_RDONLY, open('/proc/self/status').read())"
    read_only, status = python_in(service, code).split(maxsplit=1)
    assert read_only == "1"
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)


def test_any_user_of_group_0_runs_the_image() -> None:
    container = docker(
        *("run", "--detach", "--user", "1000680000:0", "--read-only", "--cap-drop", "ALL"),
        *("--env", "FTRL_HOST=127.0.0.1", inspected("api")["Config"]["Image"]),
    ).strip()
    try:
        probe = ("exec", container, "python", "-m", "service.cli.probe")
        wait_until(lambda: '"available"' in docker(*probe, check=False))
        assert docker("exec", container, "python", "-c", USE).split() == ["learned", "1"]
        assert docker("exec", container, "python", "-c", COMPILED).strip() == "0"
    finally:
        docker("rm", "--force", "--volumes", container)


@pytest.mark.parametrize("service", OURS)
def test_the_image_holds_every_kernel_compiled_for_any_processor(service: str) -> None:
    assert python_in(service, COMPILED) == "0"
    target = (
        "from numba.core.registry import cpu_target as t; print(t.target_context.codegen().magic_tuple())"
    )
    assert python_in(service, target).endswith("'generic', '')")


def test_the_image_speaks_to_an_object_store() -> None:
    assert "Could not connect" in python_in("learner", OBJECT_STORE)


def test_a_snapshot_requested_at_the_api_is_seen_by_both() -> None:
    snapshots = f"{address('api', 8000)}/models/default/snapshots"
    learn(1)
    made = call(f"{snapshots}?tag=compose", {})["id"]
    assert made in [one["id"] for one in call(snapshots)["snapshots"]]
    assert made in compose("exec", "-T", "learner", "ftrl", "snapshot", "list")


def test_prometheus_scrapes_all_targets_and_evaluates_all_rules() -> None:
    wait_until(lambda: targets() == {"ftrl-api": ["up"], "ftrl-learner": ["up"]})
    groups = call(f"{address('prometheus', 9090)}/api/v1/rules")["data"]["groups"]
    written = "".join(file.read_text() for file in (REPOSITORY / "deploy/prometheus/rules").glob("*.yml"))
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(re.findall(r"^\s+- (?:alert|record): ", written, re.MULTILINE))
    assert not [rule for rule in rules if rule["health"] == "err"]


def test_prometheus_sends_its_alerts_to_alertmanager() -> None:
    status = f"{address('prometheus', 9090)}/api/v1/alertmanagers"
    wait_until(lambda: call(status)["data"]["activeAlertmanagers"])
    rules = call(f"{address('alertmanager', 9093)}/api/v2/status")["config"]["original"]
    assert "FtrlRedisDown" in rules


def test_grafana_answers() -> None:
    assert call(f"{address('grafana', 3000)}/api/health")["database"] == "ok"


def test_three_api_replicas_agree_and_are_scraped() -> None:
    for replicas in ("2", "3"):  # any free port for each of the new ones
        compose("up", "-d", "--wait", "--no-recreate", f"--scale=api={replicas}", API_PORTS="0")
    learn(5)
    expected = probability()
    for index in (2, 3):
        wait_until(lambda: probability(index) == expected)  # noqa: B023
    wait_until(lambda: targets()["ftrl-api"] == ["up"] * 3)
    compose("up", "-d", "--wait", "--no-recreate", "--scale=api=1")
    wait_until(lambda: targets()["ftrl-api"] == ["up"])


def test_the_demo_makes_the_dashboards_move() -> None:
    try:
        compose("--profile", "demo", "up", "-d", "--wait", "demo")
        question = quote("count(sum by (model) (ftrl_slice_examples) > 10)")
        ask = f"{address('prometheus', 9090)}/api/v1/query?query={question}"
        wait_until(lambda: [one["value"][1] for one in call(ask)["data"]["result"]] == ["4"])
    finally:
        compose("--profile", "demo", "rm", "--stop", "--force", "demo")


def test_a_killed_learner_restarts_and_learns_the_backlog() -> None:
    before = rounds()
    killed = inspected("learner")["State"]["Pid"]
    os.kill(killed, signal.SIGKILL)
    reply = call(f"{address('api', 8000)}/update", {"features": FEATURES, "label": 0})
    assert reply["status"] in {"appended", "learned"}
    wait_until(lambda: rounds() == before + 1)
    assert inspected("learner")["State"]["Pid"] != killed


def test_the_state_outlives_a_restart_of_redis() -> None:
    learn(7)
    before = rounds(), probability()
    compose("restart", "redis")
    compose("up", "-d", "--wait", "--no-recreate", "redis")  # a restart does not wait until it answers
    wait_until(lambda: (rounds(), probability()) == before)
    wait_until(lambda: "update" in call(f"{address('api', 8000)}/readyz?for=update"))
    # In the log at once; learned when the learner, too, has found the server again.
    reply = call(f"{address('api', 8000)}/update", {"features": FEATURES, "label": 1})
    assert reply["status"] in {"appended", "learned"}
    wait_until(lambda: rounds() == before[0] + 1)


def test_the_state_outlives_down_and_up() -> None:
    before = rounds(), probability()
    compose("down")
    compose("up", "-d", "--wait")
    assert (rounds(), probability()) == before
    learn(1)
    assert rounds() == before[0] + 1
