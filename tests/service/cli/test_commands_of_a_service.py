"""Commands against a running service that requires tokens, and against none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from typer.testing import CliRunner

from service import __version__
from service.cli.main import application, one_line
from service.cli.status import line_of
from service.errors import CommandFailure
from tests.conftest import ServerFactory
from tests.support.commands import ServingProcess, environment, run
from tests.support.waiting import wait_until

Ftrl = Callable[..., "Done"]

CLICKS = [{"features": {"ad": f"a{i % 7}"}, "label": int(i % 7 == 0)} for i in range(700)]
OF_A_SERVICE = [
    "models",
    "models show default",
    "models features default",
    "challengers default",
    "models create x",
    "models delete default --yes",
    "challenge default --name second",
    "alias list",
    "alias set live default",
    "alias remove live",
    "status",
    "predict {}",
    "explain {}",
    "feedback",
    "log show",
    "snapshot list",
    "snapshot create",
    "snapshot show newest",
]


class Service(NamedTuple):
    """`directory`: where its `data` and its file `tokens` are."""

    process: ServingProcess
    token: str
    directory: Path

    def call(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        reply = httpx.request(method, self.process.url + path, json=body, headers=headers, timeout=30)
        return reply.raise_for_status().json()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("service")
    words = ("token", "create", "--scope", "admin", "--name", "night", "--file", "tokens", "--json")
    token = json.loads(run(*words, directory=directory).stdout)["token"]
    process = ServingProcess("serve", directory=directory, FTRL_TOKENS_FILE="tokens")
    process.wait_until_ready()
    service = Service(process, token, directory)
    service.call("POST", "/update", {"examples": CLICKS})
    yield service
    process.remove()


class Done(NamedTuple):
    """How a command ended, with what the process would write of a failure."""

    returncode: int
    stdout: str
    stderr: str


def call(*words: str, **variables: str) -> Done:
    """`ftrl WORDS` within this process, which takes milliseconds."""
    result = CliRunner().invoke(application(words[0]), words, env=variables)
    failure = result.exception
    if isinstance(failure, Exception):
        return Done(result.exit_code, result.stdout, f"{result.stderr}ftrl: {one_line(failure)}\n")
    return Done(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def ftrl(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ftrl:
    """`ftrl` in an empty directory, with the address of the service and a token for it."""
    monkeypatch.chdir(tmp_path)

    def call_it(*words: str, **variables: str) -> Done:
        return call(*words, **{"FTRL_URL": service.process.url, "FTRL_TOKEN": service.token} | variables)

    return call_it


def read(ftrl: Ftrl, *words: str) -> Any:
    done = ftrl(*words, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def test_models_are_created_described_listed_and_deleted(ftrl: Ftrl, tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text('{"hyper": {"l1": 2.0}}')
    for _ in range(2):
        assert read(ftrl, "models", "create", "sparse", "body.json")["hyper"]["l1"] == 2.0
    conflict = ftrl("models", "create", "sparse", '{"hyper": {"l1": 3.0}}')
    assert (conflict.returncode, conflict.stderr.count("\n")) == (1, 1)
    assert "exists with hyper.l1" in conflict.stderr
    assert read(ftrl, "models", "show", "sparse")["name"] == "sparse"
    assert "sparse" in [model["name"] for model in read(ftrl, "models", "list")]
    asked = ftrl("models", "delete", "sparse")  # without an answer
    assert asked.returncode == 1
    assert "Delete sparse and the 0 examples" in asked.stderr
    assert read(ftrl, "models", "delete", "sparse", "--yes")["deleted"] == "sparse"
    gone = ftrl("models", "delete", "sparse", "--yes")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "There is no model 'sparse'." in gone.stderr


def test_a_challenger_is_created_and_listed_with_its_champion(ftrl: Ftrl) -> None:
    words = ("challenge", "default", "--name", "second", "--hyper", '{"l2": 0.5}', "--start", "now")
    for _ in range(2):
        created = read(ftrl, *words)
        assert (created["follows"]["model"], created["hyper"]["l2"]) == ("default", 0.5)
    listed = {model["name"]: model["follows"] for model in read(ftrl, "models", "list")}
    assert (listed["default"], listed["second"]["model"]) == (None, "default")
    (line,) = read(ftrl, "status", "--model", "second")
    assert (line["follows"], line["lag"]["examples"]) == ("default", 0)
    refused = ftrl("challenge", "second", "--name", "third")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "follow its champion 'default'" in refused.stderr
    read(ftrl, "models", "delete", "second", "--yes")


def test_features_are_listed_by_their_names(ftrl: Ftrl, service: Service) -> None:
    service.call("PUT", "/models/named", {})

    def listed() -> Any:
        """A process samples the updates of a model that was opened up to a second ago."""
        service.call("POST", "/models/named/update", {"examples": CLICKS[:10]})
        return read(ftrl, "models", "features", "named")["features"]

    found = wait_until(listed, "names of features are known")
    assert {name.partition("=")[0] for one in found for name in one["names"]} == {"ad"}
    assert found[0]["names"][0] in ftrl("models", "features", "named").stdout
    ftrl("models", "delete", "named", "--yes")


def test_flags_before_the_command_are_not_ignored(ftrl: Ftrl) -> None:
    done = ftrl("models", "--url", "http://127.0.0.1:1", "list")
    assert done.returncode == 2
    assert "after the command" in done.stderr


def test_no_column_of_a_table_is_cut(ftrl: Ftrl) -> None:
    described = read(ftrl, "models", "show", "default")
    assert described["revision"] in ftrl("models", COLUMNS="20").stdout


def test_aliases_are_set_listed_and_removed(ftrl: Ftrl) -> None:
    for _ in range(2):
        assert read(ftrl, "alias", "set", "live", "default") == {"alias": "live", "model": "default"}
    assert read(ftrl, "alias", "list")["live"] == "default"
    assert ["live", "default"] in [line.split() for line in ftrl("alias", "list").stdout.splitlines()]
    assert ftrl("alias", "remove", "live").stdout == "live no longer refers to default\n"
    assert "live" not in read(ftrl, "alias", "list")
    again = ftrl("alias", "remove", "live")
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)


def test_predictions_are_those_of_the_service(ftrl: Ftrl, service: Service, tmp_path: Path) -> None:
    example = {"ad": "a0"}
    expected = service.call("POST", "/predict", {"features": example})
    assert read(ftrl, "predict", json.dumps(example)) == expected
    (tmp_path / "example.json").write_text(json.dumps({"features": example}))
    assert read(ftrl, "predict", "example.json") == expected
    assert ftrl("predict", "example.json").stdout == (
        f"{expected['probability']:.6f}\nmodel default, revision {expected['revision']}\n"
    )
    body = {"context": example, "instances": [{"features": {}, "id": "one"}, {"features": {"new": "x"}}]}
    lines = ftrl("predict", json.dumps(body)).stdout.splitlines()
    assert lines[0] == f"{expected['probability']:.6f}  one"
    assert len(lines) == 3


@pytest.mark.parametrize("example", ["no.json", "{", "[1]"])
def test_what_is_no_example_is_refused_in_one_line(ftrl: Ftrl, example: str) -> None:
    done = ftrl("predict", example)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "JSON object" in done.stderr


def test_the_status_is_what_the_page_shows(ftrl: Ftrl, service: Service) -> None:
    read(ftrl, "alias", "set", "shown", "default")
    snapshot = read(ftrl, "snapshot", "create", "--tag", "good")

    def shown() -> dict[str, Any]:
        (found,) = json.loads(ftrl("status", "--model", "shown", "--json").stdout)
        return found

    wait_until(lambda: (shown()["snapshot"], shown()["t"]) == (snapshot["id"], len(CLICKS)))
    found, page = shown(), service.call("GET", "/overview")["models"]
    (line,) = [line for line in page if line["model"] == "default"]
    assert found == line | {"snapshot_age_seconds": found["snapshot_age_seconds"]}
    assert found["aliases"] == ["shown"]
    assert 0 <= found["snapshot_age_seconds"] < 3600
    done = ftrl("status", "--model", "default")
    assert done.returncode == int(found["level"] == "bad")
    headings, text = done.stdout.splitlines()
    assert headings.split()[:3] == ["model", "verdict", "AUC"]
    assert text.split()[:3] == ["default", found["level"], f"{found['auc']:.4f}"]
    assert text.endswith(found["headline"])
    assert headings.index("aliases") == text.index("shown"), "texts align to the left"


def test_the_status_without_a_model_has_a_line_for_each(ftrl: Ftrl) -> None:
    shown = [line.split()[0] for line in ftrl("status").stdout.splitlines()]
    assert {"model", "default"} <= set(shown)


def test_the_status_of_a_model_that_is_not_there_is_a_failure(ftrl: Ftrl) -> None:
    done = ftrl("status", "--model", "nobody")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "shows no model or alias 'nobody'" in done.stderr


def test_the_status_of_a_model_beyond_those_summarized_is_on_its_page() -> None:
    with pytest.raises(CommandFailure, match=r"not among them: see http://ftrl/\?model=m201"):
        line_of("m201", [], ["m201"], "http://ftrl")


def test_the_log_is_the_same_by_the_service_and_from_the_data(ftrl: Ftrl, service: Service) -> None:
    asked = read(ftrl, "log", "show", "--from", "0")
    data = str(service.directory / "data")
    assert asked == read(ftrl, "log", "show", "--from", "0", "--data-dir", data)
    assert (asked["waiting"], asked["lines"][0]["last"]) == (0, len(CLICKS) - 1)
    assert ftrl("log", "show").stdout.startswith("model default: 1 entries; learned through ")
    wrong = ftrl("log", "show", "--from", "x")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "'x' is not the id of a log entry" in wrong.stderr


def test_snapshots_are_taken_and_listed_by_the_service(ftrl: Ftrl, service: Service) -> None:
    taken = ftrl("snapshot", "create", "--tag", "kept").stdout.strip()
    assert taken in [one["id"] for one in read(ftrl, "snapshot", "list")]
    assert taken in ftrl("snapshot", "list", COLUMNS="20").stdout
    here = ("--data-dir", str(service.directory / "data"))
    assert read(ftrl, "snapshot", "show", "kept") == read(ftrl, "snapshot", "show", "kept", *here)
    assert read(ftrl, "snapshot", "delete", taken, *here)["deleted"] == taken
    gone = ftrl("snapshot", "delete", taken, *here)
    assert gone.returncode == 1
    assert f"The snapshots are those in {service.directory / 'data' / 'snapshots'};" in gone.stderr


def test_a_rebuild_refuses_other_data_than_that_of_the_service(
    ftrl: Ftrl, service: Service, server_factory: ServerFactory, tmp_path: Path
) -> None:
    here = ("--data-dir", str(service.directory / "data"))
    assert read(ftrl, "rebuild", *here)["equal"] is True
    other = server_factory()
    (tmp_path / "clicks.vw").write_text("1 |f a=b\n")
    assert run("replay", str(tmp_path / "clicks.vw"), "--offline", "--redis-url", other.url).returncode == 0
    done = ftrl("rebuild", "--redis-url", other.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not that of the service" in done.stderr


def test_challengers_are_compared(ftrl: Ftrl, service: Service) -> None:
    read(ftrl, "models", "create", "champion")
    assert ftrl("challengers", "champion").stdout == "no model follows champion\n"
    service.call("PUT", "/models/rival", {"follows": "champion", "hashing": {"bits": 20}})
    heading, line = ftrl("challengers", "champion").stdout.splitlines()
    assert heading.split()[:4] == ["challenger", "verdict", "since", "pair"]
    assert " ".join(line.split()) == "rival undecided 0 0 0 - - - undecided hashing.bits: 20"
    (one,) = json.loads(ftrl("challengers", "champion", "--json").stdout)["challengers"]
    assert one["comparison"]["verdict"] == "undecided"


def test_examples_of_an_id_are_found_from_the_data(ftrl: Ftrl, service: Service) -> None:
    read(ftrl, "models", "create", "found")
    click = {"features": {"ad": "x"}, "label": 1, "event_id": "click-1"}
    service.call("POST", "/models/found/update", click)
    here = ("--model", "found", "--data-dir", str(service.directory / "data"))
    (found,) = read(ftrl, "log", "find", "click-1", *here)
    assert (found["label"], found["weight"], found["learned"]) == (1, 1.0, True)


@pytest.mark.parametrize("words", OF_A_SERVICE)
def test_without_a_service_the_address_is_named(words: str) -> None:
    done = call(*words.split(), FTRL_URL="http://127.0.0.1:1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "no ftrl service answers at http://127.0.0.1:1 " in done.stderr


@pytest.mark.parametrize("words", OF_A_SERVICE)
def test_a_wrong_token_is_refused_with_what_to_do(ftrl: Ftrl, words: str) -> None:
    done = ftrl(*words.split(), FTRL_TOKEN="ftrl_wrong")
    assert done.returncode == 1
    assert "FTRL_TOKEN" in done.stderr


@pytest.mark.parametrize("token", ["secret\nsecond", "s\xe9cret"])
def test_what_cannot_be_a_token_is_refused_without_showing_it(ftrl: Ftrl, token: str) -> None:
    done = ftrl("status", FTRL_TOKEN=token)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "ftrl: FTRL_TOKEN: a token is one line of printable ASCII\n"
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        *("log show", "log find x", "log skip 1-0", "rebuild", "snapshot list", "snapshot show newest"),
        *("snapshot diff a b", "snapshot create", "snapshot delete newest", "snapshot tag newest good"),
    ],
)
def test_in_an_empty_directory_a_command_says_where_it_looked_and_leaves_nothing(
    tmp_path: Path, words: str
) -> None:
    data = tmp_path / "data"
    done = call(*words.split(), "--data-dir", str(data))
    if words != "snapshot list":
        assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ftrl: ")
    assert str(data) in done.stderr
    assert "There is no model" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_a_place_the_default_address_is_asked_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("log", "show")
    asked = "ftrl: asking the service at http://127.0.0.1:8000\n"
    found_none = f"ftrl: nothing is in {tmp_path / 'data'}, and no service answers at http://127.0.0.1:8000:"
    assert asked in done.stderr or done.stderr.startswith(found_none)
    assert list(tmp_path.iterdir()) == []


def test_without_a_place_a_server_that_runs_here_is_read(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(service.directory)
    done = call("log", "show")
    assert (done.stdout[:15], done.stderr) == ("model default: ", "")
    assert call("log", "show", FTRL_URL="http://127.0.0.1:1").returncode == 1


def findings(done: Done) -> dict[tuple[str, str], str]:
    """The texts by check and level."""
    found = {}
    for one in json.loads(done.stdout):
        found[one["check"], one["level"]] = f"{one['text']} -> {one['action']}"
    return found


def test_the_doctor_finds_a_running_service_well(ftrl: Ftrl, service: Service) -> None:
    done = ftrl("doctor", "--json", "--data-dir", str(service.directory / "data"))
    found = findings(done)
    assert {level for _, level in found} <= {"ok", "warn"}, found
    assert {"settings", "versions", "service", "redis", "policy", "persistence", "clock", "disk"} <= {
        check for check, _ in found
    }
    assert __version__ in found["versions", "ok"]
    assert done.returncode == 0
    assert ftrl("doctor", "--data-dir", str(service.directory / "data")).stdout.startswith("ok    settings ")


def test_the_doctor_says_what_is_bad_and_what_to_do(tmp_path: Path, server_factory: ServerFactory) -> None:
    server = server_factory(maxmemory="50mb", maxmemory_policy="allkeys-lru", appendonly=False, save="")
    (tmp_path / "tokens").write_text("{}\n")
    variables = {"FTRL_PROT": "1", "FTRL_TOKENS_FILE": str(tmp_path / "tokens"), "FTRL_REDIS_URL": server.url}
    done = call("doctor", "--json", "--host", "0.0.0.0", "--port", "1", **variables)
    found = findings(done)
    assert done.returncode == 1
    assert "FTRL_PORT" in found["settings", "warn"]
    assert "line 1" in found["tokens", "bad"]
    assert "`ftrl serve`" in found["service", "bad"]
    assert "noeviction" in found["redis", "bad"]
    assert "noeviction" in found["policy", "warn"]
    assert "appendonly yes" in found["persistence", "bad"]
    assert [path.name for path in tmp_path.iterdir()] == ["tokens"]


def test_the_doctor_reports_a_redis_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("doctor", "--json", "--port", "1", "--redis-url", "redis://127.0.0.1:1")
    assert "redis://127.0.0.1:1" in findings(done)["redis", "bad"]
    done = call("doctor", "--port", "1")
    assert f"no server runs on the data in {tmp_path / 'data'}" in done.stdout
    assert (done.returncode, done.stderr) == (1, "")
    assert list(tmp_path.iterdir()) == []


def test_tokens_are_listed_without_what_they_are(service: Service) -> None:
    tokens = str(service.directory / "tokens")
    listed = call("token", "list", "--file", tokens)
    headings, line = listed.stdout.splitlines()
    assert headings.split() == ["name", "scopes", "models", "digest"]
    assert line.split()[:3] == ["night", "admin", "*"]
    assert service.token not in listed.stdout
    (entry,) = json.loads(call("token", "list", "--json", FTRL_TOKENS_FILE=tokens).stdout)
    assert entry["sha256"].startswith(line.split()[3])
    missing = call("token", "list", "--file", "nothing")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)


def test_a_replay_goes_to_the_service_of_the_environment(
    ftrl: Ftrl, service: Service, tmp_path: Path
) -> None:
    (tmp_path / "clicks.vw").write_text("1 |f a=b\n-1 |f a=c\n")
    words = ("replay", str(tmp_path / "clicks.vw"), "--model", "replayed", "--json")
    url, token = service.process.url, service.token
    for further in ((), ("--dry-run",)):
        done = run(*words, *further, directory=tmp_path, FTRL_URL=url, FTRL_TOKEN=token)
        assert json.loads(done.stdout)["rows"] == 2
    wait_until(lambda: read(ftrl, "models", "show", "replayed")["t"] == 2)


def test_a_reader_that_reads_one_line_of_the_log_is_enough(service: Service) -> None:
    variables = {"FTRL_URL": service.process.url, "FTRL_TOKEN": service.token}
    command = f'"{sys.executable}" -m service log show --from 0 --count 1000 | head -1'
    done = subprocess.run(
        ["bash", "-c", command], env=environment(**variables), capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("model default: ")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
