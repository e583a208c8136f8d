"""`ftrl replay` as a person or a script calls it: what it prints, how it ends, what it leaves behind."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import subprocess
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import redis
from typer.testing import CliRunner

from model_core.errors import InvalidInput
from service.cli.main import application, one_line
from service.cli.replay.offline import replay_without_loading
from service.cli.replay.summary import Tally, print_summary
from service.models.bulk_load import UNFINISHED_EXPIRES_SECONDS
from service.parsing.files.source import TextSource
from service.settings import Settings
from service.storage.embedded import EmbeddedServer
from tests.conftest import SettingsFactory
from tests.support.commands import FTRL, environment, run
from tests.support.proxy import Proxy
from tests.support.replays import OpenReplay, plan, write
from tests.support.servers import ServerProcess
from tests.support.system import System, stored
from tests.support.waiting import wait_until

FIGURES = (
    *("rows", "positives", "log_loss", "auc", "normalized_entropy", "calibration_ratio"),
    *("density", "features_seen", "nonzero", "seconds", "rows_per_second"),
)
ARRAYS = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
SMALL = ("--hashing", '{"bits": 12}')


@pytest.fixture
async def proxy(valkey: ServerProcess) -> AsyncIterator[Proxy]:
    async with Proxy(valkey.socket_path) as proxy:
        yield proxy


def test_with_json_standard_output_is_exactly_one_object(valkey: ServerProcess, tmp_path: Path) -> None:
    path = write(tmp_path, "vw", rows=50)
    path.write_text(path.read_text() + "broken\n")
    words = ("replay", str(path), "--offline", "--json", "--on-error", "skip", *SMALL)
    result = run(*words, FTRL_REDIS_URL=valkey.url)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 1
    summary = json.loads(result.stdout)
    assert tuple(summary)[: len(FIGURES)] == FIGURES
    assert (summary["rows"], summary["bad_lines"]) == (50, 1)
    assert f"{path}:51: no '|' before the features\n" in result.stderr
    assert "loading" in result.stderr
    with valkey.client() as client:
        (names,) = client.scan_iter("ftrl:{default}:*:names")
        assert client.zcard(names) > 10  # of features, for people


def test_for_people_the_summary_is_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(replay_without_loading(plan(write(tmp_path, "libsvm", rows=50), "m"), Settings()))
    output, errors = capsys.readouterr()
    told = dict(line.rsplit(maxsplit=1) for line in output.splitlines())
    assert told["rows"] == "50"
    assert {"click rate", "log loss", "AUC", "density", "rows per second"} <= told.keys()
    assert not {"seconds to load", "duplicates", "not scored"} & told.keys()
    assert errors == ""


@pytest.mark.slow
def test_a_dash_is_standard_input() -> None:
    with OpenReplay("--dry-run", "--json") as replay:
        replay.feed(3)
        code, output, errors = replay.end()
    assert (code, json.loads(output)["rows"], errors) == (0, 3, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("clicks.vw",), "give one of --url, --offline and --dry-run"),
        (("clicks.vw", "--offline", "--dry-run"), "give one of"),
        (("clicks.vw", "--url", "http://x", "--offline"), "give one of"),
        (("clicks.txt", "--dry-run"), "the format is not clear"),
        (("-", "--dry-run"), "the format is not clear"),
        (("clicks.vw", "--dry-run", "--format", "xlsx"), "--format"),
        (("clicks.vw", "--dry-run", "--hyper", "{"), "--hyper"),
        (("clicks.vw", "--dry-run", "--hyper", "no/such/file"), "--hyper"),
        (("clicks.vw", "--dry-run", "--hyper", "[1]"), "--hyper"),
        (("clicks.vw", "--dry-run", "--hyper", '{"l1": -1}'), "hyper.l1"),
        (("clicks.vw", "--dry-run", "--hashing", '{"bits": 5}'), "hashing.bits"),
        (("clicks.vw", "--dry-run", "--model", "a b"), "is not a model name"),
        (("clicks.csv", "--dry-run", "--columns", "a,,b"), "columns"),
        (("clicks.vw", "--dry-run", "--on-error", "ignore"), "--on-error"),
        (("clicks.vw", "--dry-run", "--max-features", "0"), "--max-features"),
        ((), "Missing argument"),
    ],
)
def test_a_wrong_call_exits_with_2_and_says_what_is_wrong(words: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(
        application("replay"), ["replay", *words], env={"COLUMNS": "500", "TERM": "dumb"}
    )
    assert result.exit_code == 2, result.output
    assert says in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_hyperparameters_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "hyper.json").write_text('{"l1": -1}')
    words = ["replay", "clicks.vw", "--dry-run", "--hyper", str(tmp_path / "hyper.json")]
    result = CliRunner().invoke(application("replay"), words, env={"COLUMNS": "500"})
    assert "hyper.l1" in result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("no-such.vw", "--dry-run"), "ftrl: no-such.vw: No such file or directory\n"),
        (("/dev/null", "--format", "vw", "--url", "http://127.0.0.1:1"), "ftrl: no ftrl service answers at"),
    ],
)
def test_a_failure_is_one_line_and_exits_with_1(words: tuple[str, ...], says: str) -> None:
    result = run("replay", *words)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(says)
    assert result.stderr.count("\n") == 1


def test_a_failure_names_the_field_that_is_wrong() -> None:
    assert one_line(InvalidInput(("hyper", "l1"), "must be a number")) == "hyper.l1: must be a number"


async def test_an_offline_result_is_refused_if_the_model_learned_meanwhile(
    valkey: ServerProcess, make_settings: SettingsFactory, proxy: Proxy, tmp_path: Path
) -> None:
    async with System(make_settings(valkey)) as system:
        system.learn()
        model = await system.model()
        hold = proxy.hold("new_generation")
        words = ("replay", str(write(tmp_path, "vw", rows=50)), "--offline", "--model", "clicks")
        replaying = asyncio.create_task(asyncio.to_thread(run, *words, FTRL_REDIS_URL=proxy.url))
        await hold.reached.wait()
        await system.update(model, 5)
        hold.release()
        result = await replaying
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.splitlines()[-1].startswith("ftrl: Model 'clicks' learned or was replaced")
        assert (await stored(system.topology)).state.t == 5


async def test_of_two_concurrent_offline_replays_one_is_refused(
    valkey: ServerProcess, make_settings: SettingsFactory, proxy: Proxy, tmp_path: Path
) -> None:
    words = ("replay", "--offline", "--json", "--model", "clicks", *SMALL)
    files = [str(write(tmp_path, "vw", rows=50)), str(write(tmp_path, "libsvm", rows=60))]
    async with Proxy(valkey.socket_path) as other, System(make_settings(valkey)) as system:
        holds = [each.hold("new_generation") for each in (proxy, other)]
        replays = [
            asyncio.create_task(asyncio.to_thread(run, *words, file, FTRL_REDIS_URL=each.url))
            for file, each in zip(files, (proxy, other), strict=True)
        ]
        for hold in holds:
            await hold.reached.wait()
        for hold in holds:
            hold.release()
        results = sorted([await replay for replay in replays], key=lambda result: result.returncode)
        assert [result.returncode for result in results] == [0, 1]
        assert "ftrl: Model 'clicks' learned or was replaced" in results[1].stderr
        summary, replica = json.loads(results[0].stdout), await stored(system.topology)
        assert (replica.state.t, replica.state.features_seen) == (summary["rows"], summary["features_seen"])
        assert len(await system.client.keys("*:state:*")) == 1


@pytest.mark.faults
async def test_a_replay_killed_while_loading_leaves_only_expiring_keys(
    valkey: ServerProcess, make_settings: SettingsFactory, proxy: Proxy, tmp_path: Path
) -> None:
    async with System(make_settings(valkey)) as system:
        await system.model()
        before = await stored(system.topology)
        hold = proxy.hold("switch_generation")
        words = ("replay", str(write(tmp_path, "vw")), "--offline", "--model", "clicks")
        process = await asyncio.create_subprocess_exec(
            *FTRL, *words, env=environment(FTRL_REDIS_URL=proxy.url), stderr=subprocess.DEVNULL
        )
        await hold.reached.wait()
        process.kill()
        await process.wait()
        await proxy.cut_all()
        assert (await stored(system.topology)).revision == before.revision
        (filled,) = await system.client.keys("*:state:*")
        assert 0 < await system.client.ttl(filled) <= UNFINISHED_EXPIRES_SECONDS


@pytest.mark.slow
def test_ctrl_c_ends_an_offline_replay_without_changing_the_model(valkey: ServerProcess) -> None:
    with OpenReplay("--offline", "--json", FTRL_REDIS_URL=valkey.url) as replay, valkey.client() as client:
        replay.feed(1000)
        wait_until(lambda: client.hget("ftrl:{default}:meta", "t") == b"0")
        time.sleep(0.5)
        code, output, errors = replay.end(signal.SIGINT)
        assert (code, output) == (130, "")
        assert re.search(
            r"^ftrl: interrupted(: [\d,]+ rows of .*; nothing was stored)?$", errors, re.MULTILINE
        )
        assert client.hget("ftrl:{default}:meta", "t") == b"0"
        assert client.keys("*:state:*") == []


def test_a_stop_ends_the_embedded_server_too(tmp_path: Path) -> None:
    embedded = EmbeddedServer(Settings(data_dir=tmp_path / "data"))
    with OpenReplay("--offline", "--data-dir", str(tmp_path / "data")) as replay:
        replay.feed(10)
        with redis.Redis.from_url(embedded.url) as client:
            wait_until(lambda: client.exists("ftrl:{default}:meta"))
        assert replay.end(signal.SIGTERM) == (128 + signal.SIGTERM, "", "")
    with embedded:
        assert embedded.started, "the server of the replay was still running"


def _is_there(client: redis.Redis) -> bool:
    try:
        return bool(client.exists("ftrl:{default}:meta"))
    except redis.ConnectionError:
        return False


@pytest.mark.parametrize("weighted", [False, True])
def test_the_memory_for_an_example_is_as_stated(weighted: bool) -> None:
    rows, chunk = 1_000_000, 10_000
    margins, labels = np.linspace(-3, 3, chunk), np.arange(chunk, dtype=np.float64) % 2
    weights = np.full(chunk, 2.0) if weighted else np.empty(0)
    with Tally(plan("-", "m", "vw"), TextSource(io.BytesIO())) as tally:
        tally.learned(margins[:2], labels[:2], weights[:2], 0)
        tally.so_far()  # compiles what is to be compiled
        tracemalloc.start()
        for _ in range(rows // chunk):
            tally.learned(margins.copy(), labels.copy(), weights.copy(), 0)
    kept = tracemalloc.take_snapshot().filter_traces([ARRAYS])
    tally.summary(1, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(trace.size for trace in kept.traces) < rows * (17.5 if weighted else 9.5)
    assert peak < rows * (95 if weighted else 20) + 2**23
