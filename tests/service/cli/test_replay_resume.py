"""`ftrl replay --url --resume`: an interrupted replay goes on where it stopped, and learns each row once."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.cli.replay.http import replay_over_http
from service.cli.replay.offline import replay_offline
from service.cli.replay.summary import ReplayPlan, ReplaySummary
from service.errors import CommandFailure
from service.parsing.files.rows import ReadOptions
from service.settings import Settings
from tests.support.commands import FTRL, environment, run
from tests.support.processes import ServiceProcess
from tests.support.servers import ServerProcess
from tests.support.system import stored_now
from tests.support.waiting import wait_until

ROWS = 30_000
KILLS = 2


def line(i: int) -> str:
    return f"{i % 3 == 0:d},a{i % 17},u{i % 1009}\n"


def write(path: Path, rows: range, header: bool = True) -> Path:
    path.write_text(("label,ad,user\n" if header else "") + "".join(map(line, rows)))
    return path


def replayed(
    service: ServiceProcess, model: str, progress: Path, *files: Path, on_error: Any = "fail"
) -> ReplaySummary:
    names = tuple(map(str, files))
    plan = ReplayPlan(names, "csv", ReadOptions(), model, {}, on_error, resume=progress)
    return replay_over_http(plan, service.url)


def examples(service: ServiceProcess, model: str) -> int:
    learned: int = service.get(f"/models/{model}")["t"]
    return learned


def recorded(progress: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(progress.read_text())
    return found


def has_passed(progress: Path, position: int) -> bool:
    return progress.exists() and recorded(progress)["position"] > position


@pytest.mark.slow
def test_a_replay_that_is_killed_again_and_again_learns_each_row_once(
    server: ServerProcess, service: ServiceProcess, tmp_path: Path
) -> None:
    log, progress = write(tmp_path / "log.csv", range(ROWS)), tmp_path / "progress"
    words = [*FTRL, "replay", str(log), "--url", service.url, "--model", "killed", "--resume", str(progress)]
    replay_offline(ReplayPlan((str(log),), "csv", ReadOptions(), "whole", {}), Settings(redis_url=server.url))
    kills = 0
    for _ in range(KILLS):
        before = recorded(progress)["position"] if progress.exists() else 0
        with subprocess.Popen(
            words, env=environment(), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as one:
            wait_until(lambda: one.poll() is not None or has_passed(progress, before))  # noqa: B023
            one.send_signal(signal.SIGKILL)
        kills += one.returncode == -signal.SIGKILL
    assert kills
    position, settled = recorded(progress)["position"], recorded(progress)["settled"]
    done = run(*words[len(FTRL) :], "--json")
    assert done.returncode == 0, done.stderr
    assert settled or "sent again, and learned once" in done.stderr
    summary = json.loads(done.stdout)
    assert summary["rows"] + summary["duplicates"] == ROWS - position
    wait_until(lambda: examples(service, "killed") == ROWS)
    assert stored_now(server.url, "killed").state.digest() == stored_now(server.url, "whole").state.digest()
    assert recorded(progress) | {"ids": ""} == {
        "model": "killed",
        "incarnation": recorded(progress)["incarnation"],
        "files": [str(log)],
        "ids": "",
        "position": ROWS,
        "settled": True,
    }


def test_what_was_appended_since_is_learned_alone(service: ServiceProcess, tmp_path: Path) -> None:
    log, progress = write(tmp_path / "log.csv", range(1200)), tmp_path / "progress"
    assert replayed(service, "growing", progress, log).rows == 1200
    assert replayed(service, "growing", progress, log).rows == 0
    with log.open("a") as more:
        more.writelines(map(line, range(1200, 1300)))
    other = write(tmp_path / "other.csv", range(50))
    assert replayed(service, "growing", progress, log, other).rows == 150
    assert examples(service, "growing") == 1350


def test_a_bad_line_is_where_the_next_replay_goes_on(service: ServiceProcess, tmp_path: Path) -> None:
    log, progress = write(tmp_path / "log.csv", range(700)), tmp_path / "progress"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([*lines[:601], "x,y\n", *lines[601:]]))
    with pytest.raises(
        CommandFailure, match=r"log\.csv:602: 2 values for 3 columns .*; 600 rows were learned"
    ):
        replayed(service, "bad", progress, log)
    assert (recorded(progress)["position"], recorded(progress)["settled"]) == (600, True)
    skipped = replayed(service, "bad", progress, log, on_error="skip")
    assert (skipped.rows, skipped.bad_lines, examples(service, "bad")) == (100, 1, 700)


def test_the_progress_of_another_replay_is_refused(service: ServiceProcess, tmp_path: Path) -> None:
    log, progress = write(tmp_path / "log.csv", range(20)), tmp_path / "progress"
    replayed(service, "first", progress, log)
    for model, file, says in (
        ("second", log, "that replay was into model first: give each replay a file of its own"),
        ("first", write(tmp_path / "other.csv", range(20)), "that replay was of other files"),
    ):
        with pytest.raises(CommandFailure, match=says):
            replayed(service, model, progress, file)
    write(log, range(5))
    with pytest.raises(CommandFailure, match="20 rows were learned, but there are only 5"):
        replayed(service, "first", progress, log)
    service.delete("/models/first")
    with pytest.raises(CommandFailure, match="that replay was into a former model of this name"):
        replayed(service, "first", progress, log)
    progress.write_text("{}")
    with pytest.raises(CommandFailure, match="not written by a replay"):
        replayed(service, "first", progress, log)
    assert examples(service, "first") == 0


def test_only_a_replay_over_http_of_files_resumes(tmp_path: Path) -> None:
    for words in (("clicks.vw", "--dry-run"), ("-", "--format", "vw", "--url", "http://127.0.0.1:1")):
        refused = run("replay", *words, "--resume", str(tmp_path / "progress"))
        assert refused.returncode == 2
        assert "only with --url, and files that can be read again" in refused.stderr
