import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from service import __version__
from service.cli.main import GROUPS
from service.settings import Settings
from service.storage.embedded import EmbeddedServer
from service.storage.records import lease_key, lost_key
from tests.conftest import ServerFactory
from tests.support.commands import NewServingProcess, ServingProcess, run
from tests.support.servers import ServerProcess, free_port
from tests.support.waiting import wait_until

Ftrl = Callable[..., ServingProcess]

CLICK = {"features": {"ad": "shoes"}, "label": 1}


@pytest.fixture
def ftrl(tmp_path: Path) -> Iterator[Ftrl]:
    """Starts `ftrl WORDS` with its data in `tmp_path/data`; afterwards nothing of it is left."""
    started: list[ServingProcess] = []

    def start(*words: str, **variables: str) -> ServingProcess:
        process = NewServingProcess(*words, directory=tmp_path, **variables)
        started.append(process)
        return process

    yield start
    for process in started:
        process.remove()
    if (tmp_path / "data").exists():
        with EmbeddedServer(Settings(data_dir=tmp_path / "data")):
            pass  # an orphan is found and, with its last user, stopped


def embedded_is_running(directory: Path) -> bool:
    with EmbeddedServer(Settings(data_dir=directory / "data")) as server:
        return not server.started


def test_help_names_the_commands() -> None:
    result = run("--help", new_interpreter=True)
    assert result.returncode == 0
    for command in ("serve", "api", "learn", "models", "version"):
        assert f" {command} " in result.stdout
    for title in GROUPS:
        assert f"\n{title}:\n" in result.stdout


@pytest.mark.parametrize("word", ["version", "--version"])
def test_version_is_printed(word: str) -> None:
    assert run(word).stdout == f"ftrl-service {__version__}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("serve", "--prot", "1"), "--port"),
        (("serve", "--workers", "0"), "--workers"),
        (("snapsot",), "did you mean snapshot?"),
        (("nonsense",), "`ftrl --help` lists the commands"),
        (("snapshot", "lst"), "Did you mean 'list'?"),
    ],
)
def test_a_wrong_call_exits_with_2_and_says_what_may_be_meant(words: tuple[str, ...], says: str) -> None:
    result = run(*words)
    assert (result.returncode, result.stdout) == (2, "")
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_in_use_is_a_failure_of_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("serve", "--port", str(port), FTRL_DATA_DIR=str(tmp_path))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"ftrl: cannot listen on 127.0.0.1:{port}: Address already in use")
    assert result.stderr.count("\n") == 1


def test_a_learner_of_its_own_does_not_get_the_port_of_the_health_checks(
    tmp_path: Path, valkey: ServerProcess
) -> None:
    health = str(free_port())
    words = (
        "--separate-learner",
        "--port",
        str(free_port()),
        "--health-port",
        health,
        "--metrics-port",
        health,
    )
    result = run("serve", *words, FTRL_DATA_DIR=str(tmp_path), FTRL_REDIS_URL=valkey.url)
    expected = f"ftrl: the learner would listen on port {health} as well: choose another FTRL_METRICS_PORT\n"
    assert (result.returncode, result.stderr) == (1, expected)


def test_a_host_that_does_not_exist_is_a_failure_of_one_line() -> None:
    result = run("serve", "--host", "no.such.host.invalid")
    assert result.returncode == 1
    assert result.stderr.startswith("ftrl: cannot listen on no.such.host.invalid:8000:")
    assert result.stderr.count("\n") == 1


def test_an_unwritable_data_directory_fails_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("serve", "--port", "0", "--data-dir", str(tmp_path / "file"))
    assert result.returncode == 1
    assert result.stderr.startswith("ftrl: cannot write the data directory")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["serve", "learn"])
def test_a_server_that_may_evict_models_is_refused_in_one_line(
    command: str, server_factory: ServerFactory
) -> None:
    server = server_factory(maxmemory="50mb", maxmemory_policy="allkeys-lru")
    result = run(command, "--port", "0", "--redis-url", server.url)
    assert result.returncode == 1
    assert "maxmemory-policy" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_models_says_when_no_service_answers() -> None:
    result = run("models", "--url", "http://127.0.0.1:1")
    assert result.returncode == 1
    assert result.stderr.startswith("ftrl: no ftrl service answers at http://127.0.0.1:1 ")


@pytest.mark.slow
def test_serve_announces_its_address_data_and_documentation(ftrl: Ftrl, tmp_path: Path) -> None:
    process = ftrl("serve")
    url = process.wait_until_ready()
    assert process.stop() == 0
    assert process.output == [
        f"ftrl 0.1.0 listens on {url} (try {url}/docs); its data is in {tmp_path / 'data'}\n"
    ]


def test_serve_learns_and_ctrl_c_stops_it_without_loss(ftrl: Ftrl, tmp_path: Path) -> None:
    first = ftrl("serve")
    first.wait_until_ready()
    assert first.post("/update", CLICK)["status"] == "learned"
    before = first.post("/predict", {"features": CLICK["features"]})["probability"]
    listed = json.loads(run("models", "--json", "--url", first.url).stdout)
    assert [(model["name"], model["t"]) for model in listed] == [("default", 1)]
    assert "\ndefault " in run("models", "--url", first.url).stdout
    first.interrupt()
    assert first.wait() == 0
    assert not embedded_is_running(tmp_path)

    second = ftrl("serve")
    second.wait_until_ready()
    assert second.post("/predict", {"features": CLICK["features"]})["probability"] == before
    assert second.stop() == 0
    assert not embedded_is_running(tmp_path)


@pytest.mark.slow
def test_a_stop_while_the_server_starts_leaves_no_server(ftrl: Ftrl, tmp_path: Path) -> None:
    process = ftrl("serve")
    wait_until((tmp_path / "data" / "valkey" / "valkey.pid").exists)
    assert process.stop() == 0
    assert not embedded_is_running(tmp_path)


@pytest.mark.faults
def test_serve_goes_on_with_the_server_that_a_killed_one_left(ftrl: Ftrl, tmp_path: Path) -> None:
    first = ftrl("serve")
    first.wait_until_ready()
    first.post("/update", CLICK)
    first.kill9()
    second = ftrl("serve", "--lease-seconds", "2", FTRL_REDIS_TIMEOUT_SECONDS="0.9")
    second.wait_until_ready()
    assert second.get("/models/default")["t"] == 1
    assert second.stop() == 0
    assert not embedded_is_running(tmp_path)


@pytest.mark.slow
def test_with_json_logs_every_line_is_an_object(ftrl: Ftrl) -> None:
    process = ftrl("serve", "--log-format", "json", FTRL_PROT="80")
    process.wait_until_ready()
    assert process.stop() == 0
    lines = [json.loads(line) for line in process.errors]
    assert process.output == []
    assert any("did you mean FTRL_PORT?" in line["message"] for line in lines)
    assert any(line.get("url") == process.url for line in lines)


@pytest.mark.slow
def test_api_and_learn_of_one_data_directory_work_together(ftrl: Ftrl, tmp_path: Path) -> None:
    api = ftrl("api")
    api.wait_until_ready()
    learner = ftrl("learn")
    assert api.post("/update", CLICK)["status"] in {"learned", "appended"}
    wait_until(lambda: api.get("/models/default")["t"] == 1)
    assert api.stop() == 0
    assert embedded_is_running(tmp_path)
    assert learner.stop() == 0
    assert not embedded_is_running(tmp_path)


@pytest.mark.slow
def test_a_learner_has_one_copy_of_a_model_and_reports_that_redis_has_lost_it(
    ftrl: Ftrl, fresh_valkey: ServerProcess
) -> None:
    url = ftrl("learn", FTRL_REDIS_URL=fresh_valkey.url).wait_until_ready()
    with fresh_valkey.client() as client:
        wait_until(lambda: client.exists(lease_key("default")), "it leads")
        assert "ftrl_mirror_rounds{" not in httpx.get(f"{url}/metrics", timeout=30).text
        client.flushall()
        wait_until(lambda: client.exists(lost_key("default")), "it reports the loss")


def is_answering_an_update(url: str) -> bool:
    metrics = httpx.get(f"{url}/metrics", timeout=30, verify=False).raise_for_status().text
    return 'ftrl_http_requests_in_progress{route="/update"} 1.0' in metrics


def refuses_connections(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port)):
            return False
    except ConnectionRefusedError:
        return True


@pytest.mark.slow
def test_a_stop_while_requests_are_in_flight_waits_for_them(ftrl: Ftrl) -> None:
    process = ftrl("serve")
    url = process.wait_until_ready()
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(CLICK).encode()
    head = "POST /update HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body[:5])
        wait_until(lambda: is_answering_an_update(url))
        os.kill(process.process.pid, 15)
        wait_until(lambda: refuses_connections(host, int(port)))
        connection.sendall(body[5:])
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert process.wait() == 0
