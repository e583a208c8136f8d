import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from service.cli.supervisor import Child, Supervisor
from service.errors import CommandFailure
from service.settings import Settings
from service.storage.embedded import EmbeddedServer
from service.storage.records import lease_key
from tests.support.commands import NewServingProcess, ServingProcess
from tests.support.processes import is_gone
from tests.support.servers import ServerProcess
from tests.support.waiting import until, wait_until

# Each child appends its process id to the file `started`, and its role to the file `stopped` at SIGTERM.
POLITE = """
import os, signal, sys, time
from pathlib import Path
role, directory = sys.argv[1], Path(sys.argv[2])
def stop(*_):
    with (directory / "stopped").open("a") as file:
        file.write(role + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
with (directory / "started").open("a") as file:
    file.write(f"{role} {os.getpid()}\\n")
time.sleep(60)
"""
DEAF = POLITE.replace("signal.signal(signal.SIGTERM, stop)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
FAILING = "import sys; sys.exit(1)"


def child(role: str, directory: Path, code: str = POLITE) -> Child:
    return Child(role, (sys.executable, "-c", code, role, str(directory)), dict(os.environ))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def started(directory: Path) -> list[tuple[str, int]]:
    pairs = [line.split() for line in lines(directory / "started")]
    return [(role, int(pid)) for role, pid in pairs]


@contextlib.asynccontextmanager
async def running(stages: list[list[Child]], grace_seconds: float = 10) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(Supervisor(stages, grace_seconds).run())
    yield task
    if not task.done():
        os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(task, 30)


async def test_all_children_are_started_and_stopped_stage_by_stage(tmp_path: Path) -> None:
    stages = [[child("api-1", tmp_path), child("api-2", tmp_path)], [child("learner", tmp_path)]]
    async with running(stages):
        await until(lambda: len(started(tmp_path)) == 3)
    stopped = lines(tmp_path / "stopped")
    assert sorted(stopped[:2]) == ["api-1", "api-2"]
    assert stopped[2:] == ["learner"]


@pytest.mark.faults
async def test_only_a_killed_child_is_restarted(tmp_path: Path) -> None:
    async with running([[child("api-1", tmp_path)], [child("learner", tmp_path)]]):
        await until(lambda: len(started(tmp_path)) == 2)
        os.kill(dict(started(tmp_path))["api-1"], signal.SIGKILL)
        await until(lambda: len(started(tmp_path)) == 3)
        roles = [role for role, _ in started(tmp_path)]
        assert sorted(roles) == ["api-1", "api-1", "learner"]


async def test_a_child_that_fails_at_its_first_start_ends_everything(tmp_path: Path) -> None:
    stages = [[child("api-1", tmp_path)], [child("learner", tmp_path, FAILING)]]
    with pytest.raises(CommandFailure, match="the learner process did not start"):
        await asyncio.wait_for(Supervisor(stages, 10).run(), 30)
    for _, pid in started(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_child_that_does_not_stop_is_killed_after_the_grace(tmp_path: Path) -> None:
    async with running([[child("deaf", tmp_path, DEAF)]], grace_seconds=0.3):
        await until(lambda: len(started(tmp_path)) == 1)
    with pytest.raises(ProcessLookupError):
        os.kill(started(tmp_path)[0][1], 0)


async def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    async with running([[child("deaf", tmp_path, DEAF)]], grace_seconds=60) as task:
        await until(lambda: len(started(tmp_path)) == 1)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.2)
        assert not task.done()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(asyncio.shield(task), 30)


async def test_nothing_is_started_again_after_a_second_signal(tmp_path: Path) -> None:
    stages = [[child("api-1", tmp_path, DEAF)], [child("learner", tmp_path)]]
    async with running(stages, grace_seconds=60) as task:
        await until(lambda: len(started(tmp_path)) == 2)
        for number in (signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
            await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.shield(task), 30)
    assert len(started(tmp_path)) == 2


@pytest.fixture(params=[("--workers", "2"), ("--separate-learner",)], ids=lambda flags: flags[0][2:])
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServingProcess]:
    quick = {"FTRL_LEASE_SECONDS": "2", "FTRL_REDIS_TIMEOUT_SECONDS": "0.9"}
    process = NewServingProcess("serve", *request.param, directory=tmp_path, **quick)
    yield process
    process.remove()
    with EmbeddedServer(Settings(data_dir=tmp_path / "data")):
        pass


def started_by(service: ServingProcess) -> list[int]:
    return [int(pid) for pid in re.findall(r"is process (\d+)", "".join(service.errors))]


def pid_of(service: ServingProcess, role: str) -> int:
    return int(service.wait_for(rf"{role} is process \d+").split()[-1])


@pytest.mark.slow
def test_it_announces_its_address_when_the_first_worker_answers(
    tmp_path: Path, fresh_valkey: ServerProcess
) -> None:
    fresh_valkey.pause()  # no worker begins before it has heard of its server, however long that takes
    patience = ("--redis-timeout-seconds", "600", "--lease-seconds", "2000")
    process = NewServingProcess(
        *("serve", "--workers", "2", *patience), directory=tmp_path, FTRL_REDIS_URL=fresh_valkey.url
    )
    try:
        for role in ("api-1", "api-2", "learner"):
            process.wait_for(f"{role} is process")
        assert process.output == []
        fresh_valkey.resume()
        assert process.get("/livez") is not None
        assert process.output[0].endswith("; the first of 2 workers answers\n")
        assert process.stop() == 0
        assert len(process.output) == 1
    finally:
        process.remove()


@pytest.mark.faults
def test_a_service_of_several_processes_survives_the_death_of_any(service: ServingProcess) -> None:
    service.wait_until_ready()
    example = {"features": {"ad": "shoes"}, "label": 1}
    assert service.post("/update", example)["status"] == "learned"
    os.kill(pid_of(service, "learner"), signal.SIGKILL)
    os.kill(pid_of(service, "api-1"), signal.SIGKILL)
    service.wait_for("learner ended .SIGKILL.")
    service.wait_for("api-1 ended .SIGKILL.")
    wait_until(lambda: service.post("/update", example)["status"] == "learned")
    service.interrupt()
    assert service.wait() == 0
    assert "Traceback" not in "".join(service.errors)


@pytest.mark.slow
def test_the_lease_of_a_killed_learner_is_not_awaited(tmp_path: Path, fresh_valkey: ServerProcess) -> None:
    forever = ("--lease-seconds", "3600", "--update-timeout-seconds", "60")
    service = NewServingProcess(
        *("serve", "--workers", "2", *forever), directory=tmp_path, FTRL_REDIS_URL=fresh_valkey.url
    )
    example = {"features": {"ad": "shoes"}, "label": 1}
    try:
        service.wait_until_ready()
        assert service.post("/update", example)["status"] == "learned"
        with redis.Redis.from_url(fresh_valkey.url) as client:
            holder = client.get(lease_key("default"))
            os.kill(pid_of(service, "learner"), signal.SIGKILL)
            assert service.post("/update", example)["status"] == "learned"
            assert client.get(lease_key("default")) == holder
        assert service.stop() == 0
    finally:
        service.remove()


@pytest.mark.faults
def test_children_do_not_outlive_a_killed_supervisor(service: ServingProcess) -> None:
    service.wait_until_ready()
    pids = started_by(service)
    assert {pid_of(service, "api-1"), pid_of(service, "learner")} <= set(pids)
    service.kill9()
    wait_until(lambda: all(is_gone(pid) for pid in pids))


@pytest.mark.faults
def test_connections_are_refused_while_the_learner_still_stops(service: ServingProcess) -> None:
    host, port = service.wait_until_ready().removeprefix("http://").split(":")

    def refuses() -> bool:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except ConnectionRefusedError:
            return True
        return False

    learner = pid_of(service, "learner")
    os.kill(learner, signal.SIGSTOP)  # as one that writes its snapshots, for as long as it takes
    try:
        service.process.terminate()
        wait_until(refuses, "connections are refused", seconds=15)
        assert not is_gone(learner)
        assert service.process.poll() is None
    finally:
        os.kill(learner, signal.SIGCONT)
    assert service.wait() == 0
