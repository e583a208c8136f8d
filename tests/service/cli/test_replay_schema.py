"""`ftrl replay --schema`: the model that it makes hashes requests as the schema says; others are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.cli.replay.http import replay_over_http
from service.cli.replay.offline import replay_offline, replay_without_loading
from service.cli.replay.summary import ReplayPlan
from service.errors import CommandFailure
from service.models.config.model import limits_of
from service.parsing.files.rows import ReadOptions
from service.parsing.files.schema import load_schema, schema_of
from service.settings import Settings
from tests.support.commands import run
from tests.support.known_logs import KNOWN_LOGS
from tests.support.processes import ServiceProcess
from tests.support.replays import assert_same_figures
from tests.support.servers import ServerProcess
from tests.support.system import stored_now
from tests.support.waiting import wait_until


def plan(path: Path, known: str, model: str) -> ReplayPlan:
    schema = load_schema(known)
    assert schema.format is not None
    options = schema.options(limits_of(Settings()))
    return ReplayPlan((str(path),), schema.format, options, model, {}, contract=schema.hashing)


@pytest.mark.parametrize("known", ["avazu", "ipinyou"])
def test_a_known_log_is_learned_alike_by_every_way_in(
    server: ServerProcess, service: ServiceProcess, tmp_path: Path, known: str
) -> None:
    path = tmp_path / known
    path.write_text(KNOWN_LOGS[known])
    over_url = replay_over_http(plan(path, known, f"{known}-url"), service.url)
    offline = replay_offline(plan(path, known, f"{known}-offline"), Settings(redis_url=server.url))
    dry = replay_without_loading(plan(path, known, "dry"), Settings())
    for summary in (offline, dry):
        assert_same_figures(summary.to_json(), over_url.to_json())
    wait_until(lambda: stored_now(server.url, f"{known}-url").state.t == 2)
    states = [stored_now(server.url, f"{known}-{way}").state.digest() for way in ("url", "offline")]
    assert states[0] == states[1]
    hashing = service.get(f"/models/{known}-url")["hashing"]
    assert hashing["types"] == load_schema(known).hashing["types"]


def test_a_model_that_hashes_otherwise_than_the_schema_says_is_refused(
    server: ServerProcess, service: ServiceProcess, tmp_path: Path
) -> None:
    path = tmp_path / "avazu"
    path.write_text(KNOWN_LOGS["avazu"])
    service.put("/models/plain", {})
    for way in (
        lambda: replay_over_http(plan(path, "avazu", "plain"), service.url),
        lambda: replay_offline(plan(path, "avazu", "plain"), Settings(redis_url=server.url)),
    ):
        with pytest.raises(CommandFailure, match=r"model plain has other types than the schema: \{\}, not"):
            way()
    assert service.get("/models/plain")["t"] == 0
    more = load_schema("avazu").hashing
    service.put("/models/more", {"hashing": more | {"types": more["types"] | {"age": "number"}}})
    assert replay_over_http(plan(path, "avazu", "more"), service.url).rows == 2


def test_flags_win_over_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "clicks.log"
    path.write_text("y;site;n\n1;a;7\n0;b;x\n")
    schema = tmp_path / "schema.json"
    schema.write_text('{"format": "csv", "separator": ";", "label": "n", "types": {"n": "number"}}')
    words = ("replay", str(path), "--dry-run", "--json", "--schema", str(schema))
    done = run(*words, "--label-column", "y", "--ignored-columns", "n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 2
    wrong = run(*words, "--label-column", "z")
    assert "no column 'z' among y, site, n: give that of the file with --label-column" in wrong.stderr
    assert run(*words[:-1], "criteos").stderr.endswith("(did you mean 'criteo'?)\n")


TIMES = [1_700_000_000 + 600 * i for i in range(30)]  # five hours
BY_SECONDS = {
    "hyper": {"forgetting": {"half_life_seconds": 3600}, "rate": {"kind": "adaptive", "alpha": 0.1}}
}


def timed_table(directory: Path) -> tuple[Path, ReadOptions]:
    path = directory / "timed.csv"
    path.write_text("label,a,ms\n" + "".join(f"{i % 2},v{i % 3},{1000 * t}\n" for i, t in enumerate(TIMES)))
    schema = schema_of({"time": {"column": "ms", "format": "ms"}}, "it")
    return path, schema.options(limits_of(Settings()))


def test_a_model_forgets_by_the_times_of_a_column_as_by_those_of_json_lines(
    server: ServerProcess, tmp_path: Path
) -> None:
    table, options = timed_table(tmp_path)
    lines = tmp_path / "timed.jsonl"
    lines.write_text(
        "".join(
            json.dumps({"features": {"a": f"v{i % 3}"}, "label": i % 2, "event_time": t}) + "\n"
            for i, t in enumerate(TIMES)
        )
    )
    plans = (
        ReplayPlan((str(table),), "csv", options, "by-column", BY_SECONDS),
        ReplayPlan((str(lines),), "jsonl", ReadOptions(), "by-line", BY_SECONDS),
        ReplayPlan(
            (str(lines),), "jsonl", ReadOptions(), "by-none", {"hyper": {"rate": BY_SECONDS["hyper"]["rate"]}}
        ),
    )
    for one in plans:
        replay_offline(one, Settings(redis_url=server.url))
    digests = [stored_now(server.url, one.model).state.digest() for one in plans]
    assert digests[0] == digests[1] != digests[2]


def test_the_windows_of_the_evaluation_are_those_of_the_column(
    server: ServerProcess, service: ServiceProcess, tmp_path: Path
) -> None:
    table, options = timed_table(tmp_path)
    replay_over_http(ReplayPlan((str(table),), "csv", options, "windows", {}), service.url)

    def examples() -> list[int]:
        windows = service.get("/models/windows/evaluation")["sources"]["progressive"]["windows"]
        return [windows[name]["examples"] for name in ("30m", "1h", "all")]

    wait_until(lambda: examples()[2] == len(TIMES))
    half_hour, hour, every = examples()
    assert 2 <= half_hour <= 4 < hour <= 7
    assert every == 30
