"""`ftrl inspect`: from a log to its schema, the command that learns it, and a request that means the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from service.cli.example import example_in
from tests.support.commands import FTRL, environment, run
from tests.support.known_logs import KNOWN_LOGS
from tests.support.messy_log import as_table


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "clicks.txt"
    path.write_text(as_table())
    return path


def test_the_command_that_it_prints_learns_the_log(log: Path, tmp_path: Path) -> None:
    drafted = run("inspect", str(log), "--out", "drafted.json", directory=tmp_path)
    assert drafted.returncode == 0, drafted.stderr
    assert "rows        2,000\nclick rate  0." in drafted.stdout
    command = next(line for line in drafted.stdout.splitlines() if line.startswith("ftrl replay "))
    assert command == f"ftrl replay {log} --schema drafted.json --dry-run"
    learned = run(*command.split()[1:], "--json", directory=tmp_path)
    assert learned.returncode == 0, learned.stderr
    summary = json.loads(learned.stdout)
    assert (summary["rows"], summary["bad_lines"]) == (2000, 0)
    assert summary["normalized_entropy"] < 0.95  # it found what matters, and nothing that leaks
    assert summary["auc"] < 0.95


def test_the_example_of_a_request_is_the_first_row(log: Path) -> None:
    printed = run("inspect", str(log), "--example-request")
    request = json.loads(printed.stdout)
    first = as_table().splitlines()[1].split(",")
    assert request["event_id"] == first[1]
    assert request["features"]["app"] == first[3]
    assert request["features"]["price"] == float(first[6])
    assert request["features"]["hour"] == "14"
    assert request.keys() == {"features", "label", "event_id", "event_time"}


def test_the_example_can_be_predicted_and_explained(log: Path) -> None:
    request = json.loads(run("inspect", str(log), "--example-request").stdout)
    assert example_in(json.dumps(request)) == {"features": request["features"]}
    named_as_its_parts = {"features": "x", "label": "y"}
    assert example_in(json.dumps(named_as_its_parts)) == {"features": named_as_its_parts}


def test_with_a_schema_its_rows_are_counted(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(KNOWN_LOGS["avazu"])
    words = ("inspect", str(tmp_path / "x"), "--schema", "avazu")
    found = json.loads(run(*words, "--json").stdout)
    assert (found["rows"], found["clicks"], found["complete"]) == (2, 1, True)
    assert {"name": "weekday", "kind": "text", "values": 2, "missing": 0}.items() <= next(
        column for column in found["columns"] if column["name"] == "weekday"
    ).items()
    assert run(*words).stdout.count("The schema:") == 0
    assert json.loads(run(*words, "--example-request").stdout)["event_time"] == 1413849600.0


def test_no_more_rows_are_read_than_asked_for(log: Path) -> None:
    found = json.loads(run("inspect", str(log), "--rows", "50", "--json").stdout)
    assert (found["rows"], found["complete"]) == (50, False)


def test_standard_input_is_read_once(log: Path) -> None:
    words = ("inspect", "-", "--format", "csv")
    with log.open() as text:
        found = subprocess.run(
            [*FTRL, *words, "--json"],
            stdin=text,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
    assert json.loads(found.stdout)["rows"] == 2000
    refused = run(*words, "--example-request")
    assert refused.returncode == 2
    assert "standard input can be read once only: give --schema" in refused.stderr
    text_of_labels = run("inspect", "-", "--format", "vw")
    assert text_of_labels.stderr.endswith("give a file, or a schema\n")
