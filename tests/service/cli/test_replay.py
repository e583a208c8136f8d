"""A file over HTTP and the same file offline: one state, one summary."""

from __future__ import annotations

import gzip
import json
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bench.criteo import FILE, write_vw
from service.cli.replay.http import replay_over_http
from service.cli.replay.offline import replay_offline, replay_without_loading
from service.cli.replay.summary import ReplayPlan, ReplaySummary
from service.errors import CommandFailure, ModelConflict
from service.models.config.model import ModelConfig
from service.parsing.files.rows import Format
from service.parsing.files.source import UnreadableFile
from service.settings import Settings
from service.storage.health import UnfitServer
from tests.conftest import ServerFactory, SettingsFactory
from tests.support.commands import run
from tests.support.processes import ServiceProcess
from tests.support.replays import CONFIG, ROWS, OpenReplay, assert_same_figures, plan, write
from tests.support.servers import ServerProcess
from tests.support.shared_data import shared_file
from tests.support.system import stored_now
from tests.support.waiting import wait_until

FORMATS: list[Format] = ["vw", "libsvm", "csv", "tsv", "jsonl"]
WAYS = ["http", "offline"]
Replay = Callable[[ReplayPlan], ReplaySummary]


@pytest.fixture(scope="module")
def service(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that takes fewer examples at once than a replay sends by itself, and shorter names."""
    directory = tmp_path_factory.mktemp("service")
    (directory / "small.json").write_text(json.dumps({"hashing": {"bits": 10}}))
    service = ServiceProcess(
        "serve",
        server.url,
        directory,
        default_model="small.json",
        max_examples=300,
        max_name_bytes=40,
    )
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.remove()


@pytest.fixture
def settings(server: ServerProcess) -> Settings:
    return Settings(redis_url=server.url)


@pytest.fixture
def ways(service: ServiceProcess, settings: Settings) -> dict[str, Replay]:
    return {
        "http": lambda plan: replay_over_http(learning(service, plan), service.url),
        "offline": lambda plan: replay_offline(plan, settings),
    }


def learning(service: ServiceProcess, plan: ReplayPlan) -> ReplayPlan:
    """The same plan, once its model is learned: what is not learned in time has no part in the figures."""
    if plan.model not in service.get("/models")["models"]:
        service.put(f"/models/{plan.model}", plan.config)
    wait_until(lambda: service.metric("ftrl_learner_active", model=plan.model) == 1)
    return plan


def assert_same_state(server: ServerProcess, one: str, other: str, rows: int) -> None:
    wait_until(lambda: [stored_now(server.url, model).state.t for model in (one, other)] == [rows, rows])
    states = [stored_now(server.url, model).state for model in (one, other)]
    assert states[0].features_seen > 0
    assert states[0].digest() == states[1].digest()


def test_real_clicks_give_the_same_state_and_summary_both_ways(
    server: ServerProcess, service: ServiceProcess, tmp_path: Path
) -> None:
    shared_file(FILE)
    path = tmp_path / "criteo.vw"
    assert write_vw(path, 5000) == 5000
    words = ("replay", str(path), "--json", "--hashing", '{"bits": 18}')
    learning(service, replace(plan(path, "criteo-http"), config={"hashing": {"bits": 18}}))
    over_http = run(*words, "--url", service.url, "--model", "criteo-http")
    offline = run(*words, "--offline", "--model", "criteo-offline", FTRL_REDIS_URL=server.url)
    assert (over_http.returncode, offline.returncode) == (0, 0), over_http.stderr + offline.stderr
    assert_same_state(server, "criteo-http", "criteo-offline", 5000)
    assert_same_figures(json.loads(over_http.stdout), json.loads(offline.stdout))


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_format_gives_the_same_state_and_summary_both_ways(
    server: ServerProcess, ways: dict[str, Replay], tmp_path: Path, file_format: Format
) -> None:
    path = write(tmp_path, file_format)
    models = [f"{file_format}-{way}" for way in WAYS]
    over_http, offline = (ways[way](plan(path, model)) for way, model in zip(WAYS, models, strict=True))
    assert_same_state(server, models[0], models[1], ROWS)
    assert_same_figures(over_http.to_json(), offline.to_json())
    assert offline.rows == ROWS
    assert (over_http.load_seconds is None, offline.load_seconds is None) == (True, False)


def test_the_service_goes_on_from_a_state_that_was_loaded_offline(
    service: ServiceProcess, settings: Settings, tmp_path: Path
) -> None:
    path = write(tmp_path, "jsonl")
    replay_offline(plan(path, "loaded"), settings)
    assert service.get("/models/loaded")["t"] == ROWS
    replay_offline(plan(path, "loaded"), settings)  # while the service has the model open
    wait_until(lambda: bool(service.get("/models/loaded")["t"] == 2 * ROWS))
    click = {"features": {"ad": "a1"}, "label": 1}
    wait_until(lambda: bool(service.post("/models/loaded/update", click)["status"] == "learned"))


def test_a_dry_run_reports_as_an_offline_replay_and_stores_nothing(
    server: ServerProcess, settings: Settings, tmp_path: Path
) -> None:
    path = write(tmp_path, "vw")
    dry = replay_without_loading(plan(path, "dry"), settings)
    with server.client() as client:
        assert client.keys("ftrl:{dry}*") == []
    wet = replay_offline(plan(path, "dry"), settings)
    assert_same_figures(dry.to_json(), wet.to_json())


def test_weights_count_in_figures_of_their_own(settings: Settings, tmp_path: Path) -> None:
    weighted = replay_without_loading(plan(write(tmp_path, "vw"), "m"), settings)
    assert weighted.weighted.log_loss != weighted.log_loss
    unweighted = replay_without_loading(plan(write(tmp_path, "libsvm"), "m"), settings)
    assert unweighted.weighted.log_loss == unweighted.log_loss


def test_examples_that_the_service_has_seen_are_counted_apart(
    service: ServiceProcess, ways: dict[str, Replay], tmp_path: Path
) -> None:
    path = write(tmp_path, "jsonl", rows=400)
    assert ways["http"](plan(path, "twice")).duplicates == 0
    again = ways["http"](plan(path, "twice"))
    assert (again.rows, again.duplicates, again.log_loss) == (0, 400, None)
    assert service.get("/models/twice")["t"] == 400


def test_an_unknown_model_is_created_with_the_defaults_both_ways(
    server: ServerProcess, service: ServiceProcess, settings: Settings, tmp_path: Path
) -> None:
    path = write(tmp_path, "tsv", rows=10)
    replay_over_http(replace(plan(path, "new-http"), config={}), service.url)
    replay_offline(replace(plan(path, "new-offline"), config={}), settings)
    assert (
        stored_now(server.url, "new-http").config
        == stored_now(server.url, "new-offline").config
        == ModelConfig()
    )
    assert_same_state(server, "new-http", "new-offline", 10)


def test_the_model_default_is_made_as_the_service_would_make_it(
    valkey: ServerProcess, make_settings: SettingsFactory, tmp_path: Path
) -> None:
    (tmp_path / "default.json").write_text(json.dumps(CONFIG))
    settings = make_settings(valkey, default_model=tmp_path / "default.json")
    replay_offline(replace(plan(write(tmp_path, "vw", rows=10), "default"), config={}), settings)
    assert stored_now(valkey.url, "default").config == ModelConfig.from_json(CONFIG)


def test_a_server_that_may_evict_the_model_is_refused(
    server_factory: ServerFactory, make_settings: SettingsFactory, tmp_path: Path
) -> None:
    settings = make_settings(server_factory(maxmemory="50mb", maxmemory_policy="allkeys-lru"))
    with pytest.raises(UnfitServer, match="maxmemory-policy"):
        replay_offline(plan(write(tmp_path, "vw", rows=10), "m"), settings)


@pytest.mark.parametrize("way", WAYS)
def test_another_configuration_than_the_models_is_a_conflict(
    ways: dict[str, Replay], tmp_path: Path, way: str
) -> None:
    asked = plan(write(tmp_path, "vw", rows=10), f"settled-{way}")
    ways[way](asked)
    other = replace(asked, config={"hyper": {"l1": 0.7}, "hashing": CONFIG["hashing"]})
    with pytest.raises((ModelConflict, CommandFailure), match=r"exists with hyper\.l1 = 0\.1, not 0\.7"):
        ways[way](other)


def test_offline_a_bad_line_leaves_the_model_as_it_was(
    server: ServerProcess, ways: dict[str, Replay], tmp_path: Path
) -> None:
    path = write(tmp_path, "vw", rows=10)
    ways["offline"](plan(path, "bad-offline"))
    before = stored_now(server.url, "bad-offline")
    path.write_text(path.read_text() + "2 |f a\n")
    with pytest.raises(CommandFailure, match=f"^{path}:11: .*--on-error skip"):
        ways["offline"](plan(path, "bad-offline"))
    assert stored_now(server.url, "bad-offline").revision == before.revision


def test_over_http_all_lines_before_a_bad_one_are_learned(
    service: ServiceProcess, ways: dict[str, Replay], tmp_path: Path
) -> None:
    path = write(tmp_path, "vw", rows=310)
    path.write_text(path.read_text() + "2 |f a\n1 |f b\n")
    with pytest.raises(CommandFailure, match=rf"^{path}:311: .*; 310 rows were learned before$"):
        ways["http"](plan(path, "bad-http"))
    assert service.get("/models/bad-http")["t"] == 310


@pytest.mark.parametrize("way", WAYS)
def test_bad_lines_are_left_out_and_counted_on_demand(
    ways: dict[str, Replay], tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    path = tmp_path / "mixed.vw"
    path.write_text("".join(f"1 |f a={i}\nbroken\n" for i in range(30)))
    summary = ways[way](plan(path, f"mixed-{way}", on_error="skip"))
    assert (summary.rows, summary.bad_lines) == (30, 30)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [f"{path}:{number}: no '|' before the features" for number in (2, 4)]
    assert lines[20:] == ["further bad lines are counted, not shown"]


def test_what_only_the_service_refuses_is_a_bad_line_too(
    ways: dict[str, Replay], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.vw"
    path.write_text("".join(f"1 |f {'n' * 41 if i in (3, 250) else 'name'}={i}\n" for i in range(280)))
    summary = ways["http"](plan(path, "long", on_error="skip"))
    assert (summary.rows, summary.bad_lines) == (278, 2)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{path}:4: features.nnnn")
    assert second.startswith(f"{path}:251: features.nnnn")
    with pytest.raises(CommandFailure, match=rf"^{path}:4: features.*; 3 rows were learned before$"):
        ways["http"](plan(path, "longer"))


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_has_no_figures_and_changes_nothing(
    server: ServerProcess, ways: dict[str, Replay], tmp_path: Path, text: str
) -> None:
    path = tmp_path / "empty.vw"
    path.write_text(text)
    offline = ways["offline"](plan(path, "empty"))
    assert (offline.rows, offline.log_loss, offline.auc, offline.load_seconds) == (0, None, None, None)
    assert_same_figures(ways["http"](plan(path, "empty")).to_json(), offline.to_json())
    assert stored_now(server.url, "empty").commit == 0


def test_the_last_line_needs_no_newline(
    server: ServerProcess, ways: dict[str, Replay], tmp_path: Path
) -> None:
    path = write(tmp_path, "vw", rows=7)
    path.write_text(path.read_text().rstrip("\n"))
    for way in WAYS:
        ways[way](plan(path, f"unended-{way}"))
    assert_same_state(server, "unended-http", "unended-offline", 7)


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_not_there_or_breaks_off_is_named(
    server: ServerProcess, service: ServiceProcess, settings: Settings, tmp_path: Path, way: str
) -> None:
    asked = plan(tmp_path / "clicks.vw.gz", f"cut-{way}", "vw")
    with pytest.raises(UnreadableFile, match=r"clicks\.vw\.gz: No such file"):
        replay_over_http(asked, service.url) if way == "http" else replay_offline(asked, settings)
    with server.client() as client:
        assert client.exists(f"ftrl:{{cut-{way}}}:meta") == 0
    Path(asked.files[0]).write_bytes(gzip.compress(write(tmp_path, "vw").read_bytes())[:-20])
    with pytest.raises((UnreadableFile, CommandFailure), match=r"clicks\.vw\.gz: the archive is cut off"):
        replay_over_http(asked, service.url) if way == "http" else replay_offline(asked, settings)


@pytest.fixture
def hasty(fresh_valkey: ServerProcess, tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service on `fresh_valkey` that refuses an update soon."""
    hasty = ServiceProcess("serve", fresh_valkey.url, tmp_path, update_timeout_seconds=0.6)
    try:
        hasty.wait_until_ready()
        yield hasty
    finally:
        fresh_valkey.resume()
        hasty.remove()


@pytest.mark.slow
def test_examples_refused_during_an_outage_are_learned_once(
    fresh_valkey: ServerProcess, hasty: ServiceProcess, tmp_path: Path
) -> None:
    path = write(tmp_path, "vw", rows=700)
    asked = replace(learning(hasty, plan(path, "away")), config={})
    hasty.get("/models/away")
    refused = {"method": "POST", "route": "/models/{name}/update", "status": "503"}
    with ThreadPoolExecutor(1) as thread:
        fresh_valkey.pause()
        replaying = thread.submit(replay_over_http, asked, hasty.url)
        wait_until(lambda: hasty.metric("ftrl_http_request_duration_seconds_count", **refused) > 0)
        assert not replaying.done()
        fresh_valkey.resume()
        summary = replaying.result()
    assert (summary.rows + summary.unscored, summary.duplicates) == (700, 0)
    replay_offline(plan(path, "not-away"), Settings(redis_url=fresh_valkey.url))
    assert_same_state(fresh_valkey, "away", "not-away", 700)


@pytest.mark.slow
def test_ctrl_c_ends_a_replay_over_http_and_what_was_learned_stays(service: ServiceProcess) -> None:
    with OpenReplay("--url", service.url, "--model", "interrupted", "--json") as replay:
        replay.feed(20_000)  # more than is read ahead
        wait_until(lambda: "interrupted" in service.get("/models")["models"])
        wait_until(lambda: bool(service.get("/models/interrupted")["t"] > 0))
        code, output, errors = replay.end(signal.SIGINT)
    learned = service.get("/models/interrupted")["t"]
    assert (code, output) == (130, "")
    said = re.fullmatch(
        r"ftrl: interrupted: ([\d,]+) rows of .* were learned at a log loss of [\d.]+, which model"
        r" interrupted keeps; the last request may have been learned, too\n",
        errors,
    )
    assert said
    assert int(said[1].replace(",", "")) <= learned
    click = {"features": {"ad": "a1"}, "label": 1}
    assert service.post("/models/interrupted/update", click)["status"] == "learned"
    assert 0 < learned <= 20_000
