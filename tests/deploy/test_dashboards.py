"""The dashboards: complete, as their sources say, and every query finds something in a service under load."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.commands import ServingProcess
from tests.support.prometheus_server import PrometheusServer
from tests.support.servers import ServerProcess
from tests.support.shared_data import REPOSITORY

pytestmark = pytest.mark.timeout(300)  # of a service, its load and Prometheus, on a busy machine

GRAFANA = REPOSITORY / "deploy" / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in (GRAFANA / "dashboards").glob("*.json")}
VARIABLES = {
    "model": "default",
    "window": "1h",
    "weighting": "importance",
    "source": "progressive",
    "reliability": "1h",
    "feature": "ad",
    "__rate_interval": "10m",  # a busy machine may take minutes from the traffic to the queries
    "__interval_ms": "600000",
}
WORDS = r"by|on|without|ignoring|and|or|unless|offset|sum|max|min|count|abs|sqrt|rate|deriv|absent|bool"


def panels() -> list[tuple[str, dict[str, Any]]]:
    """Also those in collapsed rows."""
    return [
        (f"{name}: {panel['title']}", panel)
        for name, dashboard in DASHBOARDS.items()
        for outer in dashboard["panels"]
        for panel in (outer["panels"] if outer["type"] == "row" else [outer])
    ]


def filled_in(promql: str) -> str:
    """With the variables' values, and with yesterday a second ago: a test has no yesterday."""
    for name, value in VARIABLES.items():
        promql = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", value, promql)
    assert "$" not in promql, promql
    return promql.replace("offset 1d", "offset 1s")


def selectors(promql: str) -> set[str]:
    """The series that an expression reads. It may well find nothing itself, as an alert should."""
    bare = re.sub(r"\b(by|on|without|ignoring)\s*\([^)]*\)", " ", promql)
    found = re.findall(r"\b([a-z][\w:]*)\b(?!\s*\()(\{[^}]*\})?", re.sub(r"\[\w+\]|offset 1\w", "", bare))
    return {name + labels for name, labels in found if not re.fullmatch(WORDS, name)}


def test_the_files_are_what_their_sources_write() -> None:
    subprocess.run([sys.executable, str(GRAFANA / "build.py"), "--check"], check=True)


@pytest.mark.parametrize(("name", "panel"), panels())
def test_every_panel_says_what_it_shows(name: str, panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["description"].endswith(".")
    assert defaults["unit"]
    assert defaults["thresholds"]["steps"]
    assert all(target["expr"] for target in panel["targets"])
    assert "no data yet" in defaults["noValue"]


def test_what_is_0_or_1_is_shown_as_a_word() -> None:
    flags = r"min(?: by \(\w+\))? ?\((?:up\b|ftrl_ready|ftrl_redis_(?:up|persist|policy))"
    found = [panel for _, panel in panels() if re.match(flags, panel["targets"][0]["expr"])]
    assert [panel["title"] for panel in found] == ["Up", "Ready", "Redis", "Answers", "Safety"]
    for panel in found:
        [mapping] = panel["fieldConfig"]["defaults"]["mappings"]
        colors = {option: shown["color"] for option, shown in mapping["options"].items()}
        assert colors == {"0": "red", "1": "green"}


def test_headlines_stand_beside_their_statistical_error() -> None:
    tiles = {panel["title"]: panel["targets"] for _, panel in panels() if panel["type"] == "stat"}
    for title in ("AUC", "Calibration", "Log loss", "Click rate"):
        figure, margin = (target["expr"] for target in tiles[title])
        metric, window = re.fullmatch(r"(ftrl:\w+)\{.*(window=.+)\}", figure).groups()  # type: ignore[union-attr]
        assert margin.count(f"{metric}_interval{{") == margin.count(window) == 2


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_first_screens_are_open_and_details_are_collapsed(name: str) -> None:
    rows = [panel for panel in DASHBOARDS[name]["panels"] if panel["type"] == "row"]
    collapsed = [row["collapsed"] for row in rows]
    assert collapsed == sorted(collapsed), "open rows come first"
    assert 0 < sum(collapsed) < len(rows)
    assert [bool(row["panels"]) for row in rows] == collapsed


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    outer = DASHBOARDS[name]["panels"]
    for together in (outer, *(panel["panels"] for panel in outer if panel["type"] == "row")):
        taken: set[tuple[int, int]] = set()
        for panel in together:
            place = panel["gridPos"]
            cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
            assert place["x"] + place["w"] <= 24
            assert not cells & taken, panel["title"]
            taken |= cells


def test_the_dashboards_link_to_each_other() -> None:
    for dashboard in DASHBOARDS.values():
        assert dashboard["links"][0]["tags"] == ["ftrl"]
        assert "ftrl" in dashboard["tags"]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian: apt install prometheus)")
    directory = tmp_path_factory.mktemp("prometheus")
    sliced = directory / "sliced.json"
    sliced.write_text('{"evaluation": {"slices": ["ad"], "most": 3}}')
    redis = ServerProcess().start()
    api, learner = (
        ServingProcess(command, directory=directory, FTRL_REDIS_URL=redis.url, FTRL_DEFAULT_MODEL=str(sliced))
        for command in ("api", "learn")
    )
    server = None
    try:
        api.wait_until_ready()
        targets = {
            job: [process.url.removeprefix("http://")]
            for job, process in (("api", api), ("learner", learner))
        }
        server = PrometheusServer(directory, targets)
        server.wait_for("count(up == 1) == 2")
        use(api)
        server.wait_for("ftrl:predictions:rate5m > 0 and on (model) ftrl:calibration_tolerance")
        server.wait_for("ftrl_model_density_ratio > 0 and on (model) ftrl_slice_auc")
        server.wait_for("ftrl:auc_drop_tolerance and on (model) (ftrl:online_log_loss offset 1s)")
        server.wait_for('ftrl_challenger_calibration_ratio{of="champion"} > 0')
        yield server
    finally:
        if server is not None:
            server.remove()
        for process in (api, learner):
            process.stop()
            process.remove()
        redis.remove()


def use(service: ServingProcess) -> None:
    """A snapshot, a challenger, and a few seconds of predictions that are logged and labelled, and of updates
    with more clicks than a window needs for figures.
    """
    service.post("/models/default/snapshots", {})
    service.put("/models/second", {"follows": "default"})
    until = time.monotonic() + 4
    number = 0
    while number < 400 or time.monotonic() < until:
        number += 1
        features = {"ad": f"a{number % 17}", "hour": number % 24}
        logged = service.post("/predict", {"features": features, "log": True})
        service.post("/impressions", {"ids": [logged["id"]]})
        service.post("/update", {"id": logged["id"], "label": number % 5 == 0})
        service.post("/update", {"features": features, "label": number % 5 == 0, "event_time": time.time()})
        time.sleep(0.003)


@pytest.mark.slow
def test_every_panel_finds_something(prometheus: PrometheusServer) -> None:
    wanted = [filled_in(target["expr"]) for _, panel in panels() for target in panel["targets"]]
    assert prometheus.missing(wanted) == []


@pytest.mark.slow
def test_events_are_marked(prometheus: PrometheusServer) -> None:
    for dashboard in DASHBOARDS.values():
        events = {one["name"]: filled_in(one["expr"]) for one in dashboard["annotations"]["list"]}
        assert set(events) == {
            "Alerts",
            "Starts",
            "Takeovers",
            "Snapshots",
            "Restores",
            "Rollbacks",
            "Promotions",
        }
        found = {name for name, expr in events.items() if prometheus.query(expr)}
        assert found == {"Starts", "Snapshots"}, "of a service that has just started"


@pytest.mark.slow
def test_every_variable_finds_something(prometheus: PrometheusServer) -> None:
    for dashboard in DASHBOARDS.values():
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                series, label = re.findall(r"label_values\((.+), (\w+)\)", variable["query"]["query"])[0]
                assert any(label in one["metric"] for one in prometheus.query(filled_in(series)))


@pytest.mark.slow
def test_every_series_of_every_rule_is_there(prometheus: PrometheusServer) -> None:
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) > 30
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
    wanted = set().union(*(selectors(rule["query"]) for rule in rules))
    assert "ftrl:online_clicks" in {selector.partition("{")[0] for selector in wanted}
    never = re.compile(r'source="served"|status=~"5|offset|ftrl_consumer_')
    assert prometheus.missing([one for one in sorted(wanted) if not never.search(one)]) == []


@pytest.mark.slow
def test_nothing_fires_in_a_healthy_service(prometheus: PrometheusServer) -> None:
    firing = prometheus.query('ALERTS{alertstate="firing"}')
    assert [one["metric"]["alertname"] for one in firing] == []
