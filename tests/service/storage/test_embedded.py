import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from service.settings import Settings
from service.storage.embedded import EmbeddedServer, EmbeddedServerError
from tests.support.shared_data import REPOSITORY
from tests.support.waiting import wait_until

Parent = subprocess.Popen[str]

PARENT = """
import sys, time
from pathlib import Path
from service.storage.embedded import EmbeddedServer
from service.settings import Settings
with EmbeddedServer(Settings(data_dir=Path(sys.argv[1]))) as server:
    print(server.pid, server.started, flush=True)
    sys.stdin.read()
"""


def embedded(directory: Path, **overrides: object) -> EmbeddedServer:
    return EmbeddedServer(Settings(data_dir=directory, **overrides))  # type: ignore[arg-type]


def client(server: EmbeddedServer) -> redis.Redis:
    found: redis.Redis = redis.Redis.from_url(server.url, decode_responses=True)
    return found


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(") ")[2][0] != "Z"


def ready(parent: Parent) -> tuple[int, bool]:
    """The server's process id and whether this parent started it."""
    assert parent.stdout is not None
    pid, started = parent.stdout.readline().split()
    return int(pid), started == "True"


@pytest.fixture
def make_parent(tmp_path: Path) -> Iterator[Callable[[], Parent]]:
    """Starts other processes that hold the embedded server of `tmp_path` until their standard input ends."""
    parents: list[Parent] = []

    def make() -> Parent:
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(tmp_path)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        parents.append(parent)
        return parent

    yield make
    for parent in parents:
        parent.kill()
        parent.communicate()
    embedded_again = embedded(tmp_path)
    embedded_again.start()
    embedded_again.stop()


def test_data_is_there_after_a_stop_and_a_start(tmp_path: Path) -> None:
    with embedded(tmp_path) as server, client(server) as connection:
        pid = server.pid
        connection.set("key", "value")
    assert not running(pid)
    with embedded(tmp_path) as server, client(server) as connection:
        assert connection.get("key") == "value"


def test_the_server_is_durable_and_listens_on_its_socket_only(tmp_path: Path) -> None:
    settings = {"appendfsync": "always", "embedded_maxmemory_bytes": 100 << 20}
    with embedded(tmp_path, **settings) as server, client(server) as connection:
        config = connection.config_get("*")
        assert config["appendonly"] == "yes"
        assert config["appendfsync"] == "always"
        assert config["maxmemory-policy"] == "noeviction"
        assert config["maxmemory"] == str(100 << 20)
        assert config["port"] == "0"
        assert config["client-output-buffer-limit"].startswith("normal 536870912 268435456 60")
        mode = (server.home / "valkey.sock").stat().st_mode
        assert mode & 0o077 == 0


def test_a_directory_with_a_long_path_and_spaces_works(tmp_path: Path) -> None:
    directory = tmp_path / ("a long name " * 15)
    with embedded(directory) as server, client(server) as connection:
        assert len(server.url) < 100
        assert connection.ping()
        assert connection.config_get("dir")["dir"] == str(server.home)
        link = Path(server.url.removeprefix("unix://")).parent
        assert link.is_symlink()
    assert not link.is_symlink()


def test_a_relative_data_directory_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with embedded(Path("data")) as server:
        monkeypatch.chdir("/")
        with client(server) as connection:
            assert connection.ping()


def test_a_second_user_finds_the_server_and_the_last_one_stops_it(tmp_path: Path) -> None:
    first, second = embedded(tmp_path), embedded(tmp_path, appendfsync="always")
    first.start()
    second.start()
    pid = first.pid
    assert second.pid == pid
    assert (first.started, second.started) == (True, False)
    with client(second) as connection:
        assert connection.config_get("appendfsync") == {"appendfsync": "always"}
    first.stop()
    assert running(pid)
    second.stop()
    assert not running(pid)


@pytest.mark.faults
def test_an_errand_leaves_the_configuration_of_a_running_server(tmp_path: Path) -> None:
    limit = {"appendfsync": "always", "embedded_maxmemory_bytes": 100 << 20}
    with embedded(tmp_path, **limit) as server, client(server) as connection:
        with EmbeddedServer(Settings(data_dir=tmp_path), errand=True) as errand:
            assert errand.pid == server.pid
        assert connection.config_get("appendfsync") == {"appendfsync": "always"}
        assert connection.config_get("maxmemory") == {"maxmemory": str(100 << 20)}


def test_the_orphan_of_a_killed_parent_is_found_and_then_stopped(
    tmp_path: Path, make_parent: Callable[[], Parent]
) -> None:
    parent = make_parent()
    pid, started = ready(parent)
    assert started
    parent.kill()
    parent.wait()
    assert running(pid)
    with embedded(tmp_path) as server:
        assert server.pid == pid
        assert not server.started
    assert not running(pid)


@pytest.mark.slow
def test_parents_that_start_at_once_share_one_server(make_parent: Callable[[], Parent]) -> None:
    parents = [make_parent() for _ in range(4)]
    answers = [ready(parent) for parent in parents]
    assert len({pid for pid, _ in answers}) == 1
    assert sum(started for _, started in answers) == 1
    for parent in parents:
        parent.communicate("")
        assert parent.returncode == 0
    assert not running(answers[0][0])


def test_the_server_is_out_of_reach_of_the_terminal(tmp_path: Path) -> None:
    with embedded(tmp_path) as server:
        assert os.getsid(server.pid) != os.getsid(0)
        assert os.getpgid(server.pid) != os.getpgid(0)


@pytest.mark.faults
def test_a_server_that_dies_is_started_again_with_its_data(tmp_path: Path) -> None:
    with embedded(tmp_path, appendfsync="always") as server:
        with client(server) as connection:
            connection.set("key", "value")
        pid = server.pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not running(pid))

        def answers() -> bool:
            try:
                with client(server) as connection:
                    return bool(connection.get("key") == "value")
            except redis.RedisError:
                return False

        wait_until(answers)
        assert server.pid != pid


@pytest.mark.faults
def test_a_paused_server_is_waited_for_and_never_doubled(tmp_path: Path) -> None:
    first = embedded(tmp_path)
    first.start()
    pid = first.pid
    os.kill(pid, signal.SIGSTOP)
    child = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.5; kill -CONT {pid}"])
    with embedded(tmp_path) as second:
        assert second.pid == pid
    child.wait()
    first.stop()


def test_an_unwritable_data_directory_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedServerError, match="cannot write the data directory") as caught:
        embedded(tmp_path / "file").start()
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_reported_with_the_way_to_repair_it(tmp_path: Path) -> None:
    with embedded(tmp_path, appendfsync="always") as server, client(server) as connection:
        for i in range(100):
            connection.set(f"key{i}", "value")
    incremental = next((server.home / "appendonlydir").glob("*.incr.aof"))
    content = bytearray(incremental.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 40] = b"x" * 40
    incremental.write_bytes(content)
    with pytest.raises(EmbeddedServerError, match="valkey-check-aof") as caught:
        embedded(tmp_path).start()
    message = str(caught.value)
    assert "\n" not in message

    command = message[message.index("bash -c '") + len("bash -c '") : -1]
    subprocess.run(["/bin/bash", "-c", command], input=b"y\n", check=True, capture_output=True)
    with embedded(tmp_path) as server, client(server) as connection:
        assert connection.get("key0") == "value"


ON_A_FULL_DISK = """
import logging, sys, time
from pathlib import Path
import redis
from service.settings import Settings
from service.storage.embedded import EmbeddedServer

logging.basicConfig(stream=sys.stdout, format="%(message)s")
disk = Path(sys.argv[1])
with EmbeddedServer(Settings(data_dir=disk, appendfsync=sys.argv[2])) as server:
    client = redis.Redis.from_url(server.url)
    try:
        with (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
    except OSError as full:
        print(full, flush=True)
    def refused():
        try:
            client.set("key", bytes(1000))
        except redis.RedisError as failure:
            return failure
    while not refused():
        time.sleep(0.01)
    print("refused", refused(), flush=True)
    sys.stdin.readline()
    (disk / "filler").unlink()
    while refused():
        time.sleep(0.01)
    print("goes on", flush=True)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> list[str]:
    """The words before a Python script that mount a disk of 2 MiB at `tmp_path`, for the script alone."""
    mount = 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"'
    words = ["unshare", "-rm", "sh", "-c", mount, str(tmp_path)]
    if (
        sys.platform != "linux"
        or subprocess.run([*words, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no disk can be mounted here")
    return [*words, sys.executable, "-c"]


@pytest.mark.slow
@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_a_full_disk_is_named_until_there_is_room(
    tmp_path: Path, small_disk: list[str], appendfsync: str
) -> None:
    named = f"the disk of {tmp_path}/valkey is full (0 bytes are free): make room, or move"
    words = [*small_disk, ON_A_FULL_DISK, str(tmp_path), appendfsync]
    with subprocess.Popen(
        words, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        lines: list[str] = []
        while not any(named in line for line in lines) or not any("refused" in line for line in lines):
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
        process.stdin.write("make room\n")
        process.stdin.flush()
        assert "goes on" in process.stdout.read()
        assert process.wait() == 0


def test_a_start_on_a_full_disk_names_it(tmp_path: Path, small_disk: list[str]) -> None:
    fill = 'head -c 3m /dev/zero > "$0/filler"; exec "$@"'
    words = [*small_disk[:-2], "sh", "-c", fill, str(tmp_path), *small_disk[-2:], PARENT, str(tmp_path)]
    ended = subprocess.run(
        words, cwd=REPOSITORY, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert ended.returncode
    assert f"the disk of {tmp_path}/valkey is full" in ended.stderr


def test_a_truncated_tail_of_a_crash_is_no_obstacle(tmp_path: Path) -> None:
    with embedded(tmp_path, appendfsync="always") as server, client(server) as connection:
        connection.set("first", "1")
        connection.set("second", "2")
    incremental = next((server.home / "appendonlydir").glob("*.incr.aof"))
    incremental.write_bytes(incremental.read_bytes()[:-3])
    with embedded(tmp_path) as server, client(server) as connection:
        assert connection.get("first") == "1"
        assert connection.get("second") is None
