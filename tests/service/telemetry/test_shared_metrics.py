"""API processes share their metrics, a learner serves its own, and the text equals the library's."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from service.telemetry.metrics import Metrics
from service.telemetry.multiprocess import MetricsDirectory
from tests.support.commands import NewServingProcess, ServingProcess
from tests.support.waiting import wait_until

PREDICTIONS = 'ftrl_predictions_total{model="default"}'


def samples(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def scrape(address: str) -> dict[str, float]:
    return samples(httpx.get(address, timeout=10, verify=False).raise_for_status().text)


def wait_for(address: str, name: str, value: float | None) -> None:
    wait_until(lambda: scrape(address).get(name) == value, f"{name} is {value}")


def test_the_text_equals_that_of_the_library() -> None:
    metrics = Metrics()
    metrics.observe_request("/predict", "POST", 200, 0.003)
    metrics.predicted('a "model"\\with\nall', 3, 0.001)
    metrics.mirrored("default", age_seconds=0.1, rounds=10**9, loads=1, mixed_names=0, unmet_names=0)
    metrics.refresh()

    def families(text: str) -> list[tuple[str, str, str, list[object]]]:
        parsed = text_string_to_metric_families(text)
        return [(f.name, f.type, f.documentation, list(f.samples)) for f in parsed]

    ours = metrics.render().decode()
    instruments = families(ours[: ours.index(f"# HELP {metrics.written[0].name}")])
    assert instruments == families(generate_latest(metrics.registry).decode())


def test_directories_of_killed_supervisors_are_removed() -> None:
    abandoned = Path(tempfile.mkdtemp(prefix="ftrl-metrics-"))
    with MetricsDirectory() as mine, MetricsDirectory() as other:
        assert mine.path.is_dir()
        assert other.path.is_dir()
        assert not abandoned.exists()
    assert not mine.path.exists()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServingProcess]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = NewServingProcess("serve", "--workers", "2", directory=tmp_path, TMPDIR=str(temporary))
    yield process
    process.stop()
    process.remove()
    assert list(temporary.iterdir()) == []


@pytest.mark.faults
def test_any_worker_serves_all_metrics_and_a_restarted_one_counts_on(service: ServingProcess) -> None:
    address = f"{service.wait_until_ready()}/metrics"
    wait_for(address, 'ftrl_mirror_loads_total{model="default"}', 2)
    for _ in range(20):
        service.post("/predict", {"features": {"ad": "a"}})
    for _ in range(8):  # either of the two may respond
        assert scrape(address)[PREDICTIONS] == 20
    wait_for(address, 'ftrl_http_requests_in_progress{route="/predict"}', 0)
    first = scrape(address)
    assert {
        'process_cpu_seconds_total{process="api-1"}',
        'process_cpu_seconds_total{process="api-2"}',
    } <= set(first)
    assert not [name for name in first if name.startswith("ftrl_model_rounds{")]
    os.kill(int(service.wait_for(r"api-1 is process \d+").split()[-1]), signal.SIGKILL)
    wait_for(address, 'process_start_time_seconds{process="api-1"}', None)
    service.wait_for(r"api-1 is process \d+[\s\S]*api-1 is process \d+")
    service.post("/predict", {"features": {"ad": "a"}})
    assert scrape(address)[PREDICTIONS] == 21
    wait_for(address, 'ftrl_mirror_loads_total{model="default"}', 3)


@pytest.mark.faults
def test_a_separate_learner_serves_its_metrics_and_health(service: ServingProcess) -> None:
    service.wait_until_ready()
    address = service.wait_for(r"metrics are at http://\S+").split()[-1]
    service.post("/update", {"features": {"ad": "a"}, "label": 1})
    wait_for(address, 'ftrl_examples_learned_total{label="1",model="default"}', 1)
    wait_for(address, 'ftrl_model_rounds{model="default"}', 1)
    wait_for(address, 'ftrl_learner_active{model="default"}', 1)
    wait_for(address, 'ftrl_learner_lag_examples{model="default"}', 0)
    for path in ("/livez", "/readyz"):
        assert httpx.get(address.replace("/metrics", path), timeout=10, verify=False).status_code == 200


@pytest.mark.faults
def test_a_deleted_model_leaves_no_series_in_any_process(service: ServingProcess) -> None:
    address = f"{service.wait_until_ready()}/metrics"
    of_learner = service.wait_for(r"metrics are at http://\S+").split()[-1]
    model = service.url + "/models/passing"
    httpx.put(model, json={"hashing": {"bits": 10}}).raise_for_status()
    for _ in range(8):  # either of the two may respond
        httpx.post(f"{model}/predict", json={"features": {}}).raise_for_status()
    httpx.post(f"{model}/update", json={"features": {}, "label": 1}).raise_for_status()
    for scraped in (address, of_learner):
        wait_until(partial(series_of, scraped))
    httpx.delete(model).raise_for_status()
    for scraped in (address, of_learner):
        wait_until(partial(has_no_series, scraped))


def series_of(address: str) -> list[str]:
    return [name for name in scrape(address) if 'model="passing"' in name]


def has_no_series(address: str) -> bool:
    return not series_of(address)
